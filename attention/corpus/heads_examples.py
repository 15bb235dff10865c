"""What heads.parquet has for a single head, read from an untrusted source when it is asked: its examples and maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attention.corpus.digest import MAX_OFFSET, N_KEYS
from attention.corpus.heads_numbers import EXAMPLE, LEAVES, LISTS, MAP, OFFSETS, ONE_EACH, texts_of
from attention.errors import FileError
from attention.io.parquet.budget import Budget
from attention.io.parquet.column_chunk import Column
from attention.io.parquet.table import ParquetTable, damaged_error

_MAX_TEXT_BYTES = 2**25  # of the examples of a row


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


def read_example_columns(table: ParquetTable, group: int) -> dict[str, Column]:
    """The columns of the examples in a group of rows.

    Raises:
        FileError: they are damaged, or take too much memory.
    """
    budget = Budget(table.name, n_values=2**23)
    return {path: table.column(path, group, budget) for path in LEAVES if path.startswith(EXAMPLE)}


def read_examples(
    table: ParquetTable, columns: Mapping[str, Column], row: int, info: Mapping[str, Any]
) -> tuple[Example, ...]:
    """The examples of a row, counted from the first of its group.

    Raises:
        FileError: they are damaged, or not those of a run.
    """
    budget = Budget(table.name, n_bytes=_MAX_TEXT_BYTES, n_values=2**21)
    singles = {name: _single(table, columns[f"{EXAMPLE}.{name}"], row, budget) for name in ONE_EACH}
    n = len(singles["value"])
    lists = {name: _nested(table, columns[f"{EXAMPLE}.{name}.list.element"], row, n, budget) for name in LISTS}
    if any(len(values) != n for values in singles.values()) or n > info["plan"]["top"]:
        raise damaged_error(table.name)
    columns_of = {**singles, **lists}
    examples = tuple(Example(*(columns_of[name][i] for name in Example._fields)) for i in range(n))
    for example in examples:
        _check_example(table.name, example, info["plan"])
    return examples


def read_list(table: ParquetTable, path: str, row: int, length: int) -> NDArray[np.float64] | None:
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


def read_offsets(table: ParquetTable, row: int) -> NDArray[np.float64]:
    """The mean weight at each offset of the head with this first row, [offset].

    Raises:
        FileError: they are damaged.
    """
    values = read_list(table, OFFSETS, row, 2 * MAX_OFFSET + 1)
    if values is None:
        raise damaged_error(table.name)
    return values


def read_map(table: ParquetTable, row: int, length: int) -> NDArray[np.float64]:
    """The mean map of the head with this first row, [query_pos key_pos].

    Raises:
        FileError: it is damaged.
    """
    values = read_list(table, MAP, row, length**2)
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
    return texts_of(table, column, first, last, budget) if is_text else column.numbers[first:last].tolist()


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
