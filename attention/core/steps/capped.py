"""The capped scores: bounded by the cap through a tanh (softcap)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from attention.core import names
from attention.core.axes import MAP_AXES
from attention.core.explainer import E_co
from attention.core.functions import cap_scores, cap_signs
from attention.core.inline import inlined
from attention.core.step import LayerView, ProgramWriter, StepContext, called, cells_of, recorded
from attention.core.steps.maps import MapStep, formula_of, require_previous
from attention.printed import Arithmetic, Printed, format_number, number, quotient

if TYPE_CHECKING:
    from attention.core.tensor_types import Scores


@dataclass(frozen=True, repr=False)
class CappedScores(MapStep):
    """Step C: cap · tanh(S′ / cap)."""

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """The capped scores; at temperature 0 each is −cap, 0 or cap."""
        cap = formula_of(layer).cap or 1.0
        return (
            cap_scores(require_previous(previous), cap)
            if layer.temperature
            else cap_signs(require_previous(previous), cap)
        )

    def explain(self, work: StepContext[E_co]) -> E_co:
        """The cap times the tanh of a score."""
        row, column = work.cell.row, work.cell.column
        (_, previous), cap = work.layer.factors(self)[0], work.formula.cap or 1.0
        score = work.number_at(previous, row, column)
        came_from = (work.cell_of(previous, row, column),)
        if work.layer.temperature == 0:
            words = f"At temperature 0 every score that is not 0 becomes the cap, {format_number(cap)}, with its sign."
            return work.from_claim(
                cap * ((score > 0) - (score < 0)), words, "the cap with the sign of the score", came_from
            )

        def line(digits: int) -> Printed:
            bound, inside = number(cap, 9), quotient(number(score, digits), number(cap, 9))
            value = bound.value * Decimal(math.tanh(float(inside.value)))
            tex = rf"{bound.tex} \cdot \tanh\left({inside.tex}\right)"
            return Printed(tex, f"{bound.text}·tanh({inside.text})", value)

        words = f"The score, smoothly bounded between −{format_number(cap)} and {format_number(cap)}; small scores hardly change."
        formula = rf"\text{{cap}} \cdot \tanh({work.element_tex(previous, row, column)} / \text{{cap}})"
        return work.from_arithmetic(
            Arithmetic(formula, [line], [line], words, [cap * math.tanh(score / cap)]), came_from
        )

    def python(self, writer: ProgramWriter) -> list[str]:
        """The line that caps the scores."""
        function = cap_scores if writer.layer.temperature else cap_signs
        return inlined(function, self.name, scores=writer.previous, cap=repr(writer.formula.cap))


CAPPED_SCORES = CappedScores(
    names.CAPPED_SCORES, "C", "C", MAP_AXES, "cap · tanh(S′ / cap)", "signed",
    equation=r"C = \text{cap} \cdot \tanh(S' / \text{cap})", unknown=recorded(names.CAPPED_SCORES),
    when="cap", knobs=("cap",), example=(("cap", 1.5),), of=(cells_of(names.SCALED_SCORES, names.SCORES),), in_page="head",
    elsewhere=called(transformers="attn_weights"),
)  # fmt: skip
