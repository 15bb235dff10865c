"""The dropped weights (dropout): a fraction of the weights set to 0, the rest scaled up."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.core import names
from attention.core.axes import MAP_AXES
from attention.core.dropout import Dropout
from attention.core.explainer import E_co
from attention.core.step import LayerView, ProgramWriter, StepContext, called, cells_of, recorded
from attention.core.steps.maps import MapStep, formula_of, require_previous
from attention.core.steps.masked import hides

if TYPE_CHECKING:
    from attention.core.formula import Formula
    from attention.core.tensor_types import Scores


@dataclass(frozen=True, repr=False)
class DroppedWeights(MapStep):
    """Step D: the weights after the dropout of the formula's `attention.core.dropout.Dropout`."""

    def formula_in(self, formula: Formula) -> str:
        """The formula of the dropout."""
        return formula.dropping.formula

    def compute_block(self, layer: LayerView, previous: Scores | None, heads: slice, rows: slice) -> Scores:
        """The weights after dropout."""
        return formula_of(layer).dropping.weights(layer, require_previous(previous), heads, rows)

    def explain(self, work: StepContext[E_co]) -> E_co:
        """A weight that was dropped, or kept and scaled."""
        row, column, dropping = work.cell.row, work.cell.column, work.formula.dropping
        weight, symbol = work.number_at(names.WEIGHTS, row, column), work.element_tex(names.WEIGHTS, row, column)
        ones = work.row_of(names.WEIGHTS, row).new_ones(1, 1, work.layer.sizes["key_pos"])
        head, rows = slice(work.cell.head, work.cell.head + 1), slice(row, row + 1)
        multiplier = float(dropping.weights(work.layer, ones, head, rows)[0, 0, column])
        arithmetic = dropping.arithmetic(symbol, weight, row, column, hides(work, column), multiplier)
        return work.from_arithmetic(arithmetic, (work.cell_of(names.WEIGHTS, row, column),))

    def python(self, writer: ProgramWriter) -> list[str]:
        """Lines that apply dropout."""
        return writer.formula.dropping.python(writer.previous)


DROPPED_WEIGHTS = DroppedWeights(
    names.DROPPED_WEIGHTS, "D", "D", MAP_AXES, "A, a share of it dropped, the rest divided by 1 − dropout", "probability",
    equation=r"D_{ij} = \begin{cases} 0 & \text{dropped} \\ A_{ij} / (1 - \text{dropout}) & \text{kept} \end{cases}",
    unknown=recorded(names.DROPPED_WEIGHTS), when="dropping", knobs=("dropping",), example=(("dropping", Dropout(0.3)),), of=(cells_of(names.WEIGHTS),),
    masked=True,
    elsewhere=called(transformers="attn_weights", torch="attn_output_weights", n4="dropout(attn_probs)"),
)  # fmt: skip
