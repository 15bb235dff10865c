"""How far the colours of a difference reach: as far as the largest difference of all layers and heads, so that these compare."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from attention.errors import ShapeError
from attention.formula import kept
from attention.formula.layer import Layer
from attention.formula.steps import Step, find_step
from attention.formula.trace import Trace
from attention.numbers.compare import Place, axes, compare, largest_of
from attention.numbers.grouping import grouped

MOST_IN_LIMIT = 2**22  # numbers of all layers that are looked at for one limit; of more, the shown matrix has its own


class Largest(NamedTuple):
    """The largest difference of a step, whether it is that `of_all` layers, and `at` which of them, and which head, it is."""

    value: float
    of_all: bool
    at: Place


def limit(a: Trace, b: Trace, step: str, at: Place, other: Place) -> Largest:
    """The largest difference of a step in all layers and heads that are shown as pairs.

    Pairs are the same layer and head of both. Where other ones are compared, or all were too many, it is that of the shown pair.
    """
    numbers = tuple(tuple(layer.number for layer in trace.layers) for trace in (a, b))
    place = ("largest difference", step, at, other, numbers)
    formulas = tuple(trace.layer(one.layer).formula for trace, one in ((a, at), (b, other)))
    return kept.matrix(a.layer(at.layer).number, place, formulas, lambda: _limit(a, b, step, at, other))


def _limit(a: Trace, b: Trace, step: str, at: Place, other: Place) -> Largest:
    layers = [
        (index, *pair)
        for index, pair in enumerate(zip(a.layers, b.layers, strict=False))
        if all(layer.has(step) for layer in pair)
    ]
    size = sum(math.prod(layer.shape(step)) for _, layer, _ in layers)
    whole = all(layer.whole for _, *pair in layers for layer in pair)
    if at.layer != other.layer or size > MOST_IN_LIMIT or not whole:
        return Largest(compare(a, b, step, at, other).largest, False, at)
    return max(
        (
            Largest(value, True, Place(index, head))
            for index, ours, theirs in layers
            for value, head in _differing(ours, theirs, find_step(step), at.head, other.head)
        ),
        key=lambda one: one.value,
    )


def _differing(a: Layer, b: Layer, step: Step, at: int, other: int) -> Iterator[tuple[float, int]]:
    """The largest difference of each head, and which it is; of a step that heads share, or of other heads, that of these."""
    with suppress(ShapeError):
        rows, columns = axes(a, b, step)
        same = (at == other and a.n_heads == b.n_heads) or not step.per_head
        if same and rows.plain and columns.plain and a.shape(step.name) == b.shape(step.name):
            less = b[step.name] - a[step.name]
            yield from (
                ((largest_of(one), head) for head, one in enumerate(less))
                if step.per_head
                else [(largest_of(less), at)]
            )
            return
        pairs = ((one, one) for one in range(a.n_heads)) if same and step.per_head else ((at, other),)
        for ours, theirs in pairs:
            if ours < a.n_heads and theirs < b.n_heads:
                one = grouped(a.matrix(step.name, ours), rows, columns, "a", step)
                yield largest_of(grouped(b.matrix(step.name, theirs), rows, columns, "b", step) - one), ours
