"""The biased scores: the scores plus a bias for each pair of positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.core import names
from attention.core.axes import MAP_AXES
from attention.core.biases import BIASES
from attention.core.explainer import E_co
from attention.core.functions import add_bias
from attention.core.inline import inlined
from attention.core.step import LayerView, ProgramWriter, StepContext, called, cells_of, recorded
from attention.core.steps.maps import MapStep, formula_of, require_previous
from attention.core.steps.sums import added

if TYPE_CHECKING:
    from attention.core.tensor_types import Scores


@dataclass(frozen=True, repr=False)
class BiasedScores(MapStep):
    """The scores plus the bias, which is an entry of `attention.core.biases.BIASES`."""

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """Scores plus bias."""
        return add_bias(require_previous(previous), BIASES[formula_of(layer).bias].bias(layer, heads, rows))

    def explain(self, work: StepContext[E_co]) -> E_co:
        """The sum of the score and the bias."""
        bias = BIASES.get(work.formula.bias)
        words = f"{self.words} The bias is {bias.words}." if bias else self.words
        return added(self, work, words, {}, frozenset(("bias",)))

    def python(self, writer: ProgramWriter) -> list[str]:
        """Lines that compute the bias and add it."""
        lines = BIASES[writer.formula.bias].python(writer.layer.n_heads)
        return [*lines, *inlined(add_bias, self.name, scores=writer.previous, bias="bias")]


BIASED_SCORES = BiasedScores(
    names.BIASED_SCORES, "B", "B", MAP_AXES, "C + bias", "signed", equation=r"B = C + \text{bias}",
    words="The score plus the bias of this pair of positions.", unknown=recorded(names.BIASED_SCORES),
    when="bias", knobs=("bias",), example=(("bias", "alibi"),),
    of=(cells_of(names.CAPPED_SCORES, names.SCALED_SCORES, names.SCORES), cells_of("bias")),
    elsewhere=called(transformers="attn_weights"),
)  # fmt: skip
