"""The numbers of heads.parquet, read from an untrusted source and checked to be those of a run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attention.corpus.digest import MAX_OFFSET, N_BINS
from attention.errors import FileError
from attention.io.parquet.budget import Budget
from attention.io.parquet.column_chunk import BYTES, DOUBLE, FLOAT, INT32, INT64, Column, Leaf
from attention.io.parquet.table import ParquetTable, damaged_error
from attention.io.parquet.thrift import DamagedError

_COUNTS = ("count", "queries", "shuffled_count", "random_count", "difference_count")
_MEANS = ("mean", "shuffled_mean", "random_mean", "difference_mean", "query_mean", "uniform")
_COUNTED = _MEANS[:4]
"""Those with a count of their own."""
_SPREADS = ("sd", "shuffled_sd", "random_sd", "difference_sd")
_PEAKS = ("peak_offset", "peak_weight", "shuffled_peak_weight")
NUMBERS = (
    "mean", "sd", "count", "queries", "uniform", "shuffled_mean", "shuffled_sd", "shuffled_count", "random_mean", "random_sd",
    "random_count", "difference_mean", "difference_sd", "difference_count", "query_mean", *_PEAKS,
)  # fmt: skip
"""The numbers of a head and a metric. "Difference" is the value of a text minus that of its shuffled words; the peak is the
offset with the largest mean weight, other than the query itself and the token before it."""
_LIMITS = ("low", "high")
_HISTOGRAM, OFFSETS, MAP = "histogram.list.element", "offset_weights.list.element", "mean_map.list.element"
EXAMPLE = "top.list.element"
ONE_EACH = {"value": DOUBLE, "number": INT64, "query": INT32, "key": INT32, "text": BYTES}
LISTS = {"keys": INT32, "weights": FLOAT, "tokens": BYTES}

LEAVES: Mapping[str, Leaf] = {
    "layer": Leaf(INT32, 0, 1),
    "head": Leaf(INT32, 0, 1),
    "metric": Leaf(BYTES, 0, 1),
    **{name: Leaf(INT64 if name in _COUNTS else DOUBLE, 0, 1) for name in (*NUMBERS, *_LIMITS)},
    _HISTOGRAM: Leaf(INT64, 1, 3),
    OFFSETS: Leaf(FLOAT, 1, 3),
    MAP: Leaf(FLOAT, 1, 3),
    **{f"{EXAMPLE}.{name}": Leaf(kind, 1, 4) for name, kind in ONE_EACH.items()},
    **{f"{EXAMPLE}.{name}.list.element": Leaf(kind, 2, 6) for name, kind in LISTS.items()},
}
"""The columns of the table."""


def read_numbers(table: ParquetTable, info: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
    """The numbers of every head and metric: `NUMBERS` [head metric]; low and high [metric]; histogram [head metric bin].

    Raises:
        FileError: the table is not the one that `info` describes, or its numbers are none of a run.
    """
    shape = sum(info["heads"]), len(info["metrics"])
    n_rows = shape[0] * shape[1]
    if table.first_rows[-1] != n_rows:
        raise FileError(
            f"{table.name} should have {n_rows:,} rows, one for each head and metric; it has {table.first_rows[-1]:,}: use the complete file that the run wrote."
        )
    budget = Budget(table.name)
    columns = {name: np.full(n_rows, np.nan) for name in ("layer", "head", *NUMBERS, *_LIMITS)}
    histogram = np.zeros((n_rows, N_BINS), np.int32)
    metrics = list[str]()
    for group, n_in_group in enumerate(table.group_rows):
        rows = slice(table.first_rows[group], table.first_rows[group + 1])
        for name, values in columns.items():
            column = _flat(table, name, group, n_in_group, budget)
            values[rows][column.definition == 1] = column.numbers
        names = _flat(table, "metric", group, n_in_group, budget)
        metrics += texts_of(table, names, 0, int(names.definition.sum()), budget)
        histogram[rows] = _histograms(table, group, n_in_group, budget)
    heads = np.concatenate([np.arange(n) for n in info["heads"]])
    layers = np.repeat(info["layers"], info["heads"])
    same = np.array_equal(columns.pop("layer"), np.repeat(layers, shape[1])) and np.array_equal(
        columns.pop("head"), np.repeat(heads, shape[1])
    )
    if not same or metrics != info["metrics"] * shape[0]:
        raise FileError(
            f"{table.name} should have one row for each head and metric, in their order; it has others: use the file that the run wrote."
        )
    numbers: dict[str, NDArray[Any]] = {name: values.reshape(shape) for name, values in columns.items()}
    numbers["histogram"] = histogram.reshape(*shape, N_BINS)
    _check_numbers(table.name, numbers, info)
    return numbers | {name: numbers[name][0] for name in _LIMITS}


def _check_numbers(name: str, numbers: Mapping[str, NDArray[Any]], info: Mapping[str, Any]) -> None:
    """Raises FileError unless counts are counts, and there are means exactly where they count something."""
    low, high = numbers["low"], numbers["high"]
    problem = ""
    if not (np.isfinite(low) & np.isfinite(high) & (low < high) & (low == low[0]) & (high == high[0])).all():
        problem = "low and high of a metric are not the same for all heads"
    for key in _COUNTS:
        if not (numbers[key] >= 0).all():  # NaN is a missing one
            problem = f"{key} has a number below 0, or none"
    for key in (*_MEANS, *_SPREADS, *_PEAKS):
        if np.isinf(numbers[key]).any():
            problem = f"{key} has an infinite number"
    for key in _COUNTED:
        count = numbers[key.replace("mean", "count")]
        if not np.array_equal(np.isnan(numbers[key]), count == 0):
            problem = f"{key} is missing where texts were counted, or is there where none were"
    slack = 1e-3 * (high - low)
    for key in _MEANS:
        least = low - high if key == "difference_mean" else low
        if ((numbers[key] < least - slack) | (numbers[key] > high + slack)).any():
            problem = f"{key} has a number outside of the range of its metric"
    if (np.abs(numbers["peak_offset"]) > MAX_OFFSET).any():
        problem = f"an offset is beyond {MAX_OFFSET}"
    if any((numbers[key] < 0).any() for key in _SPREADS):
        problem = "a standard deviation is below 0"
    if (numbers["count"] > info["read"]["texts"]).any():
        problem = "count has more texts than the run"
    if (numbers["histogram"] < 0).any() or not np.array_equal(numbers["histogram"].sum(-1), numbers["count"]):
        problem = "histogram does not sum to count"
    if problem:
        raise FileError(f"{name} should have the numbers of a run, but {problem}: use the file that the run wrote.")


def _flat(table: ParquetTable, path: str, group: int, n_rows: int, budget: Budget) -> Column:
    """A column without lists, which has an entry for each row."""
    if table.chunks[group][path].n_values != n_rows:
        raise damaged_error(table.name)
    return table.column(path, group, budget)


def _histograms(table: ParquetTable, group: int, n_rows: int, budget: Budget) -> NDArray[np.int64]:
    """The histograms of a group, [row bin]."""
    if table.chunks[group][_HISTOGRAM].n_values != n_rows * N_BINS:
        raise damaged_error(table.name)
    column = table.column(_HISTOGRAM, group, budget)
    starts = column.repetition.reshape(n_rows, N_BINS)
    if starts[:, 0].any() or not (starts[:, 1:] == 1).all() or not (column.definition == 3).all():
        raise damaged_error(table.name)
    counts: NDArray[np.int64] = column.numbers.reshape(n_rows, N_BINS)
    return counts.clip(-1, 2**31 - 1)


def texts_of(table: ParquetTable, column: Column, start: int, stop: int, budget: Budget) -> list[str]:
    """Some of the texts of a column that are there.

    Raises:
        FileError: they are damaged, or take too much memory.
    """
    try:
        return column.texts(start, stop, budget)
    except DamagedError:
        raise damaged_error(table.name) from None
