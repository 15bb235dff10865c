"""All heads as small pictures: the row of one query, or the column of one key, over the picture in every head; a row of pictures for each layer, or line by line."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.base import cache
from attention.base.printed import plural
from attention.base.tokens import any_patch
from attention.formula.names import KEY, Cell
from attention.formula.steps import find_step
from attention.pictures import scales
from attention.pictures.drawing import describe_range, hidden_cells, layer_label
from attention.pictures.layout import base_layout, hover_labels, panel_ticks
from attention.pictures.marks import Mark, Panel, Spec, draw, outline
from attention.pictures.message import plotly_variant
from attention.pictures.message_contract import Meta
from attention.pictures.mosaic import (
    MOSAIC_CELLS,
    HeadOrder,
    cell_traces,
    filled_canvas,
    head_matrices,
    is_streamed,
    label_lines,
    outline_head,
    panel_labels,
    panels_across,
    places_of_heads,
    seconds_of_heads,
)
from attention.pictures.over_picture import EDGE, MapLine, TokenGrid, fitted_colors, layout_images, span_of
from attention.trace.large_map import block_offsets, pool_blocks
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

_THUMBNAIL = 96
"""The largest height and width in pixels of the picture under a head."""
_MAX_EDGES = 250  # boxes of other tokens with an edge
_MAX_IMAGES = 2048  # pictures under all heads
_USUAL_WIDTH = 900  # pixels of a map
_PANEL_HEIGHTS = (56, 240)  # pixels, the lowest and the highest picture
_MAX_HEIGHT = 1700


def heads_over_picture_json(
    line: MapLine,
    colors: str = "fixed",
    opacity: float = scales.OPACITY,
    all_layers: bool = True,
    cells: int = MOSAIC_CELLS,
    order: HeadOrder | None = None,
) -> Spec:
    """Returns a small picture for each head: the row of one query over the picture of its keys, or the column of one key over that of its queries.

    Tokens that are no patches, such as [CLS] and words, are cells above the picture. All pictures share one colour scale, whose range
    is that of the drawn numbers, not of the whole step. Above `cells` numbers, each cell shows the number of largest magnitude in a block, and the title states it.

    Args:
        line: what is drawn of every head; its own head is outlined.
        colors: one of `scales.COLORS`, or `scales.FITTED`: up to the largest number on a patch.
        opacity: of the colours over the picture.
        all_layers: whether to draw every layer that has this step and the same tokens, a row for each.
        cells: the maximum number of cells drawn.
        order: another order of the heads of all layers, line by line.

    Raises:
        MissingError: the layer does not have this step.
        ConfigError: `colors` is not one of `COLORS`.
    """
    trace, step, grid = line.trace, line.step, line.grid.stretched()
    present = _same_tokens(line) if all_layers else [line.layer]
    heads = {index: trace.layers[index].n_heads if step.per_head else 1 for index in present}
    sorted_heads = [(index, head) for index, head in order.numbers if head < heads.get(index, 0)] if order else []
    n_heads = sum(heads.values())
    block = math.ceil(math.sqrt(max(1.0, n_heads * grid.positions.size / cells)))
    tiles = _arrange(heads, grid.positions.shape, block, sorted_heads, all_layers)
    z, offsets, hidden = _fill(line, grid, tiles)
    top = max(placed.y for placed in grid.pictures) // block
    on_patches = np.stack([z[panel.area][top:] for panel in tiles.panels])
    color_keys, extra_traces = fitted_colors(step, colors, span_of(z), on_patches, many=True)
    images = _images(grid, trace, tiles.panels)
    facts = [line.name, f"{plural(len(present), 'layer')}, {plural(n_heads, 'head')}"]
    others = sum(other.has(step.name) for other in trace.layers) - len(present) if all_layers else 0
    facts += [f"{others} more {'layer has' if others == 1 else 'layers have'} other tokens"] * bool(others)
    facts += [f"each cell the largest of {block} × {block}"] * (block > 1)
    facts += [f"sorted by {order.by}, the largest first"] if order and sorted_heads else []
    facts += [f"{grid.n_left_out} more tokens are not drawn"] * bool(grid.n_left_out)
    facts += [f"without the {line.noun}s, which are too many here"] * bool(trace.pictures and not images)
    meta: Meta = {
        "alt": f"{step.name} of each head over the {line.noun}, {', '.join(facts)}: {grid.words}, {describe_range(span_of(z))}.",
        "step": step.name, "panels": [asdict(panel) for panel in tiles.panels],
        "axes": [axis.removesuffix("_pos") for axis in (step.row_axis, step.column_axis)],
        "file": [step.name, "heads-over-picture", f"{line.reads}-{line.at}"],
        "offsets": offsets,
        "rows": {"labelalias": hover_labels(trace.layers[line.layer], step.row_axis)},
        "columns": {"labelalias": hover_labels(trace.layers[line.layer], step.column_axis)},
        "panel_grid": {"positions": grid.positions.astype(np.int32), "reads": line.reads, "at": line.at},
        "design_width": _USUAL_WIDTH if tiles.has_rows else _USUAL_WIDTH // 2,  # labels need space between the lines
    }  # fmt: skip
    layout = base_layout(z.shape, f"<b>{step.symbol}</b>  {step.name} of each head over the {line.noun}", facts, meta)
    _lay_out(layout, tiles, [layer_label(trace.layers[index], index) for index in present], step.per_head)
    chosen = None if line.head is None or not step.per_head else Cell(line.layer, step.name, line.head, 0, 0)
    return draw(
        layout, *cell_traces(z, hidden, {**color_keys, "opacity": opacity}, {"opacity": opacity}), *extra_traces, *images, *_edges(grid, tiles.panels),
        *outline_head(tiles.panels, chosen), *(panel_labels(tiles.panels) if step.per_head and not tiles.has_rows else ()),
    )  # fmt: skip


heads_over_picture = plotly_variant(heads_over_picture_json)
"""`heads_over_picture_json` as a Plotly figure."""


def _lay_out(layout: dict[str, Any], tiles: _Tiles, names: Sequence[str], per_head: bool) -> None:
    """Makes cells square in a layout, and where each line of pictures is a layer, writes the `names` of the layers and the heads beside them."""
    layout |= {"height": tiles.pixels, "margin": {"l": 12, "r": 22, "t": 96, "b": 12}}  # right: as over one picture
    layout["uirevision"] = f"heads over the picture {layout['uirevision']}"
    layout["xaxis"] |= {**panel_ticks(()), "side": "top", "constrain": "domain"}
    layout["yaxis"] |= {**panel_ticks(()), "scaleanchor": "x", "constrain": "domain", "constraintoward": "top"}
    if tiles.has_rows:
        first = tiles.panels[0]
        columns = [(i * tiles.width, first.columns, f"H{i}") for i in range(tiles.across)] if per_head else []
        label_lines(layout, [(i * tiles.height, first.rows, name) for i, name in enumerate(names)], columns)


def _fill(
    line: MapLine, grid: TokenGrid, tiles: _Tiles
) -> tuple[NDArray[Any], NDArray[np.unsignedinteger], NDArray[np.bool_]]:
    """Returns the numbers of all pictures [row column], the offset of each in its block, and which cells the mask hides."""
    block = tiles.panels[0].block
    z, hidden = filled_canvas(tiles.panels, np.float16(np.nan)), filled_canvas(tiles.panels, np.bool_(False))
    offsets = np.zeros(z.shape, np.min_scalar_type(max(1, block * block - 1)))
    panels = {(panel.layer, panel.head): panel for panel in tiles.panels}
    for index in dict.fromkeys(panel.layer for panel in tiles.panels):
        mask = hidden_cells(line.trace, line.step, index)
        is_hidden = None if mask is None else np.isfinite(grid.fill(np.where(line.along(mask), 1.0, np.nan)))
        for head, numbers in enumerate(_iterate_lines(line, line.trace.layers[index])):
            if z.dtype != (dtype := np.promote_types(z.dtype, numbers.dtype)):
                z = z.astype(dtype)  # the first line decides
            filled, area = grid.fill(np.where(np.isfinite(numbers), numbers, np.nan)), panels[index, head].area
            pooled = pool_blocks(filled, block, block)
            z[area] = np.where(np.isfinite(pooled), pooled, np.nan)
            if block > 1:
                offsets[area] = block_offsets(filled, block, block)
            if is_hidden is not None:  # a block is hidden if every token in it is
                is_visible = np.isfinite(filled) & ~is_hidden
                hidden[area] = pool_blocks(is_hidden, block, block) & ~pool_blocks(is_visible, block, block)
    return z, offsets, hidden


def _edges(grid: TokenGrid, panels: Sequence[Panel]) -> list[Mark]:
    """Returns the edges of the boxes of other tokens, which touch each other; none in a figure of many, where they would hide the boxes."""
    if len(grid.others) < 2 or len(grid.others) * len(panels) > _MAX_EDGES or panels[0].block > 1:
        return []
    return [
        outline(panel.x + token.x, panel.y + token.y, token.columns, 1, **EDGE)
        for panel in panels
        for token in grid.others
    ]


def _images(grid: TokenGrid, trace: Trace, panels: Sequence[Panel]) -> list[Mark]:
    """Returns the pictures of the grid in every panel, as the ``images`` of a Plotly layout; all panels share the text of a source. None in a figure of too many."""
    if len(grid.pictures) * len(panels) > _MAX_IMAGES:
        return []
    pictures = layout_images(grid, trace, exact=False, max_side=_THUMBNAIL)
    return [
        image | {
            "x": panel.x - 0.5 + (image["x"] + 0.5) / panel.block, "y": panel.y - 0.5 + (image["y"] + 0.5) / panel.block,
            "sizex": image["sizex"] / panel.block, "sizey": image["sizey"] / panel.block,
        }
        for panel in panels for image in pictures
    ]  # fmt: skip


def estimate_seconds(line: MapLine) -> float:
    """Returns an estimate of the seconds that the lines of the heads of all layers take on one thread: rows and cached columns take almost none."""
    drawn = [line.trace.layers[i] for i in _same_tokens(line)] if line.reads == KEY else []
    return seconds_of_heads(drawn, line.step.name, ("columns", line.step.name, line.at))


def reads_query(trace: Trace, step: str, layer: int, column: bool = False) -> bool | None:
    """Returns whether heads can be drawn by the row of a query (the keys are patches), and not by the column of a key; None if neither axis has patches.

    Where both have, the row is preferred, or the `column`.
    """
    declaration, drawn = find_step(step), trace.layer(layer)
    axes = (declaration.column_axis, declaration.row_axis)[:: -1 if column else 1]
    for axis in axes if trace.pictures else ():
        if any_patch(drawn.labels_of(axis)):
            return axis == declaration.column_axis
    return None


def _same_tokens(line: MapLine) -> list[int]:
    """Returns the layers that have a step with the same axes as it has in the layer of a line."""

    def axes(layer: Layer) -> tuple[object, ...]:
        return tuple((layer.sizes.get(axis), layer.labels_of(axis)) for axis in (line.axis, line.own_axis))

    layers = line.trace.layers
    return [i for i, each in enumerate(layers) if each.has(line.step.name) and axes(each) == axes(layers[line.layer])]


def _iterate_lines(line: MapLine, layer: Layer) -> Iterator[NDArray[Any]]:
    """Yields the line of each head. Of heads that are computed one by one on access, a row is computed alone; columns, which need all cells, are cached."""
    step = line.step
    if line.reads == KEY and is_streamed(layer, step.name):
        # Copies: a column of a matrix would keep the whole matrix in memory.
        yield from cache.memoize(
            layer.uid, ("columns", step.name, line.at), layer.formula,
            lambda: np.stack([line.along(matrix.numpy()).copy() for matrix in head_matrices(layer, step.name)]),
        )  # fmt: skip
        return
    for head in range(layer.n_heads if step.per_head else 1):
        if is_streamed(layer, step.name):
            (rows,) = layer.blocks(step.name, heads=slice(head, head + 1), rows=slice(line.at, line.at + 1))
            yield rows[0, 0].numpy()
        else:
            yield line.along(layer.matrix(step.name, head).numpy())


@dataclass(frozen=True)
class _Tiles:
    """Where the pictures of all heads lie, in cells: `width` and `height` lead to the next one beside and below; `pixels` is the height of all."""

    panels: list[Panel]
    width: int
    height: int
    across: int
    pixels: int
    has_rows: bool  # each line is a layer, and each column a head


def _arrange(
    heads: Mapping[int, int], shape: tuple[int, ...], block: int, order: Sequence[tuple[int, int]], has_rows: bool
) -> _Tiles:
    """Returns where the picture of each head lies: a row for each layer, or line by line, in an `order` or of one layer."""
    rows, columns = (-(-side // block) for side in shape)
    places = places_of_heads(heads, order)
    if not has_rows:
        across = panels_across(len(places), rows, columns)
        places = {layer_head: divmod(index, across) for index, layer_head in enumerate(places)}
    has_rows = has_rows and not order
    width = columns + max(1, columns // 10)
    height = rows + (max(1, rows // 10) if has_rows else max(2, rows // 5))
    panels = [
        Panel(head, column * width, row * height, rows, columns, block, layer)
        for (layer, head), (row, column) in sorted(places.items())
    ]
    down, across = (max(place) + 1 for place in zip(*places.values(), strict=True))
    lowest, highest = _PANEL_HEIGHTS
    picture = min(highest, max(lowest, _USUAL_WIDTH / across * rows / columns))
    pixels = round(110 + min(_MAX_HEIGHT, down * picture * height / rows))
    return _Tiles(panels, width, height, across, pixels, has_rows)
