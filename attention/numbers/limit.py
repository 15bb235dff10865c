"""How far the colours of a difference reach: as far as the largest difference of all layers and heads, so that these compare."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

from attention.errors import ShapeError
from attention.formula import kept
from attention.formula.layer import Layer
from attention.formula.steps import Step, find_step
from attention.formula.trace import Trace
from attention.numbers.compare import Place, axes, compare, largest_of
from attention.numbers.grouping import grouped

MOST_IN_LIMIT = 2**22  # numbers of all layers that are looked at for one limit; of more, the shown matrix has its own


def limit(a: Trace, b: Trace, step: str, at: Place, other: Place) -> tuple[float, bool]:
    """The largest difference of a step in all layers and heads that are shown as pairs, and whether all were looked at.

    Pairs are the same layer and head of both. Where other ones are compared, or all were too many, it is that of the shown pair.
    """
    numbers = tuple(tuple(layer.number for layer in trace.layers) for trace in (a, b))
    place = ("largest difference", step, at, other, numbers)
    formulas = tuple(trace.layer(one.layer).formula for trace, one in ((a, at), (b, other)))
    return kept.matrix(a.layer(at.layer).number, place, formulas, lambda: _limit(a, b, step, at, other))


def _limit(a: Trace, b: Trace, step: str, at: Place, other: Place) -> tuple[float, bool]:
    layers = [
        (ours, theirs) for ours, theirs in zip(a.layers, b.layers, strict=False) if ours.has(step) and theirs.has(step)
    ]
    size = sum(math.prod(layer.shape(step)) for layer, _ in layers)
    whole = all(layer.whole for pair in layers for layer in pair)
    if at.layer != other.layer or size > MOST_IN_LIMIT or not whole:
        return compare(a, b, step, at, other).largest, False
    return max(
        one for ours, theirs in layers for one in _differing(ours, theirs, find_step(step), at.head, other.head)
    ), True


def _differing(a: Layer, b: Layer, step: Step, at: int, other: int) -> Iterator[float]:
    """The largest difference of all heads together, or where pieces are put together of each; of other heads that of these."""
    with suppress(ShapeError):
        rows, columns = axes(a, b, step)
        same = (at == other and a.n_heads == b.n_heads) or not step.per_head
        if same and rows.plain and columns.plain and a.shape(step.name) == b.shape(step.name):
            yield largest_of(b[step.name] - a[step.name])
            return
        pairs = ((one, one) for one in range(a.n_heads)) if same and step.per_head else ((at, other),)
        for ours, theirs in pairs:
            if ours < a.n_heads and theirs < b.n_heads:
                one = grouped(a.matrix(step.name, ours), rows, columns, "a", step)
                yield largest_of(grouped(b.matrix(step.name, theirs), rows, columns, "b", step) - one)
