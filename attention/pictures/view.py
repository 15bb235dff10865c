"""The knobs that say what of a trace is shown: which layer, head, step and cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attention.formula.cell import Cell
from attention.formula.knobs import Knob
from attention.formula.layer import Layer
from attention.formula.names import HEAD_OUTPUT, OUTPUT, SCORES, WEIGHTS
from attention.formula.ranges import Choice, Range, Whole
from attention.formula.steps import STEPS
from attention.formula.trace import Trace

VIEWS = ("overview", "factors", "norms")
"""What the Lab shows: scores, weights and output; the chosen step beside what makes it; the weights beside what they bring."""
OVERVIEW = (SCORES, WEIGHTS, OUTPUT)
"""The steps of the first view; `overview` says which a layer has."""

# Each has a range of its own where there is a trace: there are so many layers, heads, steps, rows and columns.
LAYER = Knob("layer", 0, Whole(0), "Layer", "From zero.", held=True, place=40)
HEAD = Knob("head", 0, Whole(0), "Head", "From zero.", held=True, place=50)
STEP = Knob("step", WEIGHTS, Choice(tuple(step.name for step in STEPS)), held=True)
QUERY = Knob("q", 0, Whole(0), held=True)
KEY = Knob("k", 0, Whole(0), held=True)
VIEW = Knob("view", VIEWS[0], Choice(VIEWS), held=True)


def overview(steps: tuple[str, ...]) -> tuple[str, ...]:
    """Which of a layer's `steps` stand side by side in the overview; `head_output` for the output of a source without W_O."""
    found = [step for step in OVERVIEW if step in steps] or list(steps[-1:])
    if found[-1] != OUTPUT and HEAD_OUTPUT in steps:
        found.append(HEAD_OUTPUT)
    return tuple(found)


def read_cell(value: Callable[[Knob, Range], Any], trace: Trace) -> Cell:
    """The chosen cell of a trace: layer, step, head, row and column, each read with the range that it has there.

    The step of a layer that lacks the usual one is the last that it has.
    """
    index = int(value(LAYER, Whole(0, len(trace.layers) - 1)))
    layer = trace.layers[index]
    names = tuple(step.name for step in layer.steps)
    step = value(STEP if STEP.default in names else replace(STEP, default=names[-1]), Choice(names))
    rows, columns = layer.shape(step)[-2:]
    sizes = ((HEAD, layer.n_heads), (QUERY, rows), (KEY, columns))
    return Cell(index, step, *(value(knob, Whole(0, size - 1)) for knob, size in sizes))


def clamped(cell: Cell, layer: Layer) -> Cell:
    """The cell, whose row or column, where the step has none so far, is the last that it has."""
    rows, columns = layer.shape(cell.step)[-2:]
    return replace(cell, row=min(cell.row, rows - 1), column=min(cell.column, columns - 1))
