"""All heads as small pictures: the row of one query, or the column of one key, over the picture in every head."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.core.cell import Cell
from attention.core.steps import Step, find_step
from attention.core.trace import Trace
from attention.pictures import scales
from attention.pictures.all_layers import HeadOrder
from attention.pictures.downsample import block_offsets, pool_blocks
from attention.pictures.drawing import HIDDEN_TRACE, describe_range, hidden_cells, layer_label
from attention.pictures.layout import (
    Panel,
    Spec,
    base_layout,
    hover_labels,
    outline,
    panel_label,
    panel_ticks,
)
from attention.pictures.lines_over_picture import Lines, chosen_lines, iterate_lines, same_tokens
from attention.pictures.message_contract import Meta
from attention.pictures.mosaic import MOSAIC_CELLS, filled_canvas
from attention.pictures.over_picture import EDGE, FITTED, OPACITY, layout_images
from attention.pictures.picture_tiles import USUAL_WIDTH, Tiles, arrange
from attention.pictures.redraw import plotly_variant
from attention.pictures.token_grid import TokenGrid
from attention.printed import plural

if TYPE_CHECKING:
    from numpy.typing import NDArray

THUMBNAIL = 96
"""The largest height and width in pixels of the picture under a head."""
_MAX_EDGES = 250  # boxes of other tokens with an edge
_MAX_IMAGES = 2048  # pictures under all heads


def heads_over_picture_json(
    trace: Trace,
    step: str,
    layer: int = 0,
    query: int | None = None,
    key: int | None = None,
    chosen: Cell | None = None,
    colors: str = "fixed",
    all_layers: bool = True,
    cells: int = MOSAIC_CELLS,
    order: HeadOrder = (),
    by: str = "",
    opacity: float = OPACITY,
) -> Spec:
    """Returns a small picture for each head: the row of one query over the picture of its keys, or the column of one key over that of its queries.

    Tokens that are no patches, such as [CLS] and words, are cells above the picture. All pictures share one colour scale, whose range
    is that of the drawn numbers, not of the whole step. Above `cells` numbers, each cell shows the number of largest magnitude in a block, and the title states it.

    Args:
        trace: of a model that reads a picture.
        step: a step whose rows or columns lie along patches.
        layer: the layer that is drawn, or whose tokens the drawn layers have.
        query: the query whose rows are drawn; by default `default_query`, where the keys are patches.
        key: the key, or the column of another axis such as d_v, whose columns are drawn.
        chosen: the cell whose head is outlined.
        colors: one of `scales.COLORS`, or `over_picture.FITTED`: up to the largest number on a patch.
        all_layers: whether to draw every layer that has this step and the same tokens, a row for each.
        cells: the maximum number of cells drawn.
        order: another order of the heads of all layers, line by line.
        by: what `order` sorts by, in words.
        opacity: of the colours over the picture.

    Raises:
        MissingError: there is no such layer, step, query or key, both of these are given, or the axis has no patches.
        ConfigError: `colors` is not one of `COLORS`.
    """
    declaration, of_layer = find_step(step), trace.layer(layer)
    lines = chosen_lines(of_layer, declaration, layer, query, key)
    grid = TokenGrid.of(lines.tokens)
    assert grid is not None  # `chosen_lines` has checked it
    present = same_tokens(trace, declaration, layer) if all_layers else [layer]
    heads = {index: trace.layers[index].n_heads if declaration.per_head else 1 for index in present}
    order = [(index, head) for index, head in order if head < heads.get(index, 0)]
    n_heads = sum(heads.values())
    block = math.ceil(math.sqrt(max(1.0, n_heads * grid.positions.size / cells)))
    tiles = arrange(heads, grid.positions.shape, block, order, all_layers)
    z, offsets, hidden = _fill(trace, declaration, lines, grid, tiles)
    color_keys, extra_traces = _colors(declaration, colors, z, grid, tiles)
    facts = [lines.name, f"{plural(len(present), 'layer')}, {plural(n_heads, 'head')}"]
    others = sum(other.has(step) for other in trace.layers) - len(present) if all_layers else 0
    facts += [f"{others} more {'layer has' if others == 1 else 'layers have'} other tokens"] * bool(others)
    facts += [f"each cell the largest of {block} × {block}"] * (block > 1)
    facts += [f"sorted by {by}, the largest first"] * bool(order)
    facts += [f"{grid.n_left_out} more tokens are not drawn"] * bool(grid.n_left_out)
    images = _images(grid, trace, tiles.panels)
    facts += ["without the pictures, which are too many here"] * bool(trace.pictures and not images)
    seen = ", ".join(f"{placed.rows} rows and {placed.columns} columns of patches" for placed in grid.pictures)
    meta: Meta = {
        "alt": f"{step} of each head over the picture, {', '.join(facts)}: {seen}, {describe_range(_span(z))}.",
        "step": step,
        "panels": [asdict(panel) for panel in tiles.panels],
        "axes": [axis.removesuffix("_pos") for axis in (declaration.row_axis, declaration.column_axis)],
        "file": [step, "heads-over-picture", f"{lines.reads}-{lines.at}"],
        "offsets": offsets,
        "rows": {"labelalias": hover_labels(of_layer, declaration.row_axis)},
        "columns": {"labelalias": hover_labels(of_layer, declaration.column_axis)},
        "panel_grid": {"positions": grid.positions.astype(np.int32), "reads": lines.reads, "at": lines.at},
        "design_width": USUAL_WIDTH if tiles.has_rows else USUAL_WIDTH // 2,  # labels need space between the lines
    }  # fmt: skip
    layout = base_layout(z.shape, f"<b>{declaration.symbol}</b>  {step} of each head over the picture", facts, meta)
    layout |= {"height": tiles.pixels, "margin": {"l": 12, "r": 22, "t": 96, "b": 12}}  # right: as over one picture
    layout["uirevision"] = f"heads over the picture {layout['uirevision']}"
    layout["xaxis"] |= {**panel_ticks(()), "side": "top", "constrain": "domain"}
    layout["yaxis"] |= {
        **panel_ticks(()),
        "scaleanchor": "x",
        "constrain": "domain",
        "constraintoward": "top",
    }  # square cells
    layout["images"] = images
    layout["shapes"] = _edges(grid, tiles.panels) + [
        outline(panel.x, panel.y, panel.columns, panel.rows, 3)
        for panel in tiles.panels
        if chosen is not None and declaration.per_head and (panel.layer, panel.head) == (chosen.layer, chosen.head)
    ]
    if tiles.has_rows:
        columns = [(column * tiles.width, tiles.columns, f"H{column}") for column in range(tiles.across)]
        rows = [(i * tiles.height, tiles.rows, layer_label(trace.layers[at], at)) for i, at in enumerate(present)]
        layout["xaxis"] |= panel_ticks(columns if declaration.per_head else ())
        layout["yaxis"] |= panel_ticks(rows)
        layout["margin"]["l"] = 16 + 7 * max(len(text) for _, _, text in rows)
    elif declaration.per_head:
        style = {"borderpad": 0, "font": {"size": 10 if tiles.across > 8 else 11}}
        layout["annotations"] = [panel_label(f"L{panel.layer} H{panel.head}", panel, **style) for panel in tiles.panels]
    heat = {"type": "heatmap", "z": z, **color_keys, "opacity": opacity, "hoverongaps": False, "hoverinfo": "none"}
    hidden_traces = [HIDDEN_TRACE | {"z": hidden, "opacity": opacity, "hoverinfo": "none"}] * bool(
        np.isfinite(hidden).any()
    )
    return {"data": [heat, *hidden_traces, *extra_traces], "layout": layout}


heads_over_picture = plotly_variant(heads_over_picture_json)
"""`heads_over_picture_json` as a Plotly figure."""


def _fill(
    trace: Trace, step: Step, lines: Lines, grid: TokenGrid, tiles: Tiles
) -> tuple[NDArray[Any], NDArray[np.unsignedinteger], NDArray[np.float32]]:
    """Returns the numbers of all pictures [row column], the offset of each in its block, and 1 for each cell that the mask hides."""
    block = tiles.panels[0].block
    z = filled_canvas(tiles.panels, np.float16(np.nan))
    hidden = filled_canvas(tiles.panels, np.float32(np.nan))
    offsets = np.zeros(z.shape, np.min_scalar_type(max(1, block * block - 1)))
    panels = {(panel.layer, panel.head): panel for panel in tiles.panels}
    for index in dict.fromkeys(panel.layer for panel in tiles.panels):
        mask = hidden_cells(trace, step, index)
        is_hidden = None if mask is None else grid.fill(np.where(lines.of(mask), np.float32(1), np.float32(np.nan)))
        for head, line in enumerate(iterate_lines(trace.layers[index], step, lines)):
            if z.dtype != (dtype := np.promote_types(z.dtype, line.dtype)):
                z = z.astype(dtype)  # the first line decides
            filled, area = grid.fill(np.where(np.isfinite(line), line, np.nan)), panels[index, head].area
            pooled = pool_blocks(filled, block, block)
            z[area] = np.where(np.isfinite(pooled), pooled, np.nan)
            if block > 1:
                offsets[area] = block_offsets(filled, block, block)
            if is_hidden is not None:  # a block is hidden if every token in it is
                is_visible = np.isfinite(filled) & np.isnan(is_hidden)
                hidden[area] = np.where(
                    pool_blocks(np.isfinite(is_hidden), block, block) & ~pool_blocks(is_visible, block, block),
                    np.float32(1),
                    np.float32(np.nan),
                )
    return z, offsets, hidden


def _colors(
    step: Step, colors: str, z: NDArray[Any], grid: TokenGrid, tiles: Tiles
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the keys of the heatmap for its colours, and the trace of a colour bar that needs one."""
    if colors != FITTED:
        return scales.color_keys(step, *scales.scale_range(step, _span(z), colors), colors, many=True)
    top = max(placed.y for placed in grid.pictures) // tiles.panels[0].block
    on_patches = [z[panel.area][top:] for panel in tiles.panels]
    ends = scales.scale_range(step, _span(np.stack(on_patches)), "stretched")
    keys, extra_traces = scales.color_keys(step, *ends, "stretched", many=True)
    return keys | {"meta": {"colors": FITTED}}, extra_traces


