"""The result of a run over many texts, read from heads.parquet, an untrusted file: the numbers of every head at once, its examples and maps when asked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attention.base.errors import FileError, MissingError
from attention.corpus.digest import MAX_OFFSET, N_BINS, N_KEYS
from attention.corpus.parquet import (
    BYTES,
    DOUBLE,
    FLOAT,
    INT32,
    INT64,
    Budget,
    Column,
    DamagedError,
    Leaf,
    ParquetTable,
    damaged_error,
)
from attention.corpus.run_plan import METADATA, read_info
from attention.corpus.scan import TABLE
from attention.files.archives import quote

if TYPE_CHECKING:
    import pandas as pd

MAX_BYTES = 2**28
_MAX_TEXT_BYTES = 2**25  # of the examples of a row

_EXCESS = ("excess_mean", "excess_sd", "excess_count")
"""Files of the first version have none."""
_COUNTS = ("count", "queries", "shuffled_count", "random_count", "difference_count", "excess_count")
_MEANS = ("mean", "shuffled_mean", "random_mean", "difference_mean", "excess_mean", "query_mean", "uniform")
_COUNTED = _MEANS[:5]
"""Those with a count of their own."""
_SPREADS = ("sd", "shuffled_sd", "random_sd", "difference_sd", "excess_sd")
_PEAKS = ("peak_offset", "peak_weight", "shuffled_peak_weight")
NUMBERS = (
    "mean", "sd", "count", "queries", "uniform", "shuffled_mean", "shuffled_sd", "shuffled_count", "random_mean", "random_sd",
    "random_count", "difference_mean", "difference_sd", "difference_count", *_EXCESS, "query_mean", *_PEAKS,
)  # fmt: skip
"""The numbers of a head and a metric. "Difference" is the value of a text minus that of its shuffled words, "excess" the value minus what the null
of the metric gives; the peak is the offset with the largest mean weight, other than the query itself and the token before it."""
_LIMITS = ("low", "high")
_HISTOGRAM, _OFFSETS, _MAP = "histogram.list.element", "offset_weights.list.element", "mean_map.list.element"
_EXAMPLE = "top.list.element"
_ONE_EACH = {"value": DOUBLE, "number": INT64, "query": INT32, "key": INT32, "text": BYTES}
_LISTS = {"keys": INT32, "weights": FLOAT, "tokens": BYTES}

LEAVES: Mapping[str, Leaf] = {
    "layer": Leaf(INT32, 0, 1),
    "head": Leaf(INT32, 0, 1),
    "metric": Leaf(BYTES, 0, 1),
    **{name: Leaf(INT64 if name in _COUNTS else DOUBLE, 0, 1) for name in (*NUMBERS, *_LIMITS)},
    _HISTOGRAM: Leaf(INT64, 1, 3),
    _OFFSETS: Leaf(FLOAT, 1, 3),
    _MAP: Leaf(FLOAT, 1, 3),
    **{f"{_EXAMPLE}.{name}": Leaf(kind, 1, 4) for name, kind in _ONE_EACH.items()},
    **{f"{_EXAMPLE}.{name}.list.element": Leaf(kind, 2, 6) for name, kind in _LISTS.items()},
}
"""The columns of the table."""
_CONTROLS = {"shuffled": "shuffled words", "random": "random repeated tokens"}


class Example(NamedTuple):
    """A text with one of the largest values of a metric and a head.

    Attributes:
        value: of the metric, on this text.
        number: of the text in the run.
        query: the position of the query with the largest value.
        key: its key with the largest weight among the cells of the metric.
        keys: its keys with the largest weights, the largest first.
        weights: these weights.
        text: the text.
        tokens: its readable tokens.
    """

    value: float
    number: int
    query: int
    key: int
    keys: tuple[int, ...]
    weights: tuple[float, ...]
    text: str
    tokens: tuple[str, ...]

    @property
    def weight(self) -> float:
        """The weight of `key`; NaN if it is not among the largest."""
        return self.weights[self.keys.index(self.key)] if self.key in self.keys else float("nan")


@dataclass(frozen=True)
class HeadsResult:
    """A heads.parquet: `HeadsResult.open(folder)`, or `HeadsResult.of(name, content)`. Two results are equal if their bytes are.

    The numbers are read and checked at once; examples and maps when they are asked for, which may raise FileError.

    Attributes:
        name: the name of the file, or of its folder.
        digest: hash of the bytes.
        info: the content of corpus.json: the plan, the heads, and what was read.
    """

    name: str = field(compare=False)
    digest: str
    info: Mapping[str, Any] = field(compare=False, repr=False)
    _table: ParquetTable = field(compare=False, repr=False)
    _numbers: Mapping[str, NDArray[Any]] = field(compare=False, repr=False)
    _unpacked: dict[int, dict[str, Column]] = field(default_factory=dict, compare=False, repr=False)

    @classmethod
    def open(cls, path: str | Path, max_bytes: int = MAX_BYTES) -> HeadsResult:
        """The result at a path: a heads.parquet, or a folder that has one.

        Raises:
            FileError: there is none, it is larger than `max_bytes`, or it is not the result of a run.
        """
        file = Path(path)
        name = file.name
        try:
            file = file / TABLE if file.is_dir() else file
            size = file.stat().st_size
            return cls.of(name, file.read_bytes() if size <= max_bytes else b"", max_bytes, size)
        except OSError as error:
            raise FileError(
                f"{quote(str(path))} cannot be opened ({error.strerror}): give the path of a {TABLE}, or of a folder that has one."
            ) from None

    @classmethod
    def of(cls, name: str, content: bytes, max_bytes: int = MAX_BYTES, size: int | None = None) -> HeadsResult:
        """The result from its bytes.

        Args:
            name: of the file.
            content: its bytes.
            max_bytes: the limit of its bytes.
            size: the number of its bytes, if `content` was not read.

        Raises:
            FileError: the bytes are more than `max_bytes`, or not the result of a run.
        """
        size = len(content) if size is None else size
        if size > max_bytes:
            raise FileError(
                f"{quote(name)} has {size:,} bytes; at most {max_bytes:,} are read: run it with fewer examples (--top)."
            )
        table = ParquetTable.open(quote(name), content, LEAVES, _EXCESS)
        info = read_info(quote(name), table.metadata.get(METADATA.decode()))
        numbers = _read_numbers(table, info)
        for array in numbers.values():
            array.flags.writeable = False  # pages share them
        return cls(name, blake2b(content, digest_size=16).hexdigest(), info, table, numbers)

    @property
    def plan(self) -> Mapping[str, Any]:
        """The fields of the `RunPlan`, as in JSON."""
        plan: Mapping[str, Any] = self.info["plan"]
        return plan

    @property
    def model(self) -> str:
        """The name of the model; of a folder, its last part."""
        name: str = self.plan["model"]
        return PurePath(name.replace("\\", "/")).name or name

    @property
    def metrics(self) -> tuple[str, ...]:
        """The names of the metrics in the order of the table, finds included."""
        return tuple(self.info["metrics"])

    @cached_property
    def heads(self) -> tuple[tuple[int, int], ...]:
        """(layer, head) in the order of the table."""
        layers = zip(self.info["layers"], self.info["heads"], strict=True)
        return tuple((layer, head) for layer, n_heads in layers for head in range(n_heads))

    def column(self, metric: str, name: str) -> NDArray[np.float64]:
        """One number of a metric for every head, [head]; NaN where it is undefined.

        Args:
            metric: one of `metrics`.
            name: one of `NUMBERS`.

        Raises:
            MissingError: there is no such metric or number.
        """
        if name not in NUMBERS:
            raise MissingError(f"a number of a head is one of {', '.join(NUMBERS)}; got {name!r}: choose one of them.")
        column: NDArray[np.float64] = self._numbers[name][:, self._index(metric)]
        return column

    def frame(self) -> pd.DataFrame:
        """A row for each head and metric: layer, head, metric, and `NUMBERS`."""
        import pandas as pd

        places = [(layer, head, metric) for layer, head in self.heads for metric in self.metrics]
        numbers = {name: self._numbers[name].ravel() for name in NUMBERS}
        return pd.DataFrame(places, columns=["layer", "head", "metric"]).assign(**numbers)

    def histogram(self, metric: str) -> NDArray[np.int64]:
        """The number of texts in each bin of a metric, [head bin]."""
        histogram: NDArray[np.int64] = self._numbers["histogram"][:, self._index(metric)].astype("int64")
        return histogram

    def limits(self, metric: str) -> tuple[float, float]:
        """The ends of the histogram of a metric."""
        index = self._index(metric)
        return float(self._numbers["low"][index]), float(self._numbers["high"][index])

    def examples(self, layer: int, head: int, metric: str) -> tuple[Example, ...]:
        """The texts with the largest values of a head, the largest first.

        Raises:
            MissingError: there is no such head or metric.
            FileError: they are damaged, or take too much memory.
        """
        row = self._first_row(layer, head) + self._index(metric)
        group = self._table.group_of(row)
        columns = self._unpacked.get(group)
        if columns is None:
            columns = _read_example_columns(self._table, group)
            self._unpacked.clear()  # one group is kept: a page shows several metrics of a head
            self._unpacked[group] = columns
        return _read_examples(self._table, columns, row - self._table.first_rows[group], self.info)

    def mean_map(self, layer: int, head: int) -> NDArray[np.float64] | None:
        """The mean weights of the texts of one length, [query_pos key_pos]; None if there was no such text.

        Raises:
            MissingError: there is no such head.
            FileError: the map is damaged.
        """
        row, length = self._first_row(layer, head), self.plan["map_length"]
        return _read_map(self._table, row, length) if self.info["map_texts"] and length else None

    def offset_weights(self, layer: int, head: int) -> NDArray[np.float64]:
        """The mean weight at each offset (key_pos − query_pos) from −64 to 64, [offset]; NaN where there is no cell.

        Raises:
            MissingError: there is no such head.
            FileError: the weights are damaged.
        """
        return _read_offsets(self._table, self._first_row(layer, head))

    def words(self) -> str:
        """What was read, such as "500 texts, 9,403 tokens, 3 cut at 256 tokens; controls: shuffled words"."""
        read, plan = self.info["read"], self.plan
        cut = f"{read['cut']:,} cut at {plan['max_tokens']:,} tokens" if read["cut"] else "none cut"
        counts = {"random": f" ({read['random']:,})"}
        controls = ", ".join(_CONTROLS[name] + counts.get(name, "") for name in plan["controls"]) or "none"
        old = (
            ""
            if _EXCESS[0] in self._table.leaves
            else "; without differences from the null, since an earlier version wrote it"
        )
        return f"{read['texts']:,} text{'s' * (read['texts'] != 1)}, {read['tokens']:,} tokens, {cut}; controls: {controls}{old}"

    @property
    def shuffling(self) -> str:
        """What a shuffled word is, and how many texts have another order when they are shuffled, in sentences; empty without this control, and of an older run."""
        n_texts, n_shuffled = self.info["read"]["texts"], self.info.get("shuffled_texts")
        if "shuffled" not in self.plan["controls"] or n_shuffled is None:
            return ""
        left_out = n_texts - n_shuffled
        others = f"; {left_out:,} cannot change, and {'is' if left_out == 1 else 'are'} not counted" if left_out else ""
        return f"The order of the words changes in {n_shuffled:,} of {n_texts:,} texts{others}. Words: {self.plan['words']}."

    def memory_bytes(self) -> int:
        """The bytes that it keeps now."""
        unpacked = sum(column.memory_bytes() for group in list(self._unpacked.values()) for column in group.values())
        return len(self._table.content) + sum(array.nbytes for array in self._numbers.values()) + unpacked

    @cached_property
    def _places(self) -> dict[tuple[int, int], int]:
        return {place: index for index, place in enumerate(self.heads)}

    def _index(self, metric: str) -> int:
        if metric not in self.metrics:
            raise MissingError(
                f"{quote(self.name)} has the metrics {', '.join(self.metrics)}; got {metric[:60]!r}: choose one of them."
            )
        return self.metrics.index(metric)

    def _first_row(self, layer: int, head: int) -> int:
        if (layer, head) not in self._places:
            raise MissingError(
                f"{quote(self.name)} has {len(self.heads):,} heads; got L{layer} H{head}, which is none of them: choose another."
            )
        return self._places[layer, head] * len(self.metrics)


def _read_numbers(table: ParquetTable, info: Mapping[str, Any]) -> dict[str, NDArray[Any]]:
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
    columns["excess_count"][:] = 0
    histogram = np.zeros((n_rows, N_BINS), np.int32)
    metrics = list[str]()
    for group, n_in_group in enumerate(table.group_rows):
        rows = slice(table.first_rows[group], table.first_rows[group + 1])
        for name, values in columns.items():
            if name not in table.leaves:
                continue
            column = _flat(table, name, group, n_in_group, budget)
            values[rows][column.definition == 1] = column.numbers
        names = _flat(table, "metric", group, n_in_group, budget)
        metrics += _texts_of(table, names, 0, int(names.definition.sum()), budget)
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
        least = low - high if key in ("difference_mean", "excess_mean") else low
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


def _texts_of(table: ParquetTable, column: Column, start: int, stop: int, budget: Budget) -> list[str]:
    """Some of the texts of a column that are there.

    Raises:
        FileError: they are damaged, or take too much memory.
    """
    try:
        return column.texts(start, stop, budget)
    except DamagedError:
        raise damaged_error(table.name) from None


def _read_example_columns(table: ParquetTable, group: int) -> dict[str, Column]:
    """The columns of the examples in a group of rows.

    Raises:
        FileError: they are damaged, or take too much memory.
    """
    budget = Budget(table.name, n_values=2**23)
    return {path: table.column(path, group, budget) for path in LEAVES if path.startswith(_EXAMPLE)}


def _read_examples(
    table: ParquetTable, columns: Mapping[str, Column], row: int, info: Mapping[str, Any]
) -> tuple[Example, ...]:
    """The examples of a row, counted from the first of its group.

    Raises:
        FileError: they are damaged, or not those of a run.
    """
    budget = Budget(table.name, n_bytes=_MAX_TEXT_BYTES, n_values=2**21)
    singles = {name: _single(table, columns[f"{_EXAMPLE}.{name}"], row, budget) for name in _ONE_EACH}
    n = len(singles["value"])
    lists = {name: _nested(table, columns[f"{_EXAMPLE}.{name}.list.element"], row, n, budget) for name in _LISTS}
    if any(len(values) != n for values in singles.values()) or n > info["plan"]["top"]:
        raise damaged_error(table.name)
    columns_of = {**singles, **lists}
    examples = tuple(Example(*(columns_of[name][i] for name in Example._fields)) for i in range(n))
    for example in examples:
        _check_example(table.name, example, info["plan"])
    return examples


def _read_list(table: ParquetTable, path: str, row: int, length: int) -> NDArray[np.float64] | None:
    """The numbers of a row in a column of lists, NaN where there is none; None if the row has no list.

    Raises:
        FileError: they are not `length`, or damaged.
    """
    group = table.group_of(row)
    column = table.column(path, group, Budget(table.name))
    cells = _cells(table, column, row - table.first_rows[group])
    definition = column.definition[cells]
    if len(definition) == 1 and definition[0] <= 1:
        return None if definition[0] == 0 or length else np.zeros(0)
    first = int((column.definition[: cells.start] == 3).sum())
    values = np.full(len(definition), np.nan)
    with np.errstate(invalid="ignore"):  # a signaling NaN of a damaged file
        values[definition == 3] = column.numbers[first : first + int((definition == 3).sum())]
    if len(values) != length or np.isinf(values).any():
        raise damaged_error(table.name)
    return values


def _read_offsets(table: ParquetTable, row: int) -> NDArray[np.float64]:
    """The mean weight at each offset of the head with this first row, [offset].

    Raises:
        FileError: they are damaged.
    """
    values = _read_list(table, _OFFSETS, row, 2 * MAX_OFFSET + 1)
    if values is None:
        raise damaged_error(table.name)
    return values


def _read_map(table: ParquetTable, row: int, length: int) -> NDArray[np.float64]:
    """The mean map of the head with this first row, [query_pos key_pos].

    Raises:
        FileError: it is damaged.
    """
    values = _read_list(table, _MAP, row, length**2)
    if values is None or np.isnan(values).any():
        raise damaged_error(table.name)
    return values.reshape(length, length)


def _check_example(name: str, example: Example, plan: Mapping[str, Any]) -> None:
    """Raises FileError unless an example is one of a run."""
    n = len(example.tokens)
    positions = (example.query, example.key, *example.keys)
    numbers = (example.value, *example.weights)
    if n > plan["max_tokens"] or not all(0 <= position < n for position in positions):
        problem = "a position beyond its tokens"
    elif not np.isfinite(numbers).all() or len(example.keys) != len(example.weights) or len(example.keys) > N_KEYS:
        problem = "no weight for each of its keys"
    elif not 0 <= example.number < plan["n_texts"]:
        problem = "a text that the run did not read"
    else:
        return
    raise FileError(
        f"{name} should have the examples of a run, but one has {problem}: use the file that the run wrote."
    )


def _cells(table: ParquetTable, column: Column, row: int) -> slice:
    """The entries of a row in a column with lists."""
    starts = np.flatnonzero(column.repetition == 0)
    if row >= len(starts):
        raise damaged_error(table.name)
    return slice(int(starts[row]), int(starts[row + 1]) if row + 1 < len(starts) else len(column.repetition))


def _present(column: Column, cells: slice, level: int) -> tuple[int, int]:
    """The first value of some entries, and the one after the last."""
    first = int((column.definition[: cells.start] == level).sum())
    return first, first + int((column.definition[cells] == level).sum())


def _values(table: ParquetTable, column: Column, first: int, last: int, is_text: bool, budget: Budget) -> list[Any]:
    budget.spend(n_values=last - first)
    return _texts_of(table, column, first, last, budget) if is_text else column.numbers[first:last].tolist()


def _single(table: ParquetTable, column: Column, row: int, budget: Budget) -> list[Any]:
    """One value for each example of a row."""
    cells = _cells(table, column, row)
    definition = column.definition[cells]
    if len(definition) == 1 and definition[0] == 1:
        return []
    first, last = _present(column, cells, 4)
    if last - first != len(definition):
        raise damaged_error(table.name)
    return _values(table, column, first, last, not len(column.numbers), budget)


def _nested(table: ParquetTable, column: Column, row: int, n: int, budget: Budget) -> Sequence[tuple[Any, ...]]:
    """A list for each of the `n` examples of a row."""
    if not n:
        return ()
    cells = _cells(table, column, row)
    repetition, definition = column.repetition[cells], column.definition[cells]
    starts = np.flatnonzero(repetition < 2)
    if len(starts) != n or not (definition == 6).all():
        raise damaged_error(table.name)
    values = _values(table, column, *_present(column, cells, 6), not len(column.numbers), budget)
    stops = [*starts[1:].tolist(), len(values)]
    return [tuple(values[start:stop]) for start, stop in zip(starts.tolist(), stops, strict=True)]
