"""All heads of all layers in one map: a row for each layer and a column for each head, or all heads sorted by a metric."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import reduce
from typing import Any

import numpy as np

from attention.core.cell import Cell
from attention.core.stats import StepStats
from attention.core.steps import Step, find_step
from attention.core.trace import Trace
from attention.errors import MissingError
from attention.pictures import scales
from attention.pictures.drawing import HIDDEN_TRACE, describe_range, hidden_cells, layer_label
from attention.pictures.layout import (
    AXIS_TITLES,
    Panel,
    Spec,
    base_layout,
    hover_labels,
    outline,
    panel_label,
    panel_ticks,
)
from attention.pictures.message_contract import Meta
from attention.pictures.mosaic import MOSAIC_CELLS, Canvas, is_pooling_cached, is_streamed, pool_heads

HeadOrder = Sequence[tuple[int, int]]
"""Heads as (layer, head), in the order in which they are drawn."""

CELLS_PER_SECOND = 40_000_000  # weights computed and pooled; measured on one thread
_USUAL_WIDTH, _MAX_HEIGHT = 900, 1500  # pixels: the usual width and the maximum height of a map
_PANEL_HEIGHTS = (40, 130)  # pixels: the minimum and maximum height of a panel


def layers_json(
    trace: Trace,
    step: str,
    chosen: Cell | None = None,
    colors: str = "fixed",
    cells: int = MOSAIC_CELLS,
    order: HeadOrder = (),
    by: str = "",
) -> Spec:
    """Returns one map of every head of every layer that has a step, with gutters and one colour scale.

    Without an `order`, each layer is a row and each column a head. Layers may differ in tokens and in
    numbers of heads. Above `cells` numbers, each cell shows the number of largest magnitude in a block, and the title states it.

    Args:
        trace: the trace.
        step: the step whose matrices are drawn.
        chosen: the cell whose head is outlined.
        colors: as for a single map.
        cells: the maximum number of cells drawn.
        order: another order of all heads, row by row.
        by: what `order` sorts by, in words.

    Raises:
        MissingError: no layer has the step.
        ConfigError: `colors` is not one of `COLORS`.
    """
    declaration = find_step(step)
    present = [i for i, layer in enumerate(trace.layers) if layer.has(step)]
    if not present:
        raise MissingError(f"no layer of this source has {step}: choose another step.")
    heads = {i: trace.layers[i].n_heads if declaration.per_head else 1 for i in present}
    shapes = {i: trace.layers[i].shape(step)[-2:] for i in present}
    block = _block(trace, step, cells)
    rows, columns = (-(-max(sides) // block) for sides in zip(*shapes.values(), strict=True))
    order = [(i, head) for i, head in order if i in heads and head < heads[i]]
    panel_width = columns + max(1, columns // 10)
    panel_height = rows + max(1, math.ceil(rows * 0.3) if order else rows // 10)
    positions = places_of_heads(heads, order)
    panels_down, panels_across = (max(place) + 1 for place in zip(*positions.values(), strict=True))
    panels = []
    for (i, head), (row, column) in sorted(positions.items()):
        sides = [-(-side // block) for side in shapes[i]]
        panels.append(Panel(head, column * panel_width, row * panel_height, sides[0], sides[1], block, i))
    canvas = Canvas(panels)
    pooled = {i: pool_heads(trace.layers[i], step, block) for i in present}
    hidden = {i: hidden_cells(trace, declaration, i) for i in present}
    for panel in panels:
        canvas.put(panel, pooled[panel.layer], hidden[panel.layer])
    facts = reduce(StepStats.merge, (heads.facts for heads in pooled.values()))
    n_heads_text = f"{len(present)} {'layer' if len(present) == 1 else 'layers'}, {len(panels)} heads"
    shape_text = " × ".join(map(str, shapes[present[0]])) if len(set(shapes.values())) == 1 else "of several sizes"
    subtitle = [trace.layers[present[0]].formula_of(declaration), n_heads_text, shape_text]
    subtitle += [f"each cell the largest of {block} × {block}"] * (block > 1)
    subtitle += [f"sorted by {by}, the largest first"] * bool(order)
    low, high = scales.scale_range(declaration, facts.finite_range, colors)
    color_keys, extra_traces = scales.color_keys(declaration, low, high, colors, many=True)
    same_axes = len({(trace.layers[i].tokens, trace.layers[i].key_tokens, shapes[i]) for i in present}) == 1
    axes = declaration.row_axis, declaration.column_axis
    names = [hover_labels(trace.layers[present[0]], axis) if same_axes else {} for axis in axes]
    meta: Meta = {
        "alt": _alt(declaration, subtitle, facts, scales.describe_colors(declaration, low, high, colors)),
        "step": step,
        "panels": [asdict(panel) for panel in panels],
        "axes": [axis.removesuffix("_pos") for axis in axes],
        "file": [step, "all-heads"],
        "offsets": canvas.offsets.astype(np.min_scalar_type(max(1, block * block - 1))),
        "rows": {"labelalias": names[0]},
        "columns": {"labelalias": names[1]},
        "design_width": _USUAL_WIDTH // 2 if order else _USUAL_WIDTH,  # labels need space between the rows
    }
    layout = base_layout(canvas.numbers.shape, f"<b>{declaration.symbol}</b>  {step}", subtitle, meta)
    layout |= {"margin": {"l": 48, "r": 12, "t": 96, "b": 12}, "uirevision": f"all heads of {layout['uirevision']}"}
    layout["xaxis"] |= {**panel_ticks(()), "side": "top"}
    layout["yaxis"] |= panel_ticks(())
    layout["height"] = round(
        130
        + panels_down
        * min(_MAX_HEIGHT / panels_down, _panel_pixels(panels_across, rows, columns))
        * panel_height
        / rows
    )
    layout["shapes"] = [
        outline(panel.x, panel.y, panel.columns, panel.rows, 3)
        for panel in panels
        if chosen is not None and (panel.layer, panel.head) == (chosen.layer, chosen.head)
    ]
    if order:
        label_style = {"borderpad": 0, "font": {"size": 10 if panels_across > 8 else 11}}
        layout["annotations"] = [panel_label(f"L{panel.layer} H{panel.head}", panel, **label_style) for panel in panels]
        layout["margin"]["l"] = 12
    else:
        layout["xaxis"] |= panel_ticks(
            [(column * panel_width, columns, f"H{column}") for column in range(panels_across)]
        )
        layout["yaxis"] |= panel_ticks(
            [(index * panel_height, rows, layer_label(trace.layers[i], i)) for index, i in enumerate(present)]
        )
        layout["margin"]["l"] = 16 + 7 * max(len(text) for text in layout["yaxis"]["ticktext"])
    return {"data": [*_cells(canvas, color_keys), *extra_traces], "layout": layout}


def places_of_heads(heads: Mapping[int, int], order: HeadOrder = ()) -> dict[tuple[int, int], tuple[int, int]]:
    """Returns the place (row, column) of the panel of each head (layer, head): a row for each layer, or line by line in an `order`.

    Args:
        heads: the number of heads of each layer, by its index.
        order: another order of the heads.
    """
    if not order:
        return {(layer, head): (row, head) for row, layer in enumerate(heads) for head in range(heads[layer])}
    across = max(*heads.values(), math.ceil(math.sqrt(1.2 * len(order))))
    return {layer_head: divmod(index, across) for index, layer_head in enumerate(order)}


def _cells(canvas: Canvas, color_keys: dict[str, Any]) -> list[dict[str, Any]]:
    """Returns the heatmap of the numbers, and the trace of hidden cells; the page finds the head and cell of a position."""
    finite = np.isfinite(canvas.numbers)
    numbers = np.where(finite, canvas.numbers, np.nan).astype(canvas.numbers.dtype)
    cells = {"type": "heatmap", "z": numbers, **color_keys, "hoverongaps": False, "hoverinfo": "none"}
    hidden = np.where(canvas.hidden, np.float32(1), np.float32(np.nan))
    return [cells, {**HIDDEN_TRACE, "z": hidden, "hoverinfo": "none"}] if canvas.hidden.any() else [cells]


def estimate_seconds(trace: Trace, step: str, cells: int = MOSAIC_CELLS) -> float:
    """Returns an estimate of the seconds that `layers_json` takes on one thread; cached heads take none."""
    block = _block(trace, step, cells)
    uncached = (
        layer
        for layer in trace.layers
        if layer.has(step) and is_streamed(layer, step) and not is_pooling_cached(layer, step, block)
    )
    return sum(math.prod(layer.shape(step)) for layer in uncached) / CELLS_PER_SECOND


def _block(trace: Trace, step: str, cells: int) -> int:
    """Returns the number of rows and columns per cell, so that the map has at most `cells` cells."""
    numbers = 0
    for layer in trace.layers:
        if layer.has(step):
            heads = layer.n_heads if find_step(step).per_head else 1
            numbers += heads * math.prod(layer.shape(step)[-2:])
    return math.ceil(math.sqrt(max(1.0, numbers / cells)))


def _panel_pixels(across: int, rows: int, columns: int) -> float:
    """Returns the height of a panel in pixels; cells are approximately square."""
    lowest, highest = _PANEL_HEIGHTS
    return min(highest, max(lowest, _USUAL_WIDTH / across * min(2.0, max(0.5, rows / columns))))


def _alt(step: Step, facts: Sequence[str], numbers: StepStats, colors: str) -> str:
    """Returns the alternative text of the map for screen readers."""
    axes = (AXIS_TITLES.get(axis, axis) for axis in (step.row_axis, step.column_axis))
    facts_text = ", ".join(filter(None, [describe_range(numbers.finite_range), colors]))
    return f"Heatmaps of {step.name} ({step.symbol} = {', '.join(facts)}): each {' by '.join(axes)}, {facts_text}."
