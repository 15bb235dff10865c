"""A map that is read off the weights and is no step of the formula: what it says, how it is made, and the arithmetic of a cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from attention.errors import MissingError, check_index
from attention.formula.cell import Cell
from attention.formula.names import WEIGHTS
from attention.formula.steps import Step
from attention.formula.trace import Trace
from attention.numbers.arithmetic import NEAR, Explanation
from attention.numbers.working import Working

if TYPE_CHECKING:
    from torch import Tensor


def _nothing(_: Trace, __: int) -> str:
    return ""


@dataclass(frozen=True)
class Reading:
    """One way to read a layer's weights as a map [query_pos key_pos].

    Attributes:
        step: its name, symbol, formula and kind of number, as a map of a step is drawn with.
        words: what it says and what it does not, a sentence or two.
        paper: where it comes from; empty where nobody needs to be asked.
        made: the map of a layer and, where it is one head's, of a head.
        told: the arithmetic of a cell.
        layers: the numbers of the layers that it reads for one of them.
        warning: what must be said of it on this trace and layer; empty mostly.
        per_head: whether each head has its own.
    """

    step: Step
    words: str
    paper: str
    made: Callable[[Trace, int, int], Tensor]
    told: Callable[[Working, Trace], Explanation]
    layers: Callable[[Trace, int], tuple[int, ...]] = lambda _, layer: (layer,)
    warning: Callable[[Trace, int], str] = _nothing
    per_head: bool = False

    @property
    def name(self) -> str:
        """What it is called, in links too."""
        return self.step.name

    def matrix(self, trace: Trace, layer: int, head: int = 0) -> Tensor:
        """The map of a layer, [query_pos key_pos].

        Raises:
            MissingError: there is no such layer or head, or the layer lacks what it reads.
            ShapeError: the layers do not fit together.
        """
        its = trace.layer(layer)
        if not its.has(WEIGHTS):
            raise MissingError(f"{self.name} reads the weights, which this layer does not have: choose another layer.")
        if self.per_head:
            check_index("heads", head, its.n_heads)
        return self.made(trace, layer, head)

    def explain(self, trace: Trace, cell: Cell) -> Explanation:
        """The arithmetic behind the number at the row and column of a cell, whatever the cell's step is.

        Raises:
            MissingError: as for `matrix`, or there is no such row or column.
        """
        matrix = self.matrix(trace, cell.layer, cell.head)
        for axis, at, size in zip(self.step.axes[-2:], (cell.row, cell.column), matrix.shape, strict=True):
            check_index(f"{axis} of {self.name}", at, size, "counts")
        own = replace(cell, step=self.name)
        work = _Working(trace.layer(cell.layer), self.step, own, float(matrix[cell.row, cell.column]) + 0.0)
        return self.told(work, trace)


class _Working(Working):
    """The working of a number that belongs to no step of the layer."""

    @property
    def _near(self) -> float:
        return NEAR
