"""What every step of the formula has to say and do: its declaration, its numbers, their explanation, its Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from attention.formula.steps.axis import HEAD_AXES, MAP_AXES, Names
from attention.formula.tensors import Tensors
from attention.formula.work import E_co, Work

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.formula import Formula

Kind = Literal["signed", "probability"]


@dataclass(frozen=True)
class Factor:
    """One matrix that a step is made of, and how a cell of the step finds its place in it.

    Attributes:
        names: of the step or parameter; of several the first that a layer has.
        row: which side of the step's cell gives the row: "row", "column", or "" where all rows take part.
        column: the same for the column; "pair" where a rotation takes the other column of its pair too.
        side_by_side: whether the matrices of all heads take part, next to one another.
    """

    names: tuple[str, ...]
    row: Literal["row", "column", ""] = ""
    column: Literal["row", "column", "pair", ""] = ""
    side_by_side: bool = False


def rows_of(*names: str) -> Factor:
    """Row by row: the step's row is the factor's."""
    return Factor(names, row="row")


def columns_of(*names: str) -> Factor:
    """Column by column: the step's column is the factor's."""
    return Factor(names, column="column")


def cells_of(*names: str) -> Factor:
    """Cell by cell."""
    return Factor(names, row="row", column="column")


def pairs_of(*names: str) -> Factor:
    """Cell by cell, with the other column of the pair."""
    return Factor(names, row="row", column="pair")


class Steps(Tensors, Protocol):
    """What a step may ask of a layer; a `Layer` is one."""

    @property
    def recorded(self) -> Mapping[str, Tensor]:
        """Tensors by the name of their step or parameter."""

    @property
    def holds(self) -> Mapping[str, Tensor]:
        """What is recorded and still holds after the formula was turned."""

    @property
    def formula(self) -> Formula | None:
        """What makes the steps that are not recorded."""

    @property
    def whole(self) -> bool:
        """Whether the query × key matrices are made for all heads at once."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps that there are, in the order of the formula."""

    @property
    def temperature(self) -> float:
        """The formula's temperature, 0 where a quotient overflows."""

    @property
    def hides(self) -> bool:
        """Whether the mask hides anything."""

    def has(self, name: str, /) -> bool:
        """Whether there is a step or parameter."""

    def matrix(self, name: str, head: int = 0, /) -> Tensor:
        """One head's matrix of a step or parameter."""

    def part(self, *names: str, heads: slice = ..., rows: slice = ...) -> tuple[Tensor, ...]:
        """Some heads and queries of query × key matrices."""

    def shape(self, name: str, /) -> tuple[int, ...]:
        """The shape of a step or parameter."""

    def of(self, head: int, /) -> Steps:
        """The same as one head has it."""

    def without(self, *names: str) -> Steps:
        """The same without some of what is recorded."""

    def remade(self, formula: Formula, /) -> Steps:
        """The same with another formula."""

    def factors(self, step: Step, /) -> list[tuple[Factor, str]]:
        """The factors of a step that there are, each with the name of its step or parameter."""


class StepWork(Work[E_co], Protocol[E_co]):
    """What the explanation of a step's cell is written with."""

    @property
    def layer(self) -> Steps:
        """The layer, as the head of the cell has it."""

    @property
    def formula(self) -> Formula:
        """What made the number."""

    def declared(self, name: str, /) -> Step | Parameter:
        """The step or parameter called `name`."""


class Writer(Protocol):
    """What the Python of a step is written with; `attention.export.formula` has it.

    Attributes:
        before: the variable of the map before this one.
        keys: the variable of the tokens attended to.
    """

    @property
    def layer(self) -> Steps:
        """The layer that the program computes."""

    @property
    def formula(self) -> Formula:
        """Its formula."""

    @property
    def before(self) -> str:
        """The variable of the map before this one."""

    @property
    def keys(self) -> str:
        """The variable of the tokens attended to."""

    def shared(self, name: str, /) -> str:
        """Keys or values as all heads of the queries see them."""

    def product(self) -> str:
        """The function that the program multiplies with as the trace does; empty where it is the plain product."""

    def picture(self) -> list[str]:
        """Lines that make `mask` cell by cell."""

    def padding(self, real: tuple[bool, ...], /) -> list[str]:
        """Lines that make `real`, which keys are no padding."""


