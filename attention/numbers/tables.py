"""Trace to pandas: the table twin of a heatmap, and the CSV."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from attention.formula.cell import Cell
from attention.formula.facts import Facts
from attention.formula.layer import Layer
from attention.formula.steps import Step, find_step
from attention.formula.trace import Trace
from attention.numbers import changes
from attention.numbers.alignment import Alignment
from attention.numbers.compare import Difference
from attention.numbers.readings import Reading
from attention.tokens import label

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

ROUNDING = 1e-4  # what single precision may leave of a sum of 4096 shares
LONGEST_NAME = 40  # characters of a token; a long table repeats it in every row
SPREADSHEET_ROWS = 2**20 - 1  # below a heading
_PIECE = 2**14  # numbers of a CSV file that are written at a time
_LONG_PIECE = 2**15  # rows of a long table that are written at a time


def frame(trace: Trace, step: str, layer: int = 0, head: int = 0) -> pd.DataFrame:
    """One matrix of a step as a table, one row per row of the heatmap, labelled "position token".

    The position keeps repeated words apart. Weights get a last column, the sum of each row.

    Raises:
        MissingError: the trace has no such layer, step or head.
    """
    return _labelled(trace.layer(layer), find_step(step), trace.layer(layer).matrix(step, head))


def csv(trace: Trace, step: str, layer: int = 0, head: int = 0) -> Iterator[str]:
    """The same table as CSV, every float to its full precision, in pieces of some rows."""
    return _written(frame(trace, step, layer, head))


def read_off(trace: Trace, reading: Reading, layer: int = 0, head: int = 0) -> pd.DataFrame:
    """The map of a reading as a table like that of a step."""
    return _labelled(trace.layer(layer), reading.step, reading.matrix(trace, layer, head))


def read_off_csv(trace: Trace, reading: Reading, layer: int = 0, head: int = 0) -> Iterator[str]:
    """The same table as CSV."""
    return _written(read_off(trace, reading, layer, head))


def difference(found: Difference, a: Layer, b: Layer) -> pd.DataFrame:
    """B − A as a table, one row per row of its map; empty where a row or a column has no partner, or is hidden."""
    import pandas as pd

    axes = zip(found.step.axes[-2:], (found.rows, found.columns), strict=True)
    rows, columns = (_places(axis, alignment, a, b) for axis, alignment in axes)
    return pd.DataFrame(found.matrix.numpy(), index=pd.Index(rows, name=found.step.row_axis), columns=columns)


def difference_csv(found: Difference, a: Layer, b: Layer) -> Iterator[str]:
    """The same table as CSV."""
    return _written(difference(found, a, b))


def _places(axis: str, alignment: Alignment, a: Layer, b: Layer) -> list[str]:
    ours, theirs = a.labels_of(axis), b.labels_of(axis)
    if ours is None or theirs is None:
        return [str(i) for i in range(len(alignment.groups))]
    return list(changes.places(alignment, ours, theirs, escape=False))


def _labelled(layer: Layer, step: Step, matrix: Tensor) -> pd.DataFrame:
    import pandas as pd  # half a second, which the first picture need not wait for

    table = pd.DataFrame(
        matrix.numpy(),
        index=pd.Index(_names(layer, step.row_axis, matrix.shape[0]), name=step.row_axis),
        columns=_names(layer, step.column_axis, matrix.shape[1]),
    )
    if step.kind == "probability":
        table["Σ row"] = matrix.sum(dim=-1).numpy()
    return table


def _written(table: pd.DataFrame) -> Iterator[str]:
    rows = max(1, _PIECE // max(1, table.shape[1]))
    for start in range(0, len(table), rows):
        yield table[start : start + rows].to_csv(header=start == 0)


def long(
    trace: Trace,
    steps: Sequence[str],
    layer: int = 0,
    heads: Sequence[int] = (0,),
    start: int = 0,
    stop: int | None = None,
) -> pd.DataFrame:
    """Steps as one long table, a row for each number of a matrix: head, row, column, and its value in each of the steps.

    The steps have the same axes; those without heads stand there once, without a head. Of its rows it has those from
    `start` to before `stop`.

    Raises:
        MissingError: the trace has no such layer, step or head.
    """
    import numpy as np
    import pandas as pd

    found, shown = find_step(steps[0]), trace.layer(layer)
    rows, columns = shown.shape(steps[0])[-2:]
    size = rows * columns
    heads = heads if found.per_head else (0,)
    place = np.arange(start, min(len(heads) * size, stop or len(heads) * size))
    which, cell = np.divmod(place, size)
    first = int(which[0])
    table = {"head": np.array(heads)[which]} if found.per_head else {}
    for axis, length, at in ((found.row_axis, rows, cell // columns), (found.column_axis, columns, cell % columns)):
        table[axis.removesuffix("_pos")] = np.array(_names(shown, axis, length), dtype=object)[at]
    for step in steps:
        parts = [shown.matrix(step, head).numpy().reshape(-1) for head in heads[first : int(which[-1]) + 1]]
        table[step] = np.concatenate(parts)[start - first * size :][: len(place)]
    return pd.DataFrame(table)


def long_csv(rows: Callable[[int, int], pd.DataFrame], n_rows: int) -> Iterator[str]:
    """A long table as CSV, in pieces of some rows: those that `rows(start, stop)` gives, at most as many as a spreadsheet holds."""
    most = min(n_rows, SPREADSHEET_ROWS)
    for start in range(0, most, _LONG_PIECE):
        yield rows(start, min(most, start + _LONG_PIECE)).to_csv(index=False, header=start == 0)


def row_sums(facts: Facts) -> str:
    """What the rows of a probability sum to, in a few words: "Σ = 1 ✓", "Σ = 1, 0 in 3 rows", "Σ = 0.82 … 1"."""
    if facts.least is None or facts.most is None:
        return "Σ = 0"
    whole = abs(facts.least - 1) < ROUNDING and abs(facts.most - 1) < ROUNDING
    said = "Σ = 1" if whole else f"Σ = {facts.least:.2f} … {facts.most:.2f}"
    if facts.empty:
        return f"{said}, 0 in {facts.empty} {'row' if facts.empty == 1 else 'rows'}"
    return f"{said} ✓" if whole else said


def names(layer: Layer, cell: Cell) -> tuple[tuple[str, str], tuple[str, str]]:
    """What a cell's row and column are called, as axis and token: ("query", "sat"), ("d_k", "")."""
    step = find_step(cell.step)
    tokens = [layer.labels_of(axis) for axis in (step.row_axis, step.column_axis)]
    row, column = (
        "" if there is None else label(there[at], escape=False)
        for there, at in zip(tokens, (cell.row, cell.column), strict=True)
    )
    return (step.row_axis.removesuffix("_pos"), row), (step.column_axis.removesuffix("_pos"), column)


def _names(layer: Layer, axis: str, size: int) -> list[str]:
    tokens = layer.labels_of(axis)
    return [str(i) if tokens is None else f"{i} {label(tokens[i], LONGEST_NAME, escape=False)}" for i in range(size)]
