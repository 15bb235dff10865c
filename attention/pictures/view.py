"""What is shown of a trace: the knobs of layer, head, step and cell, each as a control that figure/controls.js draws; and the overrides (what if) in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attention.base.knobs import (
    AttentionLayers,
    Choice,
    ChoiceAmong,
    Integer,
    Knob,
    NameOrText,
    Range,
    Real,
    Switch,
    to_text,
)
from attention.base.tokens import any_patch, pair_spans
from attention.explanation.derived import derived_views
from attention.formula import override
from attention.formula.mask import Mask
from attention.formula.names import HEAD_OUTPUT, OUTPUT, SCORES, WEIGHTS, Cell
from attention.formula.steps import STEPS, find_step
from attention.pictures import scales
from attention.pictures.message_contract import Control
from attention.trace.layer import Layer
from attention.trace.trace import Trace

OVERVIEW, FACTORS = "overview", "factors"
"""Two views of the Lab: scores, weights and output; the chosen step beside its factors. The others are `derived_views`."""
_OVERVIEW_STEPS = (SCORES, WEIGHTS, OUTPUT)
"""The steps of the first view; `overview` returns those that a layer has."""

# With a trace, each knob gets the range of its layers, heads, steps, rows or columns.
LAYER = Knob("layer", 0, Integer(0), "Layer", "From zero.", inline=True, order=40)
HEAD = Knob("head", 0, Integer(0), "Head", "From zero.", inline=True, order=50)
STEP = Knob("step", WEIGHTS, Choice(tuple(step.name for step in STEPS)), inline=True)
QUERY = Knob("q", 0, Integer(0), inline=True)
KEY = Knob("k", 0, Integer(0), inline=True)
COLUMN = Knob("column", None, Integer(0, optional=True), inline=True)
"""The column of a matrix whose columns are features. Without one, as in links from before it, q and k are the row and the column of any step."""
_AT_REST = -1.0
SHOW = Knob("show", _AT_REST, Real(_AT_REST, 5), inline=True)
"""The moment at which the film of the first screen stands, from 0 to 5; below 0: the chosen step at rest."""
VIEW = Knob("view", OVERVIEW, ChoiceAmong(lambda: (OVERVIEW, FACTORS, *derived_views())), inline=True)
OVER = Knob(
    "over", "row", Choice(("row", "column"), ("query’s row", "key’s column")), "Picture",
    "Row: how much the chosen query attends to each patch. Column: how much each patch attends to the chosen key. A click on a patch explains its number; a double click makes it the query, or the key.",
    inline=True, order=84)  # fmt: skip
HEAT = Knob(
    "heat", scales.OPACITY, Real(0, 1), "Heat", "How strongly the colours cover the picture. 0: only the picture.", inline=True, order=86)  # fmt: skip
PAIR = Knob(
    "pair", "both", Choice(("both", "a-b", "b-a"), ("all", "A → B", "B → A")), "Texts",
    "A → B: only the queries of the first text and the keys of the second; their numbers stay the same. All: every token.",
    inline=True, order=82)  # fmt: skip
TARGET = Knob(
    "target", "", NameOrText(40), "Target", "The token to watch. Empty: the likeliest token of the unchanged model. Type · for a space.")  # fmt: skip
DISTRACTOR = Knob(
    "against", "", NameOrText(40), "Compare with", "A second token: the panel then shows the difference of the two logits.")  # fmt: skip


def overview_steps(steps: tuple[str, ...], keeps_maps: bool = True) -> tuple[str, ...]:
    """Returns which of a layer's `steps` the overview shows side by side.

    `head_output` replaces the output of a source without W_O, and of a layer whose maps are not kept: the output needs every head.
    """
    shown_steps = [step for step in _OVERVIEW_STEPS if step in steps and (keeps_maps or step != OUTPUT)] or list(
        steps[-1:]
    )
    if shown_steps[-1] != OUTPUT and HEAD_OUTPUT in steps:
        shown_steps.append(HEAD_OUTPUT)
    return tuple(shown_steps)


def has_patches(layer: Layer) -> bool:
    """Whether tokens of a layer are patches of a picture."""
    return any_patch(layer.tokens) or any_patch(layer.key_tokens)


def has_pair(layer: Layer) -> bool:
    """Whether a layer attends within a pair of texts."""
    return all(len(pair_spans(tokens)) == 2 for tokens in (layer.tokens, layer.key_tokens))


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
    head = value(HEAD, Integer(0, layer.n_heads - 1))
    rows, columns = layer.shape(step)[-2:]
    column = value(COLUMN, COLUMN.range)
    sides = position_knobs(step, column)
    sizes = {QUERY: len(layer.tokens), KEY: len(layer.key_tokens), **dict(zip(sides, (rows, columns), strict=True))}
    positions = {knob: value(knob, Integer(0, size - 1, optional=knob is COLUMN)) for knob, size in sizes.items()}
    return Cell(index, step, head, *(positions[knob] or 0 for knob in sides))


def position_knobs(step: str, column: int | None = 0) -> tuple[Knob, Knob]:
    """The knobs of the row and of the column of a step; without a `column` those of links from before it."""
    declaration = find_step(step)
    if column is None:
        return QUERY, KEY
    return KEY if declaration.row_axis == "key_pos" else QUERY, KEY if declaration.column_axis == "key_pos" else COLUMN


def position_values(cell: Cell) -> dict[str, int]:
    """The values of the knobs that choose the row and the column of a cell; the others, such as the key of a query's feature, stay."""
    row, column = position_knobs(cell.step)
    return {row.key: cell.row, column.key: cell.column}