@dataclass(frozen=True, repr=False)
class Step:
    """One step of the formula: what it is called, what its axes mean, how it is computed, explained and written as Python.

    This one is computed by nothing: a source records it, or does not have it. Steps that a formula computes are of a class with the
    four functions `available`, `compute`, `explain` and `python`.

    Attributes:
        name: as in `layer.weights`, and in links; one of `attention.formula.names`.
        symbol: its letter in the formula, plain text; `tex` the same for LaTeX.
        axes: the names of its axes, in order.
        formula: how it is made, plain text.
        kind: "signed" numbers lie around zero; a "probability" lies in 0 … 1.
        equation: how it is made, LaTeX, with the symbol on the left.
        words: how a cell is made, with {row} and {column}.
        unknown: the explanation of a cell where the source does not have what made it.
        when: the field of a `Formula` that must be set for this step to be there; empty: it always is.
        knobs: the fields of a `Formula` that it depends on, beside those of the steps before it.
        example: fields of a `Formula` that has this step, where another than the default one is needed.
        elsewhere: what others call it, (who, name) pairs; whoever has no name for it is not listed. Their
            axes may stand in another order.
        of: the matrices it is made of, in the order of the formula.
        bias: the parameter that is added to every row of it, where a layer has that.
        masked: whether the cells that the mask hides are drawn as hidden.
        in_page: whether the page's own arithmetic makes it, under this name, in kernel.js and steps.js; "whole": where it
            has the values of all heads.
    """

    name: str
    symbol: str
    tex: str
    axes: tuple[str, ...]
    formula: str
    kind: Kind
    _: KW_ONLY
    equation: str = ""
    words: str = ""
    unknown: str = ""
    when: str = ""
    knobs: tuple[str, ...] = ()
    example: tuple[tuple[str, object], ...] = ()
    elsewhere: Names = ()
    of: tuple[Factor, ...] = ()
    bias: str = ""
    masked: bool = False
    in_page: Literal["", "head", "whole"] = ""

    def __repr__(self) -> str:
        return f"Step({self.name!r}, {self.symbol} = {self.formula}, [{' '.join(self.axes)}])"

    @property
    def per_head(self) -> bool:
        """Whether every head has a matrix of its own."""
        return self.axes[0] in HEAD_AXES

    @property
    def by_formula(self) -> bool:
        """Whether a `Formula` makes it, and neither the source nor a projection."""
        return self.axes == MAP_AXES

    @property
    def row_axis(self) -> str:
        """The axis that runs down the picture."""
        return self.axes[-2]

    @property
    def column_axis(self) -> str:
        """The axis that runs across the picture."""
        return self.axes[-1]

    def enabled(self, formula: Formula) -> bool:
        """Whether a formula has this step, given that there are scores."""
        return not self.when or bool(getattr(formula, self.when))

    def formula_in(self, formula: Formula) -> str:
        """How a formula makes this step, plain text."""
        return self.formula

    def available(self, layer: Steps) -> bool:
        """Whether a layer that has not recorded this step, and whose formula has it, can compute it."""
        return False

    def compute(self, layer: Steps, head: int | None) -> Tensor:
        """The step of one head [row column], or of all."""
        raise NotImplementedError(f"{self.name} is computed by nothing: a source records it.")

    def explain(self, work: StepWork[E_co]) -> E_co:
        """The arithmetic of one cell."""
        return work.as_recorded(f"Looked up, not computed: {self.formula}.")

    def python(self, writer: Writer) -> list[str]:
        """Lines of plain torch that compute it into a variable of its name."""
        raise NotImplementedError(f"{self.name} is written by the source that records it.")


@dataclass(frozen=True)
class Parameter:
    """One matrix that a layer keeps beside its steps: what it is called, its axes, what it is for."""

    name: str
    symbol: str
    axes: tuple[str, ...]
    meaning: str
    elsewhere: Names = ()


def called(**elsewhere: str) -> Names:
    """Keyword arguments as (who, name): ``lens`` is TransformerLens, ``n4`` is notebook 4."""
    who = {"lens": "TransformerLens", "jax": "JAX", **{f"n{i}": f"notebook {i}" for i in range(1, 6)}}
    return tuple((who.get(key, key), name) for key, name in elsewhere.items())


def recorded(name: str) -> str:
    """The words of a step of which nothing is known but its numbers."""
    return f"The {name} as the source recorded it; what made it is not known."
