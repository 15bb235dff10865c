"""The interface of a step of the formula: its declaration, its numbers, their explanation, its Python."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Literal, Protocol

from attention.formula.explainer import E_co, ExplanationBuilding, Tensors
from attention.formula.names import HEAD_AXES, MAP_AXES, OtherNames

if TYPE_CHECKING:
    from torch import Tensor

    from attention.formula.formula import Formula

_Kind = Literal["signed", "probability"]


@dataclass(frozen=True)
class Factor:
    """One matrix from which a step is computed, and how a cell of the step maps to its cells.

    Attributes:
        names: the names of a step or parameter; the first that the layer has counts.
        row: which index of the step's cell is the row: "row", "column", or "" if all rows contribute.
        column: the same for the column; "pair" if a rotation uses the other column of the pair too.
        concatenated: whether the matrices of all heads contribute, concatenated.
    """

    names: tuple[str, ...]
    row: Literal["row", "column", ""] = ""
    column: Literal["row", "column", "pair", ""] = ""
    concatenated: bool = False


def rows_of(*names: str) -> Factor:
    """A factor that contributes the row of the cell."""
    return Factor(names, row="row")


def columns_of(*names: str) -> Factor:
    """A factor that contributes the column of the cell."""
    return Factor(names, column="column")


def cells_of(*names: str) -> Factor:
    """A factor that contributes the same cell."""
    return Factor(names, row="row", column="column")


def pairs_of(*names: str) -> Factor:
    """A factor that contributes the same cell and the other column of its pair."""
    return Factor(names, row="row", column="pair")


class LayerView(Tensors, Protocol):
    """The interface of a layer that steps use; a `Layer` implements it."""

    @property
    def available(self) -> Mapping[str, Tensor]:
        """The recorded tensors that are still valid under the current formula."""

    @property
    def formula(self) -> Formula | None:
        """The formula of the steps that are not recorded."""

    @property
    def materialize_all_heads(self) -> bool:
        """Whether the query × key matrices are computed for all heads at once."""

    @property
    def keeps_maps(self) -> bool:
        """Whether the query × key matrix of one head is small enough to be kept."""

    @property
    def patch_places(self) -> tuple[Tensor, Tensor]:
        """The places of the queries and of the keys as patches, each [pos 3]."""

    @property
    def steps(self) -> tuple[Step, ...]:
        """The available steps, in the order of the formula."""

    @property
    def temperature(self) -> float:
        """The formula's temperature; 0 if a quotient would overflow."""

    @property
    def hides_keys(self) -> bool:
        """Whether the mask hides any key."""

    def mask_rows(self, rows: slice, /) -> Tensor:
        """The rows of the mask for some queries."""

    def has(self, name: str, /) -> bool:
        """Whether the layer has this step or parameter."""

    def matrix(self, name: str, head: int = 0, /) -> Tensor:
        """One head's matrix of a step or parameter."""

    def blocks(self, *names: str, heads: slice = ..., rows: slice = ...) -> tuple[Tensor, ...]:
        """Query × key matrices of these steps for some heads and queries."""

    def shape(self, name: str, /) -> tuple[int, ...]:
        """The shape of a step or parameter."""

    def for_head(self, head: int, /) -> LayerView:
        """The layer with the formula of one head."""

    def without(self, *names: str) -> LayerView:
        """The layer without these recorded tensors."""

    def with_formula(self, formula: Formula, /) -> LayerView:
        """The layer with another formula."""

    def factors(self, step: Step, /) -> list[tuple[Factor, str]]:
        """The available factors of a step, each with the name of its step or parameter."""


class StepContext(ExplanationBuilding[E_co], Protocol[E_co]):
    """The context in which a step explains a cell."""

    @property
    def layer(self) -> LayerView:
        """The layer with the formula of the cell's head."""

    @property
    def formula(self) -> Formula:
        """The formula that computed the number."""

    def find_declared(self, name: str, /) -> Step | Parameter:
        """The step or parameter with this name."""


class ProgramWriter(Protocol):
    """The context in which a step writes its Python; implemented in `attention.program.formula_lines`."""

    @property
    def layer(self) -> LayerView:
        """The layer that the program computes."""

    @property
    def formula(self) -> Formula:
        """The formula of the layer."""

    @property
    def previous(self) -> str:
        """The name of the variable with the previous map."""

    @property
    def keys(self) -> str:
        """The name of the variable with the key tokens."""

    def repeated_for_groups(self, name: str, /) -> str:
        """An expression of keys or values, repeated for all query heads."""

    def product_function(self) -> str:
        """The name of the matrix product that the trace uses; empty for the plain product."""

    def mask_lines(self) -> list[str]:
        """Lines that define `mask` cell by cell."""

    def padding_lines(self, real: tuple[bool, ...], /) -> list[str]:
        """Lines that define `real`: which keys are not padding."""


