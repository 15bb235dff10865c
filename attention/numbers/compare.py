"""What is different between two states, and where: B − A of a step, cell by cell, with the cells of one that are the other's.

    from attention.numbers import compare
    found = compare.compare(a, b, "weights")   # two traces
    found.matrix                               # B − A [row column]; nan where a row or column has no partner

Pieces that one of the two has as a whole are put together: weights are summed over keys and averaged over queries.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from attention.errors import MissingError, ShapeError
from attention.formula.facts import ends
from attention.formula.layer import Layer
from attention.formula.names import WEIGHTS
from attention.formula.steps import Step, find_step
from attention.formula.trace import Trace
from attention.numbers.alignment import Alignment, aligned
from attention.numbers.grouping import Side, grouped

if TYPE_CHECKING:
    from torch import Tensor

ROUNDING = 32 * 2.0**-23
"""How far apart numbers may be, of the largest, and be called the same: what single precision may leave of two ways to one number."""

MOST_CELLS = 2**23  # of one difference: two texts that share nothing have four times those of each


class Place(NamedTuple):
    """Which matrix of a step: of which layer, of which head."""

    layer: int = 0
    head: int = 0


FIRST = Place()


class Change(NamedTuple):
    """One cell of a difference: its row and its column there, and B − A."""

    row: int
    column: int
    value: float


@dataclass(frozen=True, eq=False)
class Difference:
    """One matrix of a step in A and in B, on axes that have the tokens of both.

    Attributes:
        step: the step.
        rows: whose rows they are, `columns` whose columns.
        a: the numbers of A [row column], pieces put together; nan where A has no such row or column.
        b: those of B.
        hidden: cells that the masks of both hide, or of scores one of them; None where nothing is.
    """

    step: Step
    rows: Alignment
    columns: Alignment
    a: Tensor
    b: Tensor
    hidden: Tensor | None

    @cached_property
    def matrix(self) -> Tensor:
        """B − A [row column]; nan where there is no such number."""
        found = self.b - self.a
        return found if self.hidden is None else found.masked_fill_(self.hidden, float("nan"))

    @cached_property
    def largest(self) -> float:
        """The largest size of a difference; 0 where there is no number."""
        return largest_of(self.matrix)

    @cached_property
    def rounding(self) -> float:
        """What may be between two numbers that are the same."""
        both = [end for part in (self.a, self.b) for end in ends(part) or ()]
        return ROUNDING * max(map(abs, both), default=0.0)

    @property
    def identical(self) -> bool:
        """Whether nothing differs but by rounding."""
        return self.largest <= self.rounding

    @property
    def said(self) -> str:
        """That nothing differs, in words; empty where something does."""
        if not self.matrix.isfinite().any():
            return "no cell of A has a partner in B"
        size = re.sub(r"e-0*", "e-", f"{self.largest:.0e}") if self.largest else "0"
        return f"identical to rounding (largest difference {size})" if self.identical else ""

    def changes(self, most: int = 5) -> list[Change]:
        """The cells that differ most, the largest first; none where all is identical."""
        if self.identical:
            return []
        flat = self.matrix.nan_to_num(nan=0.0).flatten()
        found = flat.abs().topk(min(most, len(flat))).indices.tolist()
        wide = self.matrix.shape[1]
        return [Change(at // wide, at % wide, value) for at in found if (value := float(flat[at]))]


def compare(a: Trace, b: Trace, step: str = WEIGHTS, at: Place = FIRST, other: Place | None = None) -> Difference:
    """B − A of a step: of the layer and head `at` in A, and `other` in B (the same where none is given).

    Raises:
        MissingError: one of them has no such step, layer or head.
        ShapeError: their columns are not the same: d_k is 64 and 32; or there are more than `MOST_CELLS` cells.
    """
    found, other = find_step(step), at if other is None else other
    ours, theirs = a.layer(at.layer), b.layer(other.layer)
    for name, layer in (("A", ours), ("B", theirs)):
        if not layer.has(step):
            raise MissingError(
                f"{name} has no {step}, so there is no difference: choose another step, or another source."
            )
    rows, columns = axes(ours, theirs, found)
    one = grouped(ours.matrix(step, at.head), rows, columns, "a", found)
    two = grouped(theirs.matrix(step, other.head), rows, columns, "b", found)
    hidden = _both(
        _hidden(ours.of(at.head), found, rows, columns, "a"),
        _hidden(theirs.of(other.head), found, rows, columns, "b"),
        found,
    )
    return Difference(found, rows, columns, one, two, hidden)


def axes(a: Layer, b: Layer, step: Step) -> tuple[Alignment, Alignment]:
    """Which rows and which columns of a step are the same in two layers.

    Raises:
        ShapeError: an axis without tokens has two sizes, or there are too many cells.
    """
    found = []
    for side, axis in enumerate(step.axes[-2:]):
        ours, theirs = a.labels_of(axis), b.labels_of(axis)
        if ours is not None and theirs is not None:
            found.append(aligned(ours, theirs))
            continue
        sizes = [layer.shape(step.name)[-2 + side] for layer in (a, b)]
        if sizes[0] != sizes[1]:
            raise ShapeError(
                f"{step.name} has {sizes[0]} columns ({axis}) in A and {sizes[1]} in B: columns of other sizes have no "
                "partners, so there is no difference. Choose the same size, or a step from query to key."
            )
        found.append(Alignment.numbered(sizes[0]))
    rows, columns = found
    if (size := len(rows.groups) * len(columns.groups)) > MOST_CELLS:
        raise ShapeError(
            f"B − A has at most {MOST_CELLS:,} cells, with the tokens of both; got {size:,}: choose shorter texts, or texts that share more."
        )
    return rows, columns


def largest_of(difference: Tensor) -> float:
    """The largest size of its finite numbers."""
    low, high = ends(difference) or (0.0, 0.0)
    return max(-low, high, 0.0)


def _hidden(layer: Layer, step: Step, rows: Alignment, columns: Alignment, side: Side) -> Tensor | None:
    """Which cells of a step the mask hides; of several that are put together all."""
    if not layer.has("mask") or not step.masked:
        return None
    hidden = ~layer["mask"]
    return hidden if rows.plain and columns.plain else grouped(hidden.float(), rows, columns, side) == 1


def _both(one: Tensor | None, other: Tensor | None, step: Step) -> Tensor | None:
    """Cells without a difference: a hidden score is no number; a hidden weight is 0, which may be compared with one that is not."""
    if step.kind == "probability":
        return None if one is None or other is None else one & other
    return one if other is None else other if one is None else one | other
