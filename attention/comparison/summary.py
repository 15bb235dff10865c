"""A difference in words: its largest cells, and the tokens without a partner; and the largest difference over all layers and heads, up to which colours reach."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import replace
from typing import NamedTuple

from attention.base import cache
from attention.base.errors import ShapeError
from attention.base.printed import Printed, bracketed, format_number, number, with_fewest_digits
from attention.base.tokens import label
from attention.comparison.comparison import (
    CellChange,
    Difference,
    HeadIndex,
    align_axes,
    compare,
    largest_absolute,
    pool_aligned,
)
from attention.explanation.alignment import Alignment, Group, position_names
from attention.explanation.explanation import Explanation, Term, tolerance_of
from attention.formula.names import Cell
from attention.formula.steps import Step, find_step
from attention.sources.repeated_run import MAX_NAMED
from attention.trace.layer import Layer
from attention.trace.trace import Trace

_MAX_NUMBERS = 2**22  # numbers in all layers; beyond that, the range covers the displayed matrix only


def describe_change(difference: Difference, a: Layer, b: Layer, change: CellChange) -> str:
    """A change in words: "`it` → `animal` +0.21"; a column without a token is named by its index, a repeated token with its position."""
    sides = (
        _named(a, b, axis, alignment, index)
        for axis, alignment, index in zip(
            difference.step.axes[-2:], (difference.rows, difference.columns), (change.row, change.column), strict=True
        )
    )
    row, column = sides
    sign = "+" if change.value > 0 else ""
    return f"{row} → {column} {sign}{_short(change.value)}"


def _unmatched_tokens(alignment: Alignment, a: tuple[str, ...], b: tuple[str, ...]) -> tuple[list[str], list[str]]:
    """The tokens of A and of B without a partner, with their positions: "3 cat"."""
    lone = [group for group in alignment.groups if not group.has_partners]
    positions_a, positions_b = (
        ([position for span in spans for position in range(*span)] for spans in zip(*lone, strict=True))
        if lone
        else ((), ())
    )
    return _placed(positions_a, a), _placed(positions_b, b)


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
    several = [
        f"{word} of {', '.join(sizes)} pieces"
        for word, axis, index in (("mean", difference.rows, row), ("sum", difference.columns, column))
        if (sizes := _sizes(axis.groups[index]))
    ]
    words = f"The number in B minus the number in A{': ' + ' and '.join(several) if several else ''}."
    lines = (rf"B - A &= {fitted.printed.tex}", rf"&{'=' if fitted.agrees else chr(92) + 'approx'} {number(value).tex}")
    step = replace(difference.step, kind="signed")
    return Explanation(
        step,
        replace(cell, step=name),
        value,
        "sum",
        (Term("B", value_b), Term("-A", -value_a)),
        lines,
        words,
        short=fitted.printed.text,
        sign="=" if fitted.agrees else "≈",
        tolerance=tolerance_of(difference.matrix),
    )


def _sizes(group: Group) -> list[str]:
    """The numbers of subword tokens in a group, if there are several: "2 in A"."""
    return [f"{stop - first} in {name}" for name, (first, stop) in zip("AB", group, strict=True) if stop - first > 1]


def alignment_notes(difference: Difference, a: Layer, b: Layer) -> list[str]:
    """Sentences on how the two axes were aligned, and which tokens have no partner."""
    sentences = []
    axes = zip(difference.step.axes[-2:], (difference.rows, difference.columns), strict=True)
    for name, (axis, alignment) in zip(("Rows", "Columns"), axes, strict=True):
        tokens_a, tokens_b = a.labels_of(axis), b.labels_of(axis)
        if not alignment.description or tokens_a is None or tokens_b is None:
            continue
        lone = zip("AB", _unmatched_tokens(alignment, tokens_a, tokens_b), strict=True)
        parts = [
            f"{', '.join(tokens[:MAX_NAMED])}{f' and {len(tokens) - MAX_NAMED} more' if len(tokens) > MAX_NAMED else ''} in {state}"
            for state, tokens in lone
            if tokens
        ]
        sentences.append(
            f"{name}: {alignment.description}." + (f" Without a partner: {'; '.join(parts)}." if parts else "")
        )
    same = len(sentences) == 2 and sentences[0].removeprefix("Rows") == sentences[1].removeprefix("Columns")
    return [f"Rows and columns{sentences[0].removeprefix('Rows')}"] if same else sentences


def _named(a: Layer, b: Layer, axis: str, alignment: Alignment, index: int) -> str:
    tokens_a, tokens_b = a.labels_of(axis), b.labels_of(axis)
    if tokens_a is None or tokens_b is None:
        return f"{axis} {index}"
    all_names = position_names(alignment, tokens_a, tokens_b)
    token = label(all_names[index], 40, escape=False)
    code = f"`{token}`" if "`" not in token else f"`` {token} ``"
    return (
        code
        if all_names.count(all_names[index]) == 1
        else f"{code} ({alignment.groups[index].a[0] if alignment.is_identity else alignment.groups[index].place})"
    )


def _short(value: float) -> str:
    """A number with two decimals, or with as many digits as a smaller one needs."""
    return f"{value:.2f}".replace("-", "−") if abs(value) >= 0.005 else format_number(value)


def _placed(positions: Iterable[int], tokens: tuple[str, ...]) -> list[str]:
    return [f"{position} {label(tokens[position], 40, escape=False)}" for position in positions]


class LargestDifference(NamedTuple):
    """The largest difference of a step, whether it covers all layers (`covers_all_layers`), and the layer and head `at` which it occurs."""

    value: float
    covers_all_layers: bool
    at: HeadIndex


def color_limit(a: Trace, b: Trace, step: str, at: HeadIndex, other: HeadIndex) -> LargestDifference:
    """The largest difference of a step over all pairs of layers and heads.

    A pair has the same layer and head in both states. If different layers are compared, or there are too many numbers,
    only the displayed pair counts.
    """
    uids = tuple(tuple(layer.uid for layer in trace.layers) for trace in (a, b))
    key = ("largest difference", step, at, other, uids)
    formulas = tuple(trace.layer(place.layer).formula for trace, place in ((a, at), (b, other)))
    return cache.memoize(a.layer(at.layer).uid, key, formulas, lambda: _limit(a, b, step, at, other))


def _limit(a: Trace, b: Trace, step: str, at: HeadIndex, other: HeadIndex) -> LargestDifference:
    layers = [
        (index, *pair)
        for index, pair in enumerate(zip(a.layers, b.layers, strict=False))
        if all(layer.has(step) for layer in pair)
    ]
    size = sum(math.prod(layer.shape(step)) for _, layer, _ in layers)
    all_materialized = all(layer.materialize_all_heads for _, *pair in layers for layer in pair)
    if at.layer != other.layer or size > _MAX_NUMBERS or not all_materialized:
        return LargestDifference(compare(a, b, step, at, other).largest, False, at)
    return max(
        (
            LargestDifference(value, True, HeadIndex(index, head))
            for index, layer_a, layer_b in layers
            for value, head in _largest_by_head(layer_a, layer_b, find_step(step), at.head, other.head)
        ),
        key=lambda largest: largest.value,
    )


def _largest_by_head(a: Layer, b: Layer, step: Step, at: int, other: int) -> Iterator[tuple[float, int]]:
    """The largest difference of each head, with its index; for a step that heads share, or for different heads, of this pair."""
    with suppress(ShapeError):
        rows, columns = align_axes(a, b, step)
        same = (at == other and a.n_heads == b.n_heads) or not step.per_head
        if same and rows.is_identity and columns.is_identity and a.shape(step.name) == b.shape(step.name):
            change = b[step.name] - a[step.name]
            if step.per_head:
                yield from ((largest_absolute(matrix), head) for head, matrix in enumerate(change))
            else:
                yield largest_absolute(change), at
            return
        pairs = ((head, head) for head in range(a.n_heads)) if same and step.per_head else ((at, other),)
        for head_a, head_b in pairs:
            if head_a < a.n_heads and head_b < b.n_heads:
                matrix_a = pool_aligned(a.matrix(step.name, head_a), rows, columns, "a", step)
                matrix_b = pool_aligned(b.matrix(step.name, head_b), rows, columns, "b", step)
                yield largest_absolute(matrix_b - matrix_a), head_a
