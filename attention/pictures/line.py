"""The line under the maps: the chosen cell, its number, its arithmetic, and the cells that it came from."""

from __future__ import annotations

from typing import Any

from attention.formula.cell import Cell
from attention.formula.steps import find_step
from attention.formula.trace import Trace
from attention.numbers import tables
from attention.numbers.arithmetic import Explanation
from attention.numbers.explain import explain
from attention.pictures.contract import Line
from attention.pictures.view import VIEWS


def cell_line(trace: Trace, cell: Cell, explanation: Explanation | None = None) -> Line:
    """One cell and its arithmetic, in one line: whose it is, the number, how it was made, and the cells it came from.

    An `explanation` is given for a number at the same place that is none of the cell's step.
    """
    explanation = explanation or explain(trace, cell.step, cell.layer, cell.head, cell.row, cell.column)
    rows, columns = trace.layer(cell.layer).shape(cell.step)[-2:]
    names = tables.names(trace.layer(cell.layer), cell)
    sides = zip(("q", "k"), names, (cell.row, cell.column), (rows, columns), strict=True)
    return {
        "step": explanation.cell.step,
        "steps": [step.name for step in trace.layer(cell.layer).steps],
        "at": {"step": cell.step, "row": cell.row, "column": cell.column},
        "sides": [{"name": key, "axis": axis, "token": token, "value": at, "high": size - 1} for key, (axis, token), at, size in sides],
        "shown": explanation.shown, "sign": explanation.sign, "short": explanation.short,
        "from": [_back(one, cell) for one in explanation.came_from],
    }  # fmt: skip


def _back(to: Cell, cell: Cell) -> dict[str, Any]:
    """A cell that another came from: its name, and what to turn to see it. What all heads share leaves the chosen head."""
    of_head, from_head = (find_step(one.step).per_head for one in (to, cell))
    name = f"{to.step} [{to.row}, {to.column}]"
    return {
        "turn": {"view": VIEWS[1], "step": to.step, **({"head": to.head} if of_head else {}), "q": to.row, "k": to.column},
        "label": f"{name} of head {to.head}" if of_head and not from_head else name,
    }  # fmt: skip
