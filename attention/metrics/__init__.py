"""Metrics of every head on one text; each metric is declared once, in `metric`.

    from attention import metrics
    table = metrics.of(trace)
    table.values, table.counts     # [layer head metric]; NaN and 0 where a metric is undefined on this text

Most metrics are one number per query, averaged over the queries for which it is defined. Others are one number per head, from the parameters
of the model; `of_layer`, which sees one layer and no model, leaves these NaN. Users add their own with a rule:

    metrics.find_heads(trace, metrics.FindRule.parse('from "it" to [animal, street]'))[0]   # the head that looks so most
"""

from __future__ import annotations

import math
from typing import Any

from attention.base import cache
from attention.formula.names import WEIGHTS
from attention.metrics.find_rule import FindRule, find_heads
from attention.metrics.metric import Metric, all_metrics, chips, find, measure, names_of
from attention.metrics.patterns import CELLS_PER_SECOND
from attention.metrics.sinks import sinks
from attention.metrics.table import MetricsTable, similar_heads
from attention.trace.layer import Layer
from attention.trace.trace import Trace

__all__ = [
    "FindRule",
    "Metric",
    "MetricsTable",
    "all_metrics",
    "chips",
    "estimated_seconds",
    "find",
    "find_heads",
    "is_cached",
    "names_of",
    "of",
    "of_layer",
    "similar_heads",
    "sinks",
]


def of(trace: Trace) -> MetricsTable:
    """Every metric of every head on this text, [layer head metric]; each layer is computed once and cached.

    The weights are computed a few heads at a time and not stored.
    """
    import numpy as np  # at first use, like torch: the names of the metrics need neither

    layers = [of_layer(layer) for layer in trace.layers]
    n_heads = tuple(len(values) for values, _, _ in layers)
    declared = all_metrics().values()
    shape = (len(layers), max(n_heads, default=0), len(declared))
    table = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64), np.full((len(layers), len(declared)), np.nan)
    for i, (values, counts, uniform) in enumerate(layers):
        table[0][i, : len(values)], table[1][i, : len(values)], table[2][i] = values, counts, uniform
    for index, metric in enumerate(declared):
        numbers = metric.of_heads(trace) if metric.compute is None else None
        if numbers is not None and numbers.shape == shape[:2]:
            table[0][..., index] = numbers.double().numpy()
            table[1][..., index] = np.isfinite(table[0][..., index])
    return MetricsTable(*table, n_heads)


def of_layer(layer: Layer) -> tuple[Any, Any, Any]:
    """The metrics of one layer: values and counts [head metric], and the values under uniform attention [metric]."""
    return cache.memoize(layer.uid, "metrics", layer.formula, lambda: measure(layer, tuple(all_metrics().values())))


def is_cached(layer: Layer) -> bool:
    """Whether the metrics of a layer are cached."""
    return cache.CACHE.get((layer.uid, "metrics", layer.formula)) is not None


def estimated_seconds(trace: Trace) -> float:
    """The estimated time of `of` on one thread, without the cached layers."""
    cells = (math.prod(layer.shape(WEIGHTS)) for layer in trace.layers if layer.has(WEIGHTS) and not is_cached(layer))
    return sum(cells) / CELLS_PER_SECOND + sum(metric.estimate(trace) for metric in all_metrics().values())
