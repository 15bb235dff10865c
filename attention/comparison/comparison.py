"""The difference B − A of a step between two states, cell by cell, on aligned axes; in words, and as a limit of colours.

    from attention.comparison import compare
    difference = compare(a, b, "weights")   # two traces
    difference.matrix                               # B − A [row column]; nan where a row or column has no partner

Partners share a row or column, and tokens without one are gaps. Subword tokens that the other state has as one token are pooled: weights are summed over
keys and averaged over queries.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

from attention.base import cache
from attention.base.errors import MissingError, ShapeError
from attention.base.printed import Displayed, Printed, bracketed, format_number, number, with_fewest_digits
from attention.base.tokens import label
from attention.explanation import tables
from attention.explanation.alignment import Alignment, align, position_labels, position_names, without_partner
from attention.explanation.explanation import Explanation, Term, tolerance_of
from attention.formula.names import WEIGHTS, Cell
from attention.formula.steps import MAP_AXES, Step, find_step
from attention.trace.layer import Layer
from attention.trace.stats import finite_range
from attention.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

_Side = Literal["a", "b"]

_ROUNDING = 32 * 2.0**-23
"""The tolerance, relative to the largest number, within which two numbers count as equal: the noise of single precision."""

_MAX_CELLS = 2**23  # cells of one difference; two texts without shared tokens have four times the cells of each
_MAX_NUMBERS = 2**22  # numbers in all layers; beyond that, the range covers the displayed matrix only


class HeadIndex(NamedTuple):
    """The layer and head of a matrix."""

    layer: int = 0
    head: int = 0


_FIRST_HEAD = HeadIndex()


class _CellChange(NamedTuple):
    """One cell of a difference: its row and column in the difference, and B − A."""

    row: int
    column: int
    value: float


class _ComparedTraces(NamedTuple):
    """The two traces of a difference, and the layer and head of each."""

    a: Trace
    b: Trace
    at: HeadIndex
    other: HeadIndex


class _Axis(NamedTuple):
    """The rows or the columns of a difference, with the tokens of A and of B; None where the axis has none."""

    name: str
    alignment: Alignment
    a: tuple[str, ...] | None
    b: tuple[str, ...] | None


@dataclass(frozen=True, eq=False, repr=False)
class Difference(Displayed):
    """One matrix of a step in A and in B, on aligned axes.

    Attributes:
        rows: the alignment of the rows; `columns` that of the columns.
        a: the numbers of A [row column], pooled; nan where A has no such row or column.
        b: the numbers of B.
        hidden: the cells that both masks hide, or for scores either of them; None if there are none.
        traces: what was compared, for a picture of it.
    """

    step: Step
    rows: Alignment
    columns: Alignment
    a: Tensor
    b: Tensor
    hidden: Tensor | None
    traces: _ComparedTraces

    def __repr__(self) -> str:
        rows, columns = self.matrix.shape
        at, other = self.traces.at, self.traces.other
        place = f" of L{at.layer} H{at.head}" + (f" and L{other.layer} H{other.head}" if other != at else "")
        changes = [f"[{change.row}, {change.column}] {change.value:+.4g}" for change in self.largest_changes()]
        words = self.identity_words or f"largest changes {', '.join(changes)}"
        notes = "".join(f"; {note}" for note in self.notes)
        return f"Difference({self.step.name}, B − A{place}; {rows} × {columns}; {words}{notes})"

    @property
    def notes(self) -> list[str]:
        """Sentences on how the rows and columns were aligned, and which tokens match none of the other state; empty for equal tokens."""
        sentences = []
        for name, axis in zip(("Rows", "Columns"), self.axes, strict=True):
            if not axis.alignment.description or axis.a is None or axis.b is None:
                continue
            lone = without_partner(axis.alignment, axis.a, axis.b)
            without = f" Without a partner: {lone}." if lone else ""
            sentences.append(f"{name}: {axis.alignment.description}.{without}")
        same = len(sentences) == 2 and sentences[0].removeprefix("Rows") == sentences[1].removeprefix("Columns")
        return [f"Rows and columns{sentences[0].removeprefix('Rows')}"] if same else sentences

    @cached_property
    def matrix(self) -> Tensor:
        """B − A [row column]; nan where it is undefined."""
        difference = self.b - self.a
        return difference if self.hidden is None else difference.masked_fill_(self.hidden, float("nan"))

    def frame(self) -> pd.DataFrame:
        """B − A as a table with the rows of its map, and the places of patches as in `tables.frame`; empty where a row or column has no partner, or is hidden."""
        import pandas as pd

        labels = [
            position_labels(axis.alignment, axis.a, axis.b, escape=False)
            if axis.a and axis.b
            else [*map(str, range(len(axis.alignment.groups)))]
            for axis in self.axes
        ]
        index, columns = (pd.Index(each, name=axis.name) for each, axis in zip(labels, self.axes, strict=True))
        rows = self.axes[0]
        tokens = [
            (rows.a[group.a[0]] if group.a[0] < group.a[1] else rows.b[group.b[0]]) if rows.a and rows.b else ""
            for group in self.rows.groups
        ]
        return tables.with_places(pd.DataFrame(self.matrix.numpy(), index=index, columns=columns), tokens)

    @cached_property
    def axes(self) -> tuple[_Axis, _Axis]:
        """The rows and the columns, with their tokens in both states."""
        a, b = self.traces.a[self.traces.at.layer], self.traces.b[self.traces.other.layer]
        rows, columns = (
            _Axis(name, alignment, a.labels_of(name), b.labels_of(name))
            for name, alignment in zip(self.step.axes[-2:], (self.rows, self.columns), strict=True)
        )
        return rows, columns

    @cached_property
    def largest(self) -> float:
        """The largest absolute difference; 0 if there is none."""
        return _largest_absolute(self.matrix)

    @cached_property
    def tolerance(self) -> float:
        """The largest difference that rounding may explain."""
        extremes = [end for part in (self.a, self.b) for end in finite_range(part) or ()]
        return _ROUNDING * max(map(abs, extremes), default=0.0)

    @property
    def is_identical(self) -> bool:
        """Whether A and B are equal up to rounding."""
        return self.largest <= self.tolerance

    @property
    def identity_words(self) -> str:
        """A sentence if nothing differs; empty otherwise."""
        if not self.matrix.isfinite().any():
            return "no cell of A has a partner in B"
        size = re.sub(r"e-0*", "e-", f"{self.largest:.0e}") if self.largest else "0"
        return f"identical to rounding (largest difference {size})" if self.is_identical else ""

    def largest_changes(self, most: int = 5) -> list[_CellChange]:
        """The cells that differ most, by decreasing size; none if A and B are identical."""
        if self.is_identical:
            return []
        flat = self.matrix.nan_to_num(nan=0.0).flatten()
        largest = flat.abs().argsort(descending=True, stable=True)[:most].tolist()
        width = self.matrix.shape[1]
        return [_CellChange(index // width, index % width, value) for index in largest if (value := float(flat[index]))]


def compare(
    a: Trace, b: Trace, step: str = WEIGHTS, at: HeadIndex = _FIRST_HEAD, other: HeadIndex | None = None
) -> Difference:
    """B − A of a step: layer and head `at` in A, and `other` in B (by default the same).

    Raises:
        MissingError: A or B has no such step, layer or head.
        ShapeError: the columns cannot be aligned, such as d_k 64 and 32, or there are more than `_MAX_CELLS` cells.
    """
    definition, other = find_step(step), at if other is None else other
    layer_a, layer_b = a.layer(at.layer), b.layer(other.layer)
    for name, layer in (("A", layer_a), ("B", layer_b)):
        if not layer.has(step):
            raise MissingError(
                f"{name} has no {step}, so there is no difference: choose another step, or another source."
            )
    rows, columns = _align_axes(layer_a, layer_b, definition)
    matrix_a = _pool_aligned(layer_a.matrix(step, at.head), rows, columns, "a", definition)
    matrix_b = _pool_aligned(layer_b.matrix(step, other.head), rows, columns, "b", definition)
    hidden = _combine_hidden(
        _hidden(layer_a.for_head(at.head), definition, rows, columns, "a"),
        _hidden(layer_b.for_head(other.head), definition, rows, columns, "b"),
        definition,
    )
    return Difference(definition, rows, columns, matrix_a, matrix_b, hidden, _ComparedTraces(a, b, at, other))


def _align_axes(a: Layer, b: Layer, step: Step) -> tuple[Alignment, Alignment]:
    alignments = []
    for side, axis in enumerate(step.axes[-2:]):
        tokens_a, tokens_b = a.labels_of(axis), b.labels_of(axis)
        if tokens_a is not None and tokens_b is not None:
            alignments.append(align(tokens_a, tokens_b))
            continue
        sizes = [layer.shape(step.name)[-2 + side] for layer in (a, b)]
        if sizes[0] != sizes[1]:
            raise ShapeError(
                f"{step.name} has {sizes[0]} columns ({axis}) in A and {sizes[1]} in B: axes of different sizes have no "
                "partners, so there is no difference. Choose the same size, or a step from query to key."
            )
        alignments.append(Alignment.identity(sizes[0]))
    rows, columns = alignments
    if (size := len(rows.groups) * len(columns.groups)) > _MAX_CELLS:
        raise ShapeError(
            f"B − A has at most {_MAX_CELLS:,} cells, counting the tokens of both; got {size:,}: choose shorter texts, or texts that share more."
        )
    return rows, columns


def _pool_aligned(matrix: Tensor, rows: Alignment, columns: Alignment, side: _Side, step: Step | None = None) -> Tensor:
    """A matrix [row column] on axes aligned between two states: nan in gaps, and where several cells cannot be pooled.

    Weights are summed over keys and averaged over queries; other steps with query rows are averaged over them. Nothing else
    is pooled: a sum of scores, or of rows of K, has no meaning. Without a `step` the matrix is a mask and is averaged.
    """
    if rows.is_identity and columns.is_identity:
        return matrix
    means = step is None
    adds = step is not None and step.axes == MAP_AXES and step.kind == "probability"
    keyed = step is not None and step.axes[-2] == "key_pos"
    pooled = _along(matrix, columns, side, summed=adds, single_only=not (adds or means))
    return _along(pooled.T, rows, side, summed=False, single_only=keyed).T


def _along(matrix: Tensor, alignment: Alignment, side: _Side, summed: bool, single_only: bool) -> Tensor:
    """The columns of a matrix [other column] pooled by group; with `single_only` groups of several tokens become nan."""
    import torch

    if alignment.is_identity:
        return matrix
    spans = [group.a if side == "a" else group.b for group in alignment.groups]
    starts = torch.tensor([first for first, _ in spans])
    counts = torch.tensor([stop - first for first, stop in spans])
    pooled = torch.full((len(matrix), len(spans)), float("nan"), dtype=matrix.dtype)
    single = counts == 1
    pooled[:, single] = matrix[:, starts[single]]
    for index in torch.nonzero(counts > 1).flatten().tolist():
        part = matrix[:, slice(*spans[index])]
        if not single_only:
            pooled[:, index] = part.sum(dim=1) if summed else part.mean(dim=1)
    several = torch.tensor([single_only and not group.is_one_to_one for group in alignment.groups])
    pooled[:, several] = float("nan")
    return pooled


def _largest_absolute(difference: Tensor) -> float:
    """The largest absolute value of the finite numbers; 0 if there are none."""
    low, high = finite_range(difference) or (0.0, 0.0)
    return max(-low, high, 0.0)


def _hidden(layer: Layer, step: Step, rows: Alignment, columns: Alignment, side: _Side) -> Tensor | None:
    """The cells of a step that the mask hides; a pooled cell is hidden if all its parts are."""
    if not layer.has("mask") or not step.masked:
        return None
    hidden = ~layer["mask"]
    return (
        hidden if rows.is_identity and columns.is_identity else _pool_aligned(hidden.float(), rows, columns, side) == 1
    )


def _combine_hidden(a: Tensor | None, b: Tensor | None, step: Step) -> Tensor | None:
    """The cells without a difference: a score that either side hides has no number, but a hidden weight is 0 and can be compared."""
    if step.kind == "probability":
        return None if a is None or b is None else a & b
    return b if a is None else a if b is None else a | b


def describe_change(difference: Difference, change: _CellChange) -> str:
    """A change in words: "`it` → `animal` +0.21"; a column without a token is named by its index, a repeated token with its position."""
    row, column = map(_named, difference.axes, (change.row, change.column))
    sign = "+" if change.value > 0 else ""
    return f"{row} → {column} {sign}{_short(change.value)}"


def _named(axis: _Axis, index: int) -> str:
    if axis.a is None or axis.b is None:
        return f"{axis.name} {index}"
    alignment, names = axis.alignment, position_names(axis.alignment, axis.a, axis.b)
    token = label(names[index], 40, escape=False)
    code = f"`{token}`" if "`" not in token else f"`` {token} ``"
    if names.count(names[index]) == 1:
        return code
    group = alignment.groups[index]
    return f"{code} ({group.a[0] if alignment.is_identity else group.place})"


def _short(value: float) -> str:
    """A number with two decimals, or with as many digits as a smaller one needs."""
    return f"{value:.2f}".replace("-", "−") if abs(value) >= 0.005 else format_number(value)


def explain_difference(difference: Difference, cell: Cell) -> Explanation | None:
    """The difference at a cell of A: the number of B minus that of A; None if there is none."""
    row, column = difference.rows.group_index("a", cell.row), difference.columns.group_index("a", cell.column)
    value, value_b, value_a = (
        float(matrix[row, column]) + 0.0 for matrix in (difference.matrix, difference.b, difference.a)
    )
    if math.isnan(value):
        return None

    def subtraction(digits: int) -> Printed:
        minuend, subtrahend = number(value_b, digits), bracketed(value_a, digits)
        return Printed(
            f"{minuend.tex} - {subtrahend.tex}", f"{minuend.text} − {subtrahend.text}", minuend.value - subtrahend.value
        )

    fitted, name = with_fewest_digits(subtraction, value, 3), f"{difference.step.name}, B − A"
    several = []
    for word, group in (("mean", difference.rows.groups[row]), ("sum", difference.columns.groups[column])):
        sizes = [
            f"{stop - first} in {name}" for name, (first, stop) in zip("AB", group, strict=True) if stop - first > 1
        ]
        several += [f"{word} of {', '.join(sizes)} pieces"] if sizes else []
    words = f"The number in B minus the number in A{': ' + ' and '.join(several) if several else ''}."
    lines = (rf"B - A &= {fitted.printed.tex}", rf"&{'=' if fitted.agrees else chr(92) + 'approx'} {number(value).tex}")
    step = replace(difference.step, kind="signed")
    return Explanation(
        step, replace(cell, step=name), value, "sum", (Term("B", value_b), Term("-A", -value_a)), lines, words,
        short=fitted.printed.text, sign="=" if fitted.agrees else "≈", tolerance=tolerance_of(difference.matrix),
    )  # fmt: skip


class _LargestDifference(NamedTuple):
    """The largest difference of a step, whether it covers all layers (`covers_all_layers`), and the layer and head `at` which it occurs."""

    value: float
    covers_all_layers: bool
    at: HeadIndex


def color_limit(a: Trace, b: Trace, step: str, at: HeadIndex, other: HeadIndex) -> _LargestDifference:
    """The largest difference of a step over all pairs of layers and heads.

    A pair has the same layer and head in both states. If different layers are compared, or there are too many numbers,
    only the displayed pair counts.
    """
    uids = tuple(tuple(layer.uid for layer in trace.layers) for trace in (a, b))
    key = ("largest difference", step, at, other, uids)
    formulas = tuple(trace.layer(place.layer).formula for trace, place in ((a, at), (b, other)))
    return cache.memoize(a.layer(at.layer).uid, key, formulas, lambda: _limit(a, b, step, at, other))


def _limit(a: Trace, b: Trace, step: str, at: HeadIndex, other: HeadIndex) -> _LargestDifference:
    layers = [
        (index, *pair)
        for index, pair in enumerate(zip(a.layers, b.layers, strict=False))
        if all(layer.has(step) for layer in pair)
    ]
    size = sum(math.prod(layer.shape(step)) for _, layer, _ in layers)
    all_materialized = all(layer.materialize_all_heads for _, *pair in layers for layer in pair)
    if at.layer != other.layer or size > _MAX_NUMBERS or not all_materialized:
        return _LargestDifference(compare(a, b, step, at, other).largest, False, at)
    return max(
        (
            _LargestDifference(value, True, HeadIndex(index, head))
            for index, layer_a, layer_b in layers
            for value, head in _largest_by_head(layer_a, layer_b, find_step(step), at.head, other.head)
        ),
        key=lambda largest: largest.value,
    )


def _largest_by_head(a: Layer, b: Layer, step: Step, at: int, other: int) -> Iterator[tuple[float, int]]:
    """The largest difference of each head, with its index; for a step that heads share, or for different heads, of this pair."""
    with suppress(ShapeError):
        rows, columns = _align_axes(a, b, step)
        same = (at == other and a.n_heads == b.n_heads) or not step.per_head
        if same and rows.is_identity and columns.is_identity and a.shape(step.name) == b.shape(step.name):
            change = b[step.name] - a[step.name]
            if step.per_head:
                yield from ((_largest_absolute(matrix), head) for head, matrix in enumerate(change))
            else:
                yield _largest_absolute(change), at
            return
        pairs = ((head, head) for head in range(a.n_heads)) if same and step.per_head else ((at, other),)
        for head_a, head_b in pairs:
            if head_a < a.n_heads and head_b < b.n_heads:
                matrix_a = _pool_aligned(a.matrix(step.name, head_a), rows, columns, "a", step)
                matrix_b = _pool_aligned(b.matrix(step.name, head_b), rows, columns, "b", step)
                yield _largest_absolute(matrix_b - matrix_a), head_a
