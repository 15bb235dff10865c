"""The metrics as tables: to read, to sort and to download."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attention.analysis.metrics.metric import METRICS, ON_THIS_TEXT, Metric, find, names_of
from attention.analysis.metrics.metric_table import MetricsTable
from attention.core.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["ON_THIS_TEXT", "describe_head", "describe_metric", "frame", "heading", "rank_words", "similarity_frame"]


def heading(metric: Metric) -> str:
    """The column heading of a metric."""
    return f"{metric.name}, {metric.scope}"


def describe_metric(metric: Metric, table: MetricsTable) -> str:
    """What a metric measures, and how many queries its numbers average here."""
    fewest, most = table.count(metric.name)
    if metric.compute is None:
        over = metric.averaged_over if most else f"not defined here: it needs {metric.averaged_over}"
        return f"{metric.meaning} {metric.formula}; {metric.range}; {metric.scope}: {over}. {metric.paper}."
    queries = f"{most}" if fewest == most else f"{fewest} to {most}"
    where = (
        f"a mean over {queries} queries of this text ({metric.averaged_over})"
        if most
        else f"not defined on this text: no {metric.averaged_over}"
    )
    return f"{metric.meaning} {metric.formula}; {metric.range}; {where}. {metric.paper}."


def frame(
    trace: Trace, table: MetricsTable, order: Sequence[tuple[int, int]], by: str = "", counts: bool = False
) -> pd.DataFrame:
    """A row for each head in this order: layer, head, and every metric that the trace can have, the metric `by` first.

    With `counts`, the number of queries follows each metric.
    """
    import pandas as pd

    layers, heads = [layer for layer, _ in order], [head for _, head in order]
    columns: dict[str, Any] = {"layer": layers, "head": heads}
    if any(layer.name not in ("", f"layer {i}") for i, layer in enumerate(trace.layers)):
        columns = {"name": [trace.layers[layer].name for layer in layers], **columns}
    names = names_of(trace)
    for index, metric in sorted(enumerate(METRICS), key=lambda pair: pair[1].name != by):
        if metric.name not in names and metric.name != by:
            continue
        columns[heading(metric)] = table.values[layers, heads, index]
        if counts and metric.compute is not None:
            columns[f"{metric.name}, queries"] = table.counts[layers, heads, index]
    return pd.DataFrame(columns)


def describe_head(table: MetricsTable, layer: int, head: int, by: str = "") -> str:
    """One head in words: its rank by a metric, and every metric with its number of queries; those of pictures only where they are defined."""
    numbers = [
        f"{metric.name} {number:.2f}{'' if metric.compute is None else f' ({count})'}"
        if count
        else f"{metric.name} not defined"
        for metric, number, count in zip(METRICS, table.values[layer, head], table.counts[layer, head], strict=True)
        if count or not metric.of_pictures
    ]
    place = rank_words(table, layer, head, by)
    return f"L{layer} H{head}{', ' if place else ''}{place}: {', '.join(numbers)}; in brackets the number of queries behind each."


def rank_words(table: MetricsTable, layer: int, head: int, by: str) -> str:
    """The rank of a head by a metric, such as "3rd of 72 by previous, on this text"; empty if undefined."""
    place = table.rank(by, layer, head) if by else None
    return f"{_ordinal(place[0])} of {place[1]} by {by}, {find(by).scope}" if place else ""


def similarity_frame(similar: Sequence[tuple[int, int, float, int]]) -> pd.DataFrame:
    """The result of `similar_heads` as a table."""
    import pandas as pd

    return pd.DataFrame({
        "layer": [entry[0] for entry in similar],
        "head": [entry[1] for entry in similar],
        f"distance, {ON_THIS_TEXT}": [math.sqrt(entry[2]) for entry in similar],
        "divergence in bits": [entry[2] for entry in similar],
        "queries": [entry[3] for entry in similar],
    })  # fmt: skip


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
