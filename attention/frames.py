"""Trace to pandas: the table twin of a heatmap, and the CSV."""

from __future__ import annotations

import pandas as pd

from attention.tokens import label
from attention.trace import Trace, find_step


def frame(trace: Trace, step: str, layer: int = 0, head: int = 0) -> pd.DataFrame:
    """One matrix of a step as a table, one row per row of the heatmap, labelled "position token".

    The position keeps repeated words apart. Weights get a last column, the sum of each row.

    Raises:
        MissingError: the trace has no such layer, step or head.
    """
    found = find_step(step)
    matrix = trace.layer(layer).matrix(step, head)
    table = pd.DataFrame(
        matrix.numpy(),
        index=pd.Index(_names(trace, found.row_axis, matrix.shape[0]), name=found.row_axis),
        columns=_names(trace, found.column_axis, matrix.shape[1]),
    )
    if found.kind == "probability":
        table["Σ row"] = matrix.sum(dim=-1).numpy()
    return table


def csv(trace: Trace, step: str, layer: int = 0, head: int = 0) -> str:
    """The same table as CSV, every float to its full precision."""
    return frame(trace, step, layer, head).to_csv()


def _names(trace: Trace, axis: str, size: int) -> list[str]:
    tokens = trace.labels_of(axis)
    return [str(i) if tokens is None else f"{i} {label(tokens[i], escape=False)}" for i in range(size)]
