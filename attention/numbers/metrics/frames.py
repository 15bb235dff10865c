"""The metrics as tables to read, to sort and to take away."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attention.formula.trace import Trace
from attention.numbers.metrics.metric import METRICS, Metric
from attention.numbers.metrics.table import Table

if TYPE_CHECKING:
    import pandas as pd

HERE = "on this text"


def heading(metric: Metric) -> str:
    """What a column of a metric is called."""
    return f"{metric.name}, {HERE}"


def about(metric: Metric, table: Table) -> str:
    """What a metric is, and on how many queries its numbers rest here."""
    fewest, most = table.count(metric.name)
    rests = f"{most}" if fewest == most else f"{fewest} to {most}"
    where = (
        f"a mean over {rests} queries of this text ({metric.over})"
        if most
        else f"not defined on this text: no {metric.over}"
    )
    return f"{metric.words} {metric.formula}; {metric.range}; {where}. {metric.paper}."


def frame(
    trace: Trace, table: Table, order: Sequence[tuple[int, int]], by: str = "", counts: bool = False
) -> pd.DataFrame:
    """A row for each head in this order: its layer, its head, and every metric, that which it is sorted `by` before the others.

    With `counts` the number of queries stands beside each.
    """
    import pandas as pd

    layers, heads = [one[0] for one in order], [one[1] for one in order]
    columns: dict[str, Any] = {"layer": layers, "head": heads}
    if any(layer.name not in ("", f"layer {i}") for i, layer in enumerate(trace.layers)):
        columns = {"name": [trace.layers[layer].name for layer in layers], **columns}
    for at, metric in sorted(enumerate(METRICS), key=lambda one: one[1].name != by):
        columns[heading(metric)] = table.values[layers, heads, at]
        if counts:
            columns[f"{metric.name}, queries"] = table.counts[layers, heads, at]
    return pd.DataFrame(columns)


def said(table: Table, layer: int, head: int, by: str = "") -> str:
    """What is so of one head: its place by a metric, and every number with the queries it rests on."""
    numbers = [
        f"{metric.name} {number:.2f} ({count})" if count else f"{metric.name} not defined"
        for metric, number, count in zip(METRICS, table.values[layer, head], table.counts[layer, head], strict=True)
    ]
    place = placed(table, layer, head, by)
    return f"L{layer} H{head}{', ' if place else ''}{place}: {', '.join(numbers)}; in brackets the queries that each rests on."


def placed(table: Table, layer: int, head: int, by: str) -> str:
    """Which place a head has by a metric, such as "3rd of 72 by previous, on this text"; empty where it has none."""
    place = table.rank(by, layer, head) if by else None
    return f"{_ordinal(place[0])} of {place[1]} by {by}, {HERE}" if place else ""


def alike(found: Sequence[tuple[int, int, float, int]]) -> pd.DataFrame:
    """Heads by how alike they look, as `differences` gives them."""
    import pandas as pd

    return pd.DataFrame({
        "layer": [one[0] for one in found],
        "head": [one[1] for one in found],
        f"distance, {HERE}": [math.sqrt(one[2]) for one in found],
        "divergence in bits": [one[2] for one in found],
        "queries": [one[3] for one in found],
    })  # fmt: skip


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
