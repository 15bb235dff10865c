"""The line under the maps: the chosen cell, its number, its arithmetic, and the cells that it was computed from."""

from __future__ import annotations

from typing import Any

from attention.analysis import tables
from attention.analysis.explain.arithmetic import Explanation
from attention.analysis.explain.explain import explain
from attention.core.cell import Cell
from attention.core.steps import find_step
from attention.core.trace import Trace
from attention.pictures.message_contract import Line
from attention.pictures.view import VIEWS


def cell_line(trace: Trace, cell: Cell, explanation: Explanation | None = None) -> Line:
    """Returns one cell in one line: its position, the number, its arithmetic, and the cells that it was computed from.

    Pass an `explanation` for a number at the same position that does not belong to the cell's step.
    """
    explanation = explanation or explain(trace, cell.step, cell.layer, cell.head, cell.row, cell.column)
    rows, columns = trace.layer(cell.layer).shape(cell.step)[-2:]
    names = tables.cell_names(trace.layer(cell.layer), cell)
    sides = zip(("q", "k"), names, (cell.row, cell.column), (rows, columns), strict=True)
    return {
        "step": explanation.cell.step,
        "steps": [step.name for step in trace.layer(cell.layer).steps],
        "at": {"step": cell.step, "row": cell.row, "column": cell.column},
        "sides": [{"name": key, "axis": axis, "token": token, "value": position, "high": size - 1} for key, (axis, token), position, size in sides],
        "shown": explanation.shown, "sign": explanation.sign, "short": explanation.short,
        "from": [_source_link(source, cell) for source in explanation.came_from],
    }  # fmt: skip


def _source_link(source: Cell, cell: Cell) -> dict[str, Any]:
    """Returns the label and the knobs of a cell that another was computed from; steps shared by all heads keep the chosen head."""
    of_head, from_head = (find_step(step).per_head for step in (source.step, cell.step))
    name = f"{source.step} [{source.row}, {source.column}]"
    return {
        "knobs": {"view": VIEWS[1], "step": source.step, **({"head": source.head} if of_head else {}), "q": source.row, "k": source.column},
        "label": f"{name} of head {source.head}" if of_head and not from_head else name,
    }  # fmt: skip
