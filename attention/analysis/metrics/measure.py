"""The loop over the weights of a layer in which metrics are added up over the queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from attention.analysis.patterns import Pattern, iterate_patterns

if TYPE_CHECKING:
    from torch import Tensor

    from attention.analysis.metrics.metric import Metric
    from attention.core.layer import Layer

Receiver = Callable[[slice, "Pattern", "Tensor"], None]


def measure(layer: Layer, metrics: Sequence[Metric], receive: Receiver | None = None) -> tuple[Any, Any, Any]:
    """Metrics of every head of a layer: values and counts [head metric], and the values under uniform attention [metric].

    Args:
        layer: with or without weights.
        metrics: the metrics; one that is not computed query by query is NaN.
        receive: is called for each block and metric: the heads, the pattern, and the value for each query [head query_pos].
    """
    import numpy as np

    n_heads = layer.n_heads
    sums, counts = np.zeros((n_heads + 1, len(metrics))), np.zeros((n_heads + 1, len(metrics)), dtype=np.int64)

    def add(rows: slice, pattern: Pattern, receive: Callable[[Tensor], None] | None = None) -> None:
        for index, metric in enumerate(metrics):
            if metric.compute is None:
                continue
            of_queries = metric.compute(pattern)
            sums[rows, index] += of_queries.nansum(dim=-1).numpy()
            counts[rows, index] += (~of_queries.isnan()).sum(dim=-1).numpy()
            if receive is not None:
                receive(of_queries)

    for heads, _, pattern in iterate_patterns(layer):
        add(heads, pattern, None if receive is None else lambda each, h=heads, p=pattern: receive(h, p, each))  # type: ignore[misc]
        if heads.start == 0:
            add(slice(n_heads, None), pattern.under_uniform_attention)
    values = np.full(sums.shape, np.nan)
    np.divide(sums, counts, out=values, where=counts > 0)
    return values[:-1], counts[:-1], values[-1]
