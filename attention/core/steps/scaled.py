"""The scaled scores: divided by √d_k and by the temperature."""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from attention.core import names
from attention.core.axes import MAP_AXES
from attention.core.explainer import E_co
from attention.core.functions import divide_scores, scale_scores
from attention.core.inline import inlined
from attention.core.scores import SCORES as SCORE_FUNCTIONS
from attention.core.step import LayerView, ProgramWriter, StepContext, called, cells_of, recorded
from attention.core.steps.maps import MapStep, formula_of, require_previous
from attention.printed import Arithmetic, Printed, number, quotient

if TYPE_CHECKING:
    from attention.core.formula import Formula
    from attention.core.tensor_types import Scores


@dataclass(frozen=True, repr=False)
class ScaledScores(MapStep):
    """Step S′: the scores over divisor · temperature."""

    def formula_in(self, formula: Formula) -> str:
        """S over the divisor of the formula and the temperature."""
        custom = formula.divisor == formula.own_divisor and f"S / ({formula.divisor:g} · temperature)"
        return "S / temperature" if formula.divisor == 1 else custom or SCORE_FUNCTIONS[formula.score].scaled

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """The scores over divisor · temperature; at temperature 0 over the divisor alone."""
        return scale_scores(require_previous(previous), formula_of(layer).divisor or 1.0, layer.temperature)

    def explain(self, work: StepContext[E_co]) -> E_co:
        """A score divided by √d_k and the temperature; factors of 1 are left out."""
        row, column = work.cell.row, work.cell.column
        score, divisor = work.number_at(names.SCORES, row, column), work.formula.divisor or 1.0
        temperature, d_k = work.layer.temperature, work.layer.sizes.get("d_k", 0)
        below, texts, reason, printed_temperature = list[str](), list[str](), "", number(temperature, 9)
        if d_k > 1 and math.isclose(divisor, 1 / math.sqrt(d_k)):
            below, texts, words = [rf"(1/\sqrt{{{d_k}}})"], [f"(1/√{d_k})"], "The score times √d_k"
        elif d_k > 1 and math.isclose(divisor, math.sqrt(d_k)):
            below, texts, words = [rf"\sqrt{{{d_k}}}"], [f"√{d_k}"], "The score divided by √d_k"
        elif divisor == 1:
            reason = (
                "d_k is 1, and so is √d_k" if d_k == 1 else "scaling is off" if d_k else "there is no query and key"
            )
            words = f"The score is not divided by √d_k: {reason}"
        else:
            below, texts, words = [number(divisor).tex], [number(divisor).text], "The score divided by its divisor"
        came_from, symbol = (work.cell_of(names.SCORES, row, column),), work.element_tex(names.SCORES, row, column)
        if temperature == 0:
            words += "; the division by temperature 0 is left out, and the weights are its limit."
        elif temperature == 1:
            words += "."
        else:
            words += ", and by the temperature." if texts else "; it is divided by the temperature."
            below, texts = [*below, printed_temperature.tex], [*texts, printed_temperature.text]
        if not texts:
            return work.from_copy(names.SCORES, row, column, words, f"the score itself, {reason}")
        denominator, has_root, denominator_tex = divisor * (temperature or 1.0), "√" in texts[0], r" \cdot ".join(below)

        def line(digits: int) -> Printed:
            return quotient(number(score, digits), number(denominator, digits))

        def short(digits: int) -> Printed:
            numerator, printed_divisor = number(score, digits), number(divisor, digits)
            # A root has no last digit; a temperature may be printed with fewer digits than it has.
            exact = Decimal(divisor) if has_root else printed_divisor.value
            product = " · ".join(texts if has_root or divisor == 1 else [printed_divisor.text, *texts[1:]])
            text = f"{numerator.text} / {f'({product})' if len(texts) > 1 else product}"
            return Printed("", text, numerator.value / (exact * (printed_temperature.value or 1)))

        tex, values = rf"\frac{{{symbol}}}{{{denominator_tex}}}", [score, denominator]
        return work.from_arithmetic(Arithmetic(tex, [line], [short], words, values, "quotient"), came_from)

    def python(self, writer: ProgramWriter) -> list[str]:
        """Lines that divide by √d_k and the temperature; factors of 1 are left out."""
        layer, divisor = writer.layer, writer.formula.divisor
        lines, factors = list[str](), list[str]()
        if layer.has(names.QUERY) and divisor == math.sqrt(layer.sizes.get("d_k", 0)):
            factors += ["math.sqrt(query.shape[-1])"]  # root of d_k
        elif divisor != 1:
            factors += [repr(divisor)]
        if layer.temperature not in (0, 1):
            lines += [
                "temperature = math.inf" if math.isinf(layer.temperature) else f"temperature = {layer.temperature!r}"
            ]
            factors += ["temperature"]
        if not factors:
            return [f"{self.name} = {writer.previous}  # not scaled"]
        return [*lines, *inlined(divide_scores, self.name, scores=writer.previous, divisor=" * ".join(factors))]


SCALED_SCORES = ScaledScores(
    names.SCALED_SCORES, "S′", "S'", MAP_AXES, "S / (√d_k · temperature)", "signed",
    equation=r"S' = \frac{S}{\sqrt{d_k} \cdot \text{temperature}}", unknown=recorded(names.SCALED_SCORES),
    when="divisor", knobs=("divisor", "temperature"), example=(("divisor", 3.0), ("temperature", 0.5)), of=(cells_of(names.SCORES),), in_page="head",
    elsewhere=called(transformers="attn_weights", jax="logits", n1="W, W2", n2="weights", n4="scaled_dot_prod", n5="scaled_sims"),
)  # fmt: skip