@dataclass(frozen=True, repr=False)
class Step:
    """One step of the formula: its names and axes, and how it is computed, explained and written as Python.

    The base class is for steps that only a source records. Steps that a formula computes are instances of subclasses, which define
    `available`, `compute`, `explain` and `python`.

    Attributes:
        name: its name in `layer.weights` and in links; one of `attention.formula.names`.
        symbol: its letter in the formula, plain text.
        tex: the same as LaTeX.
        axes: the names of its axes, in order.
        formula: how it is computed, plain text.
        kind: "signed" for numbers around zero; "probability" for numbers from 0 to 1.
        equation: how it is computed, LaTeX, with the symbol on the left.
        words: how a cell is computed, with {row} and {column}.
        unknown: the explanation of a cell if its factors are not recorded.
        when: the field of a `Formula` that enables this step; empty: always enabled.
        knobs: the fields of a `Formula` that it depends on, besides those of the steps before it.
        example: fields of a `Formula` with this step, if the default formula does not have it.
        elsewhere: its names in other libraries, (library, name) pairs; their axes may have another order.
        of: the matrices from which it is computed, in the order of the formula.
        bias: the parameter that is added to every row, if the layer has it.
        masked: whether hidden cells are drawn as hidden.
        in_page: "head" if the page itself can compute it (under this name in kernel.js and live_steps.js); "whole" if the page
            needs the values of all heads for that.
    """

    name: str
    symbol: str
    tex: str
    axes: tuple[str, ...]
    formula: str
    kind: _Kind
    _: KW_ONLY
    equation: str = ""
    words: str = ""
    unknown: str = ""
    when: str = ""
    knobs: tuple[str, ...] = ()
    example: tuple[tuple[str, object], ...] = ()
    elsewhere: OtherNames = ()
    of: tuple[Factor, ...] = ()
    bias: str = ""
    masked: bool = False
    in_page: Literal["", "head", "whole"] = ""

    def __repr__(self) -> str:
        return f"Step({self.name!r}, {self.symbol} = {self.formula}, [{' '.join(self.axes)}])"

    @property
    def per_head(self) -> bool:
        """Whether each head has its own matrix."""
        return self.axes[0] in HEAD_AXES

    @property
    def by_formula(self) -> bool:
        """Whether a `Formula` computes it, rather than the source or a projection."""
        return self.axes == MAP_AXES

    @property
    def row_axis(self) -> str:
        """The vertical axis of the picture."""
        return self.axes[-2]

    @property
    def column_axis(self) -> str:
        """The horizontal axis of the picture."""
        return self.axes[-1]

    def enabled(self, formula: Formula) -> bool:
        """Whether a formula that has scores has this step."""
        return not self.when or bool(getattr(formula, self.when))

    def formula_in(self, formula: Formula) -> str:
        """How a formula computes this step, plain text."""
        return self.formula

    def available(self, layer: LayerView) -> bool:
        """Whether a layer whose formula has this step can compute it, if it is not recorded."""
        return False

    def compute(self, layer: LayerView, head: int | None) -> Tensor:
        """The step of one head [row column], or of all heads."""
        raise NotImplementedError(f"{self.name} cannot be computed: a source records it.")

    def explain(self, work: StepContext[E_co]) -> E_co:
        """The arithmetic of one cell."""
        return work.as_recorded(f"Looked up, not computed: {self.formula}.")

    def python(self, writer: ProgramWriter) -> list[str]:
        """Lines of plain torch that assign the step to a variable of its name."""
        raise NotImplementedError(f"{self.name} is written by the source that records it.")


@dataclass(frozen=True)
class Parameter:
    """A tensor of a layer that is not a step, such as W_Q: its name, axes and meaning."""

    name: str
    symbol: str
    axes: tuple[str, ...]
    meaning: str
    elsewhere: OtherNames = ()


def called(**elsewhere: str) -> OtherNames:
    """The keyword arguments as (library, name) pairs: ``lens`` is TransformerLens, ``n4`` is notebook 4."""
    libraries = {"lens": "TransformerLens", "jax": "JAX", **{f"n{i}": f"notebook {i}" for i in range(1, 6)}}
    return tuple((libraries.get(key, key), name) for key, name in elsewhere.items())


def recorded(name: str) -> str:
    """The explanation of a recorded step whose factors are not known."""
    return f"The {name} as the source recorded it; what made it is not known."