def _span(numbers: NDArray[Any]) -> tuple[float, float] | None:
    finite = numbers[np.isfinite(numbers)]
    return (float(finite.min()), float(finite.max())) if finite.size else None


def _edges(grid: TokenGrid, panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Returns the edges of the boxes of other tokens, which touch each other; none in a figure of many, where they would hide the boxes."""
    if len(grid.others) < 2 or len(grid.others) * len(panels) > _MAX_EDGES or panels[0].block > 1:
        return []
    return [
        outline(panel.x + token.x, panel.y + token.y, token.columns, 1, 1) | {"line": EDGE}
        for panel in panels
        for token in grid.others
    ]


def _images(grid: TokenGrid, trace: Trace, panels: Sequence[Panel]) -> list[dict[str, Any]]:
    """Returns the pictures of the grid in every panel, as the ``images`` of a Plotly layout; all panels share the text of a source. None in a figure of too many."""
    if len(grid.pictures) * len(panels) > _MAX_IMAGES:
        return []
    pictures = layout_images(grid, trace, exact=False, max_side=THUMBNAIL)
    return [
        image
        | {
            "x": panel.x - 0.5 + (image["x"] + 0.5) / panel.block,
            "y": panel.y - 0.5 + (image["y"] + 0.5) / panel.block,
            "sizex": image["sizex"] / panel.block,
            "sizey": image["sizey"] / panel.block,
        }
        for panel in panels
        for image in pictures
    ]
