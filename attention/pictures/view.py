"""The knobs that choose what is shown of a trace: layer, head, step and cell."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attention.core.cell import Cell
from attention.core.layer import Layer
from attention.core.names import HEAD_OUTPUT, OUTPUT, SCORES, WEIGHTS
from attention.core.steps import STEPS
from attention.core.trace import Trace
from attention.params.knob import Knob
from attention.params.ranges import AttentionLayers, Choice, Integer, NameOrText, Range, Real
from attention.pictures.over_picture import OPACITY
from attention.tokens import any_patch

VIEWS = ("overview", "factors", "norms", "writes")
"""The views of the Lab: scores, weights and output; the chosen step beside its factors; the weights beside the norms of what they bring,
or beside what they add to a logit."""
OVERVIEW_STEPS = (SCORES, WEIGHTS, OUTPUT)
"""The steps of the first view; `overview` returns those that a layer has."""

# With a trace, each knob gets the range of its layers, heads, steps, rows or columns.
LAYER = Knob("layer", 0, Integer(0), "Layer", "From zero.", inline=True, order=40)
HEAD = Knob("head", 0, Integer(0), "Head", "From zero.", inline=True, order=50)
STEP = Knob("step", WEIGHTS, Choice(tuple(step.name for step in STEPS)), inline=True)
QUERY = Knob("q", 0, Integer(0), inline=True)
KEY = Knob("k", 0, Integer(0), inline=True)
VIEW = Knob("view", VIEWS[0], Choice(VIEWS), inline=True)
OVER = Knob(
    "over", "row", Choice(("row", "column"), ("query’s row", "key’s column")), "Picture",
    "Row: how much the chosen query attends to each patch. Column: how much each patch attends to the chosen key. A click on a patch explains its number; a double click makes it the query, or the key.",
    inline=True, order=84)  # fmt: skip
HEAT = Knob(
    "heat", OPACITY, Real(0, 1), "Heat", "How strongly the colours cover the picture. 0: only the picture.", inline=True, order=86)  # fmt: skip
TARGET = Knob(
    "target", "", NameOrText(40), "Target", "The token to watch. Empty: the likeliest token of the unchanged model. Type · for a space.")  # fmt: skip
DISTRACTOR = Knob(
    "against", "", NameOrText(40), "Compare with", "A second token: the panel then shows the difference of the two logits.")  # fmt: skip


def overview_steps(steps: tuple[str, ...]) -> tuple[str, ...]:
    """Returns which of a layer's `steps` the overview shows side by side; `head_output` replaces the output of a source without W_O."""
    shown_steps = [step for step in OVERVIEW_STEPS if step in steps] or list(steps[-1:])
    if shown_steps[-1] != OUTPUT and HEAD_OUTPUT in steps:
        shown_steps.append(HEAD_OUTPUT)
    return tuple(shown_steps)


def has_patches(layer: Layer) -> bool:
    """Whether tokens of a layer are patches of a picture."""
    return any_patch(layer.tokens) or any_patch(layer.key_tokens)


def layer_range(trace: Trace) -> Range:
    """Returns the layers of a trace that can be chosen: those with attention."""
    chosen = trace.attention_layers
    return Integer(0, len(chosen) - 1) if len(chosen) == len(trace.layers) else AttentionLayers(chosen)


def read_cell(value: Callable[[Knob, Range], Any], trace: Trace) -> Cell:
    """Returns the chosen cell of a trace: layer, step, head, row and column, each read by `value` within its range.

    If a layer lacks the default step, its last step is the default.
    """
    index = int(value(LAYER, layer_range(trace)))
    layer = trace.layers[index]
    names = tuple(step.name for step in layer.steps)
    step = value(STEP if STEP.default in names else replace(STEP, default=names[-1]), Choice(names))
    rows, columns = layer.shape(step)[-2:]
    sizes = ((HEAD, layer.n_heads), (QUERY, rows), (KEY, columns))
    return Cell(index, step, *(value(knob, Integer(0, size - 1)) for knob, size in sizes))


def clamp_cell(cell: Cell, layer: Layer) -> Cell:
    """Returns the cell with row and column limited to the shape of its step."""
    rows, columns = layer.shape(cell.step)[-2:]
    return replace(cell, row=min(cell.row, rows - 1), column=min(cell.column, columns - 1))
