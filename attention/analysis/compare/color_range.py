"""The colour range of a difference: the largest difference over all layers and heads, so that their maps can be compared."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from attention.analysis.compare.align_pool import pool_aligned
from attention.analysis.compare.comparison import HeadIndex, align_axes, compare, largest_absolute
from attention.core import cache
from attention.core.layer import Layer
from attention.core.steps import Step, find_step
from attention.core.trace import Trace
from attention.errors import ShapeError

MAX_NUMBERS = 2**22  # numbers in all layers; beyond that, the range covers the displayed matrix only


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
    if at.layer != other.layer or size > MAX_NUMBERS or not all_materialized:
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
