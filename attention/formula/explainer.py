"""What steps know of their neighbours above, as protocols, so that they do not import them.

`attention.explanation.explanation.ExplanationBuilder` explains a number and returns an `Explanation`; a `Layer` has
tensors.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from torch import Tensor

    from attention.base.printed import Arithmetic, Printed
    from attention.formula.names import Cell


E_co = TypeVar("E_co", covariant=True)


class ExplanationBuilding(Protocol[E_co]):
    """One cell of one step of a layer, its number, and functions that explain it.

    The result of an explanation is compared with the number; if they differ, the number is explained as recorded.
    """

    @property
    def layer(self) -> Tensors:
        """The layer with the formula of the cell's head."""

    @property
    def cell(self) -> Cell:
        """The address of the number."""

    @property
    def value(self) -> float:
        """The number."""

    def as_recorded(self, words: str = "") -> E_co:
        """An explanation without arithmetic: the number was recorded."""

    def from_claim(
        self, claim: float, words: str, why: str = "", came_from: tuple[Cell, ...] = (), right_sides: Sequence[str] = ()
    ) -> E_co:
        """An explanation without arithmetic: why the number is `claim`."""

    def from_copy(self, name: str, row: int, column: int, words: str, why: str) -> E_co:
        """An explanation of a number that is copied from an earlier step or a parameter."""

    def from_arithmetic(self, work: Arithmetic, came_from: tuple[Cell, ...] = ()) -> E_co:
        """An explanation by arithmetic; `came_from` are the cells of its operands."""

    def from_sum(
        self,
        values: list[float],
        piece: Callable[[int, int], Printed],
        formula: str,
        words: str,
        back: Callable[[int], tuple[Cell, ...]],
        plus: float | None = None,
    ) -> E_co:
        """An explanation by a sum of `values`; `piece(i, digits)` prints a summand, `back(i)` returns its cells, `plus` is added last."""

    def number_at(self, name: str, row: int, column: int) -> float:
        """A number of another step, in the cell's head."""

    def row_of(self, name: str, index: int) -> Tensor:
        """A row of another step or parameter, in the cell's head."""

    def column_of(self, name: str, index: int) -> Tensor:
        """A column of another step or parameter, in the cell's head."""

    def cell_of(self, name: str, row: int, column: int, head: int | None = None) -> Cell:
        """The address of a number of another step; `head` None: the cell's head."""

    def element_tex(self, name: str, row: object, column: object) -> str:
        """A number of a step or parameter as LaTeX."""

    def indices_tex(self, row: object, column: object) -> str:
        """The indices of a cell of this step as LaTeX."""


class Tensors(Protocol):
    """Tensors by the names of their steps and parameters, and the sizes of their axes; a `Layer` is one."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The length of each axis, by its name."""

    @property
    def n_heads(self) -> int:
        """The number of heads of the queries."""

    @property
    def uid(self) -> int:
        """Unique id of the recorded tensors (a cache key)."""

    @property
    def recorded(self) -> Mapping[str, Tensor]:
        """The recorded tensors by the name of their step or parameter."""

    def __getitem__(self, name: str, /) -> Tensor:
        """The tensor of a step or parameter, for all heads."""
