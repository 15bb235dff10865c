"""The scores: every query compared with every key."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.core import names
from attention.core.axes import MAP_AXES
from attention.core.explainer import E_co
from attention.core.scores import SCORES as SCORE_FUNCTIONS
from attention.core.step import Factor, LayerView, ProgramWriter, StepContext, called, rows_of
from attention.core.steps.maps import MapStep, formula_of, repeat_kv
from attention.core.steps.products import Product

if TYPE_CHECKING:
    from attention.core.formula import Formula
    from attention.core.tensor_types import Scores


@dataclass(frozen=True, repr=False)
class RawScores(Product, MapStep):
    """Step S: the scores before scaling; the score function is an entry of `attention.core.scores.SCORES`."""

    def formula_in(self, formula: Formula) -> str:
        """The formula of the score function."""
        return SCORE_FUNCTIONS[formula.score].formula

    def available(self, layer: LayerView) -> bool:
        """Whether the layer has queries and keys."""
        return names.QUERY in layer.available and names.KEY in layer.available

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """The scores of the formula's score function."""
        formula = formula_of(layer)
        sides = (names.ROTATED_QUERY, names.ROTATED_KEY) if formula.rotary else (names.QUERY, names.KEY)
        query, key = (layer[name] for name in sides)
        score = SCORE_FUNCTIONS[formula.score]
        parameter = layer[score.parameter][heads] if score.parameter else None
        return score.scores(query[heads, rows], repeat_kv(layer, key, heads), parameter)

    def describe(self, work: StepContext[E_co], left: str) -> str:
        """How the score function computes the cell."""
        return SCORE_FUNCTIONS[work.formula.score].cell_words.format(row=work.cell.row, column=work.cell.column)

    def explain_product(self, work: StepContext[E_co], factors: list[tuple[Factor, str]]) -> E_co:
        """The score of a row of Q and a row of K."""
        score = SCORE_FUNCTIONS[work.formula.score]
        if score.arithmetic == "product":
            return super().explain_product(work, factors)
        return score.explain(work, factors[0][1], factors[1][1])

    def python(self, writer: ProgramWriter) -> list[str]:
        """Lines of the score function."""
        query, key = (names.ROTATED_QUERY, names.ROTATED_KEY) if writer.formula.rotary else (names.QUERY, names.KEY)
        return list(
            SCORE_FUNCTIONS[writer.formula.score].python(
                query, writer.repeated_for_groups(key), writer.product_function()
            )
        )


SCORES = RawScores(
    names.SCORES, "S", "S", MAP_AXES, "Q Kᵀ", "signed", equation=r"S = Q K^{\top}", knobs=("score",),
    unknown="The score as provided: there is no query and key.", in_page="head",
    of=(rows_of(names.ROTATED_QUERY, names.QUERY), Factor((names.ROTATED_KEY, names.KEY), row="column")),
    elsewhere=called(transformers="attn_weights", jax="logits", n1="W", n2="weights", n3="scores", n5="sims"),
)  # fmt: skip
