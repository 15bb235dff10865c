"""Matrices of a trace as pandas tables and CSV: the same numbers as the heatmap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from attention.base.tokens import Letter, Patch, label
from attention.explanation.derived import DerivedMap
from attention.formula.names import Cell
from attention.formula.steps import Step, find_step
from attention.trace.layer import Layer
from attention.trace.stats import StepStats
from attention.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

_ROUNDING = 1e-4  # the single-precision error of a sum of 4096 weights
_MAX_NAME_CHARACTERS = 40  # characters of a token label; a long table repeats it in every row
MAX_SPREADSHEET_ROWS = 2**20 - 1  # the most rows that Excel reads, without the heading
_CHUNK = 2**14  # numbers per chunk of a CSV file
_LONG_CHUNK = 2**15  # rows per chunk of a long table


def frame(trace: Trace, step: str, layer: int = 0, head: int = 0) -> pd.DataFrame:
    """One matrix of a step as a table with the rows of the heatmap, labelled "position token".

    The position distinguishes repeated tokens. Where rows are patches, their picture, row and column come first, and are empty for other
    tokens. Probabilities get a last column with the sum of each row.

    Raises:
        MissingError: the trace has no such layer, step or head.
    """
    return _labelled(trace.layer(layer), find_step(step), trace.layer(layer).matrix(step, head))


def csv(trace: Trace, step: str, layer: int = 0, head: int = 0) -> Iterator[str]:
    """The same table as CSV with full float precision, in chunks of rows."""
    return csv_chunks(frame(trace, step, layer, head))


def derived_frame(trace: Trace, reading: DerivedMap, layer: int = 0, head: int = 0) -> pd.DataFrame:
    """A derived map as a table, in the form of `frame`."""
    return _labelled(trace.layer(layer), reading.step, reading.matrix(trace, layer, head))


def derived_csv(trace: Trace, reading: DerivedMap, layer: int = 0, head: int = 0) -> Iterator[str]:
    """The same table as CSV."""
    return csv_chunks(derived_frame(trace, reading, layer, head))


def _labelled(layer: Layer, step: Step, matrix: Tensor) -> pd.DataFrame:
    import pandas as pd  # takes half a second, so the first picture must not wait for it

    table = pd.DataFrame(
        matrix.numpy(),
        index=pd.Index(_names(layer, step.row_axis, matrix.shape[0]), name=step.row_axis),
        columns=_names(layer, step.column_axis, matrix.shape[1]),
    )
    if step.kind == "probability":
        table["Σ row"] = matrix.sum(dim=-1).numpy()
    return with_places(table, layer.labels_of(step.row_axis) or ())


def with_places(table: pd.DataFrame, tokens: Sequence[str]) -> pd.DataFrame:
    """The table, with the places of the tokens of its rows before the numbers if some are patches."""
    for at, (name, numbers) in enumerate(_patch_places(tokens).items()):
        table.insert(at, name, numbers)
    return table


def csv_chunks(table: pd.DataFrame) -> Iterator[str]:
    """A table as CSV with full float precision, in chunks of rows."""
    rows = max(1, _CHUNK // max(1, table.shape[1]))
    for start in range(0, len(table), rows):
        yield table[start : start + rows].to_csv(header=start == 0)


def long_frame(
    trace: Trace,
    steps: Sequence[str],
    layer: int = 0,
    heads: Sequence[int] = (0,),
    start: int = 0,
    stop: int | None = None,
) -> pd.DataFrame:
    """Steps as one long table with a row for each cell of a matrix: head, row, column, and the cell's value in each step.

    All steps have the same axes; steps that heads share appear once, without a head column. An axis with patches is followed by their
    places, such as key_picture, key_row and key_column, which are empty for other tokens. The tokens of the step query are called
    query_pos, and those of key key_pos. Returns the rows from `start` up to, not including, `stop`.

    Raises:
        MissingError: the trace has no such layer, step or head.
    """
    import numpy as np
    import pandas as pd

    first_step, source = find_step(steps[0]), trace.layer(layer)
    rows, columns = source.shape(steps[0])[-2:]
    size = rows * columns
    heads = heads if first_step.per_head else (0,)
    flat = np.arange(start, min(len(heads) * size, stop or len(heads) * size))
    head_index, cell = np.divmod(flat, size)
    first, last = int(head_index[0]), int(head_index[-1])
    table = {"head": np.array(heads)[head_index]} if first_step.per_head else {}
    for axis, length, index in (
        (first_step.row_axis, rows, cell // columns),
        (first_step.column_axis, columns, cell % columns),
    ):
        noun = axis.removesuffix("_pos")
        noun = axis if noun in steps else noun
        table[noun] = np.array(_names(source, axis, length), dtype=object)[index]
        for name, numbers in _patch_places(source.labels_of(axis) or ()).items():
            table[f"{noun}_{name}"] = numbers.take(index)
    for step in steps:
        parts = [source.matrix(step, head).numpy().reshape(-1) for head in heads[first : last + 1]]
        table[step] = np.concatenate(parts)[start - first * size :][: len(flat)]
    return pd.DataFrame(table)


def long_csv(rows: Callable[[int, int], pd.DataFrame], n_rows: int) -> Iterator[str]:
    """A long table as CSV in chunks of rows, each made by `rows(start, stop)`; it stops at the row limit of spreadsheets."""
    stop = min(n_rows, MAX_SPREADSHEET_ROWS)
    for start in range(0, stop, _LONG_CHUNK):
        yield rows(start, min(stop, start + _LONG_CHUNK)).to_csv(index=False, header=start == 0)


def row_sums(facts: StepStats) -> str:
    """The sums of the rows of a probability, in a few words: "Σ = 1 ✓", "Σ = 1, 0 in 3 rows", "Σ = 0.82 … 1"."""
    if facts.min_row_sum is None or facts.max_row_sum is None:
        return "Σ = 0"
    normalized = abs(facts.min_row_sum - 1) < _ROUNDING and abs(facts.max_row_sum - 1) < _ROUNDING
    text = "Σ = 1" if normalized else f"Σ = {facts.min_row_sum:.2f} … {facts.max_row_sum:.2f}"
    if facts.zero_rows:
        return f"{text}, 0 in {facts.zero_rows} {'row' if facts.zero_rows == 1 else 'rows'}"
    return f"{text} ✓" if normalized else text


def cell_names(layer: Layer, cell: Cell) -> tuple[tuple[str, str], tuple[str, str]]:
    """The names of a cell's row and column, as axis and token: ("query", "sat"), ("d_k", "")."""
    step = find_step(cell.step)
    labels = [layer.labels_of(axis) for axis in (step.row_axis, step.column_axis)]
    row, column = (
        "" if tokens is None else label(tokens[index], escape=False)
        for tokens, index in zip(labels, (cell.row, cell.column), strict=True)
    )
    return (step.row_axis.removesuffix("_pos"), row), (step.column_axis.removesuffix("_pos"), column)


