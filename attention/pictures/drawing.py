"""Build a map: its colours, hidden cells, hover texts and alternative text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.base.printed import format_number
from attention.formula.names import Cell
from attention.formula.steps import MAP_AXES, Step, find_step
from attention.pictures import scales
from attention.pictures.layout import axis_title, map_layout, short_axis_name
from attention.pictures.look import LIGHT
from attention.pictures.marks import Panel, Spec
from attention.pictures.message_contract import Meta
from attention.trace.layer import Layer
from attention.trace.stats import StepStats, finite_range
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

_MAX_LAYER_NAME = 14  # characters of a layer's name beside its index
HIDDEN_COLOR, ALLOWED_COLOR = LIGHT["line"], LIGHT["yes"]


def build_map(
    trace: Trace,
    step: Step,
    layer: int,
    matrix: NDArray[Any],
    hidden: NDArray[Any] | None,
    panels: list[Panel],
    colors: str,
    heat: dict[str, Any] | None = None,
    tensor: Tensor | None = None,
    span: tuple[float, float] | None = None,
    **layout: Any,
) -> Spec:
    """Returns a map of `matrix` [row column] with titles, colours, hover texts and alternative text; `hidden` cells have a neutral background.

    `heat` is added to the heatmap, and `layout` to the layout. Pass `tensor` where `step` is not a step of the layer, such as a
    parameter; pass `span`, the range of the colours, if it exceeds that of the matrix.
    """
    finite, drawn_layer = np.isfinite(matrix), trace.layer(layer)
    value_range = drawn_layer.finite_range(step.name) if tensor is None else finite_range(tensor)
    head_drawn = panels[0].head if len(panels) == 1 else None
    stats = scales.drawn_stats(drawn_layer, step.name, head_drawn) if tensor is None else StepStats(*value_range or ())
    low, high = scales.scale_range(step, span or stats.drawn_range(drawn_layer.hides_keys), colors)
    largest = max(-stats.low, stats.high) if stats.low is not None and stats.high is not None else 0.0
    shape = " × ".join(map(str, (drawn_layer.shape(step.name) if tensor is None else tensor.shape)[-2:]))
    where = f"{layer_label(drawn_layer, layer)}{_heads(drawn_layer, step, panels)}"
    panel_layer = drawn_layer.for_head(panels[0].head) if len(panels) == 1 else drawn_layer
    formula = panel_layer.formula_of(step)
    facts = [formula, where, shape]
    if panels[0].block > 1:
        facts.append(f"each cell the largest of {panels[0].block} × {panels[0].block}")
    if trace.changes:
        facts.append("model changed")
    mask = panel_layer.mask
    n_blind = int((~mask.any(dim=1)).sum()) if mask is not None and hidden is not None else 0
    facts += describe_blind_queries(n_blind)

    rows, columns = matrix.shape
    many = len(panels) > 1
    head_data: dict[str, Any] = {}  # the head of each cell; with one panel it is in the hover text
    if many:
        head_data["customdata"] = head_of_cell = np.zeros((rows, columns), dtype=np.uint16)
        for panel in panels:
            head_of_cell[panel.area] = panel.head
    head = f" H{'%{customdata}' if many else panels[0].head}" if step.per_head else ""
    hover = f"{step.name} L{layer}{head}<br>{short_axis_name(step.row_axis)} %{{y}}<br>{short_axis_name(step.column_axis)} %{{x}}<br>"
    color_keys, extra_traces = scales.color_keys(step, low, high, colors, many)
    z = matrix if finite.all() else np.where(finite, matrix, np.nan).astype(matrix.dtype)
    heatmap: dict[str, Any] = {
        "type": "heatmap", "z": z, **head_data, **color_keys, "hovertemplate": hover + "<b>%{z:.9g}</b><extra></extra>",
        "hoverongaps": False,  # no hover between panels; hidden cells have a separate trace
        **(heat or {}),
    }  # fmt: skip
    if step.kind == "signed" and largest > high:
        heatmap["meta"] = {"colors": "cut"}  # the page keeps this end while a knob changes
    data = [heatmap]
    hidden_trace = make_hidden_trace(hover, "0" if step.kind == "probability" else "−∞")
    if hidden is not None and hidden.any():
        data.append({**hidden_trace, "z": np.where(hidden, np.float32(1), np.float32(np.nan)), **head_data})
    data += extra_traces
    color_text = scales.describe_colors(step, low, high, colors)
    sums = drawn_layer.stats(step.name) if tensor is None and step.kind == "probability" else None
    file_heads = "-heads" if many else f"-H{panels[0].head}" if step.per_head else ""
    meta: Meta = {
        "alt": _alt(step, formula, sums, where, shape, n_blind, value_range, color_text),
        "step": step.name,
        "layer": layer,
        "panels": [asdict(panel) | {"layer": layer} for panel in panels],
        "axes": [short_axis_name(step.row_axis), short_axis_name(step.column_axis)],
        "file": [step.name, f"L{layer}{file_heads}"],
    }
    if step.axes == MAP_AXES:
        meta["hidden_trace"] = hidden_trace
    heading = f"<b>{step.symbol}</b>  {step.name}"
    base = map_layout(drawn_layer, (step.row_axis, step.column_axis), panels, heading, facts, meta, (rows, columns))
    base["margin"] |= layout.pop("margin", {})
    if beside_bar := scales.scale_note(step, high, colors, many, largest):
        layout["annotations"] = [*layout.get("annotations", []), *beside_bar]
    return {"data": data, "layout": base | layout}


HIDDEN_TRACE = {
    "type": "heatmap", "colorscale": [[0, HIDDEN_COLOR], [1, HIDDEN_COLOR]], "showscale": False, "hoverongaps": False,
}  # fmt: skip
"""A heatmap trace for hidden cells, without their positions."""


def make_hidden_trace(hover: str, number: str) -> dict[str, Any]:
    """Returns the trace of hidden cells, whose hover text shows `number`."""
    return {**HIDDEN_TRACE, "hovertemplate": f"{hover}<b>{number}</b>, hidden by the mask<extra></extra>"}


def hidden_cells(trace: Trace, step: Step, layer: int, head: int | None = None) -> NDArray[np.bool_] | None:
    """Returns which cells [query_pos key_pos] the mask of a head hides (without `head`, of all heads); None for steps without a mask."""
    if not step.masked:
        return None
    drawn_layer = trace.layer(layer)
    same_formula = drawn_layer.formula is None or not drawn_layer.formula.heads
    heads = [head or 0] if same_formula or head is not None else range(drawn_layer.n_heads)
    masks = [drawn_layer.for_head(index).mask for index in heads]
    hidden_by_head = [np.logical_not(mask.numpy()) for mask in masks if mask is not None]
    if not masks or len(hidden_by_head) < len(masks):
        return None
    hidden: NDArray[np.bool_] = np.logical_and.reduce(hidden_by_head)
    return hidden


def why_hidden(trace: Trace, cell: Cell) -> str:
    """Returns what hides the key of a cell from its query, in words; empty if the query sees it, or the step has no mask."""
    hidden = hidden_cells(trace, find_step(cell.step), cell.layer, cell.head)
    if hidden is None or not hidden[cell.row, cell.column]:
        return ""
    formula = trace.layer(cell.layer).for_head(cell.head).formula
    return formula.mask.why_hidden(cell.row, cell.column) if formula and formula.mask else "the mask"


def _alt(
    step: Step, formula: str, facts: StepStats | None, where: str, shape: str, blind: int, span: tuple[float, float] | None, colors: str
) -> str:  # fmt: skip
    parts = [axis_title(step.row_axis) + " by " + axis_title(step.column_axis), describe_range(span)]
    parts += describe_blind_queries(blind, "row sees", "rows see")
    if (
        not blind
        and facts is not None
        and 0.999 < (facts.min_row_sum or 0) <= (facts.max_row_sum or 0) < 1.001
        and not facts.zero_rows
    ):
        parts.append("every row sums to 1")
    parts += filter(None, [colors])
    return f"Heatmap of {step.name} ({step.symbol} = {formula}), {where}, {shape}: {', '.join(parts)}."


def describe_range(span: tuple[float, float] | None) -> str:
    """Returns the range of a map's numbers in words."""
    return f"numbers from {format_number(span[0])} to {format_number(span[1])}" if span else "every number hidden"


def describe_blind_queries(count: int, singular: str = "query sees", plural: str = "queries see") -> list[str]:
    """Returns a list with a note about queries that see no key; empty if there are none."""
    return [f"{count} {singular if count == 1 else plural} no key"] * bool(count)


def layer_label(layer: Layer, number: int) -> str:
    """Returns the label of a layer on a map: "L3", "L7 cross 1"."""
    is_plain = layer.name in ("", f"layer {number}")
    return f"L{number}" if is_plain else f"L{number} {escape(layer.name[:_MAX_LAYER_NAME])}"


def _heads(layer: Layer, step: Step, panels: Sequence[Panel]) -> str:
    """Returns the heads of a map in words; for shared keys and values, also the query heads that share them."""
    if not step.per_head:
        return ""
    if len(panels) > 1:
        return f", {len(panels)} heads"
    head, group = panels[0].head, layer.n_heads // layer.sizes.get(step.axes[0], layer.n_heads)
    if group == 1:
        return f" H{head}"
    first = head // group * group
    return f" key head {head // group}, shared by H{first} to H{first + group - 1}"
