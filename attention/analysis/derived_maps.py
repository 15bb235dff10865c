"""A map that is derived from the weights and is no step of the formula, with the arithmetic of each cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attention.analysis.explain.arithmetic import TOLERANCE, Explanation
from attention.analysis.explain.working import ExplanationBuilder
from attention.core.cell import Cell
from attention.core.names import WEIGHTS
from attention.core.steps import Step
from attention.core.trace import Trace
from attention.errors import MissingError, check_index

if TYPE_CHECKING:
    from torch import Tensor


def _nothing(_: Trace, __: int) -> str:
    return ""


@dataclass(frozen=True)
class DerivedMap:
    """A map [query_pos key_pos] derived from a layer's weights.

    Attributes:
        step: its name, symbol, formula and kind of number, for drawing it like a step.
        words: what it shows and what it does not, in one or two sentences.
        paper: its source; empty if it is common knowledge.
        compute: returns the map for a trace, a layer and a head (ignored unless `per_head`).
        explain_cell: returns the arithmetic of a cell.
        layers: the indices of the layers that the map of one layer depends on.
        warning: a caution about this trace and layer; usually empty.
        per_head: whether each head has its own map.
    """

    step: Step
    words: str
    paper: str
    compute: Callable[[Trace, int, int], Tensor]
    explain_cell: Callable[[ExplanationBuilder, Trace], Explanation]
    layers: Callable[[Trace, int], tuple[int, ...]] = lambda _, layer: (layer,)
    warning: Callable[[Trace, int], str] = _nothing
    per_head: bool = False

    @property
    def name(self) -> str:
        """Its name, as in links."""
        return self.step.name

    def matrix(self, trace: Trace, layer: int, head: int = 0) -> Tensor:
        """The map of a layer, [query_pos key_pos].

        Raises:
            MissingError: there is no such layer or head, or the layer lacks the inputs of the map.
            ShapeError: the layers do not fit together.
        """
        source = trace.layer(layer)
        if not source.has(WEIGHTS):
            raise MissingError(f"{self.name} reads the weights, which this layer does not have: choose another layer.")
        if self.per_head:
            check_index("heads", head, source.n_heads)
        return self.compute(trace, layer, head)

    def explain(self, trace: Trace, cell: Cell) -> Explanation:
        """The arithmetic of the number at the row and column of a cell, whatever the cell's step.

        Raises:
            MissingError: as for `matrix`, or there is no such row or column.
        """
        matrix = self.matrix(trace, cell.layer, cell.head)
        for axis, index, size in zip(self.step.axes[-2:], (cell.row, cell.column), matrix.shape, strict=True):
            check_index(f"{axis} of {self.name}", index, size, "counts")
        address = replace(cell, step=self.name)
        work = _Working(trace.layer(cell.layer), self.step, address, float(matrix[cell.row, cell.column]) + 0.0)
        return self.explain_cell(work, trace)


class _Working(ExplanationBuilder):
    """The working of a number that is no step of the layer."""

    @property
    def _tolerance(self) -> float:
        return TOLERANCE