def _patch_places(tokens: Sequence[str]) -> dict[str, Any]:
    """The picture, row and column of each token, and its place in another medium, missing for those that are no patches; of a chain, the number of each residue; empty if none has a place."""
    import pandas as pd

    if any(isinstance(token, Letter) for token in tokens):
        numbers = [token.place.number if isinstance(token, Letter) else None for token in tokens]
        return {"residue": pd.array(numbers, dtype="Int64")}
    patches = [token if isinstance(token, Patch) else None for token in tokens]
    first = next(filter(None, patches), None)
    if first is None:
        return {}
    columns: dict[str, Any] = {
        name: pd.array([None if patch is None else getattr(patch, name) for patch in patches], dtype="Int64")
        for name in ("picture", "row", "column")
    }
    for name in () if first.is_of_picture else first.place._fields:
        parts: list[Any] = [None if patch is None else getattr(patch.place, name) for patch in patches]
        if name in ("box", *columns) or all(part is None for part in parts):
            continue
        if any(isinstance(part, tuple) for part in parts):  # two ends, such as the first and the last frame
            for end, ending in enumerate(("from", "to")):
                columns[f"{name}_{ending}"] = pd.array([None if part is None else part[end] for part in parts])
        else:
            columns[name] = pd.array(parts)
    return columns


def _names(layer: Layer, axis: str, size: int) -> list[str]:
    tokens = layer.labels_of(axis)
    return [
        str(i) if tokens is None else f"{i} {label(tokens[i], _MAX_NAME_CHARACTERS, escape=False)}" for i in range(size)
    ]
