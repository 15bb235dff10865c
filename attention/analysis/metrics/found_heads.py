"""The heads that look "from X to Y" on one text, ranked, each with the cell that shows it best."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.analysis.metrics.measure import measure
from attention.analysis.patterns import CELLS_PER_SECOND
from attention.core import cache
from attention.core.names import WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

    from attention.analysis.metrics.find_rule import FindRule
    from attention.analysis.patterns import Pattern
    from attention.core.layer import Layer
    from attention.core.trace import Trace

_CELLS_PER_SECOND = 2 * CELLS_PER_SECOND  # one metric instead of fifteen, but the weights are computed as well


class FoundHead(NamedTuple):
    """How much a head looks from X to Y.

    Attributes:
        layer: the layer of the head.
        head: the head.
        value: the weight on Y, the mean over the queries of X that see a Y; NaN if there is none.
        uniform: the same if all visible keys had the same weight: the share of Y by chance.
        queries: the number of these queries.
        query: the query with the largest value, and `key`, its key of Y with the largest weight; −1 if there is none.
        key: see `query`.
        weight: the weight of this cell.
    """

    layer: int
    head: int
    value: float
    uniform: float
    queries: int
    query: int
    key: int
    weight: float


def find_heads(trace: Trace, rule: FindRule) -> tuple[FoundHead, ...]:
    """All heads of a text, those with the largest value first, then those without one; each layer is computed once and cached.

    Raises:
        ConfigError: a regular expression takes too long.
    """
    found = [each for index, layer in enumerate(trace.layers) for each in _of_layer(index, layer, rule)]
    return tuple(sorted(found, key=lambda each: (each.queries == 0, -each.value if each.queries else 0.0)))


def estimated_seconds(trace: Trace, rule: FindRule) -> float:
    """The estimated time of `find_heads` on one thread, without the cached layers."""
    layers = [layer for layer in trace.layers if layer.has(WEIGHTS) and cache.CACHE.get(_key(layer, rule)) is None]
    return sum(math.prod(layer.shape(WEIGHTS)) for layer in layers) / _CELLS_PER_SECOND


def _key(layer: Layer, rule: FindRule) -> tuple[int, Hashable, Hashable]:
    return layer.uid, ("find", rule.text), layer.formula


def _of_layer(index: int, layer: Layer, rule: FindRule) -> list[FoundHead]:
    values, counts, uniform, cells = cache.memoize(*_key(layer, rule), lambda: _measured(layer, rule))
    return [
        FoundHead(index, head, float(values[head, 0]), float(uniform[0]), int(counts[head, 0]), *cells[head])
        for head in range(len(values))
    ]


def _measured(layer: Layer, rule: FindRule) -> tuple[Any, Any, Any, list[tuple[int, int, float]]]:
    best: list[float] = [-math.inf] * layer.n_heads
    cells = [(-1, -1, math.nan)] * layer.n_heads

    def receive(heads: slice, pattern: Pattern, of_queries: Tensor) -> None:
        import torch

        numbers, rows = of_queries.nan_to_num(-math.inf).max(-1)  # the first of equal ones
        mask = rule.cells(pattern) & pattern.visible
        for place, (number, row) in enumerate(zip(numbers.tolist(), rows.tolist(), strict=True)):
            head = heads.start + place
            if number > best[head]:
                of_head = mask.expand(len(numbers), -1, -1)[place, row]
                weights = torch.where(of_head, pattern.weights[place, row], -1)
                key = int(weights.argmax())
                best[head], cells[head] = number, (int(pattern.queries[row]), key, float(weights[key]))

    return *measure(layer, (rule.metric,), receive), cells
