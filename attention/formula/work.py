"""What the explanation of a number is written with; `attention.numbers.working.Working` is one, and gives an `Explanation`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.cell import Cell
    from attention.formula.tensors import Tensors
    from attention.printed import Arithmetic, Printed

E_co = TypeVar("E_co", covariant=True)


class Work(Protocol[E_co]):
    """One cell of one step of a layer, its number, and what can be stated of it.

    Whatever is stated is compared with the number; where it does not give that, the number is explained as recorded.
    """

    @property
    def layer(self) -> Tensors:
        """The layer, as the head of the cell has it."""

    @property
    def cell(self) -> Cell:
        """The address of the number."""

    @property
    def value(self) -> float:
        """The number."""

    def as_recorded(self, words: str = "") -> E_co:
        """The number alone; nothing is stated of how it was made."""

    def stated(
        self, claim: float, words: str, why: str = "", came_from: tuple[Cell, ...] = (), right_sides: Sequence[str] = ()
    ) -> E_co:
        """A number that nothing was computed for, and why it is what they `claim`."""

    def copied(self, name: str, row: int, column: int, words: str, why: str) -> E_co:
        """A number of an earlier step or a parameter, taken over as it is."""

    def made(self, work: Arithmetic, came_from: tuple[Cell, ...] = ()) -> E_co:
        """A number and the arithmetic that made it."""

    def summed(
        self,
        values: list[float],
        piece: Callable[[int, int], Printed],
        formula: str,
        words: str,
        back: Callable[[int], tuple[Cell, ...]],
        plus: float | None = None,
    ) -> E_co:
        """A sum of many `values`; `piece(i, digits)` prints one, and `plus` comes after them."""

    def number_at(self, name: str, row: int, column: int) -> float:
        """A number of another step, in this cell's head."""

    def row_of(self, name: str, index: int) -> Tensor:
        """A row of another step or parameter, in this cell's head."""

    def column_of(self, name: str, index: int) -> Tensor:
        """A column of another step or parameter, in this cell's head."""

    def cell_of(self, name: str, row: int, column: int, head: int | None = None) -> Cell:
        """The address of a number of another step."""

    def symbol(self, name: str, row: object, column: object) -> str:
        """A number of a step or parameter as LaTeX."""

    def at(self, row: object, column: object) -> str:
        """The indices of a cell of this step as LaTeX."""