def clamp_cell(cell: Cell, layer: Layer) -> Cell:
    """Returns the cell with row and column limited to the shape of its step."""
    rows, columns = layer.shape(cell.step)[-2:]
    return replace(cell, row=min(cell.row, rows - 1), column=min(cell.column, columns - 1))


def _source_mask(layer: Layer) -> str:
    layer = layer.wrapped
    formula = layer.base_formula or layer.formula
    if "mask" in layer.recorded:
        return "recorded"
    return formula.mask.kind if formula and formula.mask and formula.mask.may_hide else "none"


def override_words(layer: Layer) -> tuple[str, ...]:
    """Descriptions of the overridden knobs of a layer; empty if its numbers are the source's."""
    layer = layer.wrapped
    base, formula = layer.base_formula, layer.formula
    if base is None or formula is None:
        return ()
    overrides = []
    if formula.temperature != base.temperature:
        overrides.append(f"temperature {formula.temperature / base.temperature if base.temperature else 0:g}")
    if base.divisor is not None and formula.divisor != base.divisor:
        overrides.append(f"scores not divided by {base.divisor:.4g}")
    if formula.mask != base.mask and formula.mask and (formula.mask.may_hide or _source_mask(layer) != "none"):
        overrides.append(_mask_words(formula.mask))
    return tuple(overrides)


def override_line(layer: Layer, owner: str, where: str = "") -> str:
    """One line about the overrides of a layer; empty if it has no knob to override.

    `owner` is that of the numbers without overrides, such as "the model's"; `where` is the part that is overridden, such as
    "in this head only", or empty for everything.
    """
    *first, last = override_words(layer) or ("",)
    if last:
        overrides = f"{', '.join(first)} and {last}" if first else last
        return f"What if{where and f', {where}'}: {overrides} instead of {owner} own."
    return f"{owner[0].upper()}{owner[1:]} own numbers." if layer.overridable_knobs else ""


def _mask_words(mask: Mask) -> str:
    sizes = {"window": f" ± {mask.window}", "causal window": f" ± {mask.window}", "prefix": f" {mask.prefix}"}
    if mask.window_right is not None:
        sizes["window"] = f" − {mask.window} + {mask.window_right}"
    before = f", {mask.query_offset} keys before the first query" if mask.query_offset else ""
    return "no mask" if mask.kind == "none" else f"mask {mask.kind}{sizes.get(mask.kind, '')}{before}"


def describe_control(knob: Knob, within: Range, value: Any, layer: Layer | None) -> Control:
    """Returns the description of a control, with the keys of its kind."""
    description: Control = {
        "kind": "switch", "name": knob.key, "label": knob.label, "help": knob.help, "value": to_text(value),
    }  # fmt: skip
    if knob.applies_with[0]:
        description["when"] = dict([knob.applies_with])
    match within:
        case Choice():
            description |= {"kind": "choice", "options": [to_text(option) for option in within.options]}
            if names := _option_names(within, layer):
                description["option_names"] = names
        case Integer() | Real():
            kind = "whole" if isinstance(within, Integer) else "slider"
            description |= {"kind": kind, "low": within.low, "high": within.high}
            if knob.suggestions:
                description["presets"] = knob.suggestions
        case Switch():
            pass
        case _:
            raise TypeError(within)
    return description


def _option_names(within: Choice, layer: Layer | None) -> dict[str, str]:
    """Returns the labels of options that differ from their values, such as layer names or the source's own mask."""
    if within.names:
        return dict(zip(map(to_text, within.options), within.names, strict=True))
    if layer is None or override.SOURCE_MASK not in within.options:
        return {}
    return {override.SOURCE_MASK: f"{override.SOURCE_MASK} ({_source_mask(layer)})"}
