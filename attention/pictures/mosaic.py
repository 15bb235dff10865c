"""All heads of a step as small multiples in one map: those of one layer; or of all layers, a row for each layer, or sorted by a metric."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from attention.base import cache
from attention.base.errors import MissingError
from attention.base.printed import format_number, plural
from attention.formula.config import divisors
from attention.formula.names import QUERY, Cell
from attention.formula.steps import MAP_AXES, Step, find_step
from attention.metrics.patterns import BLOCK_CELLS
from attention.pictures import scales
from attention.pictures.drawing import Drawn, build_map, describe_range, hidden_cells, layer_label
from attention.pictures.layout import AXIS_TITLES, base_layout, hover_labels, panel_ticks
from attention.pictures.look import TYPE
from attention.pictures.marks import Mark, Panel, Spec, cells, draw, ground, note, outline, panel_label
from attention.pictures.message import plotly_variant
from attention.pictures.message_contract import NO_TOKEN, Meta
from attention.trace.large_map import MAX_SIDE, block_offsets, pool_blocks
from attention.trace.layer import Layer
from attention.trace.stats import StepStats
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor


class HeadOrder(NamedTuple):
    """The heads (layer, head) that are drawn, the first one first, each with the number that sorts them; and what it is in words."""

    numbers: Mapping[tuple[int, int], float]
    by: str


MOSAIC_CELLS = 1_000_000  # more cannot be told apart in a picture
SCREEN_CELLS = MAX_SIDE**2  # the maximum number of cells of a map on the screen
_CELLS_PER_SECOND = 40_000_000  # weights computed and pooled; measured on one thread
_SCREEN = (876, 428)  # pixels: the width and height of all tiles, which stand on one screen of 1280 × 720
_GAPS = (8, 4)  # pixels between tiles, and between more than `_MANY`
_MANY = 100
_TILES = (8, 160)  # pixels: the smallest and the largest tile
_LABEL_SIZE, _LABEL_LINE = 12, 15  # pixels: the font and the lines of the labels under tiles
_HIDDEN_OPACITY = 0.3  # half of a small tile may be hidden cells
_NAME_WIDTH = 48  # pixels that "L29 H11" needs


def heads_json(
    trace: Trace,
    step: str,
    layer: int = 0,
    chosen: Cell | None = None,
    colors: str = "fixed",
    cells: int = MOSAIC_CELLS,
) -> Spec:
    """Returns all heads of a step as small multiples with one colour scale, in one map with gutters.

    One heatmap instead of a subplot for each head stays fast with 144 heads. Above `cells` numbers, each cell shows the number of
    largest magnitude in a block, the title states it, and ``layout.meta["offsets"]`` has its offset in the block.

    Raises:
        MissingError: the trace has no such layer or step.
        ConfigError: `colors` is not one of `COLORS`.
    """
    declaration, drawn_layer = find_step(step), trace.layer(layer)
    n_heads = drawn_layer.n_heads if declaration.per_head else 1
    rows, columns = drawn_layer.shape(step)[-2:]
    block = math.ceil(math.sqrt(max(1.0, n_heads * rows * columns / cells)))
    rows, columns = -(-rows // block), -(-columns // block)
    across = panels_across(n_heads, rows, columns)
    panels_down = n_heads // across
    gutters = max(1, rows // 8), max(1, columns // 12)
    panels = [replace(panel, layer=layer) for panel in tile_panels(n_heads, across, rows, columns, gutters, block)]
    canvas = _Canvas(trace, declaration, panels)
    labels, frames = [], []
    for panel in panels:
        if declaration.per_head:
            labels.append(panel_label(f"L{layer} H{panel.head}", panel))
        if chosen is not None and panel.head == chosen.head and declaration.per_head:
            frames.append(outline(panel.x, panel.y, columns, rows, 3))
        if chosen is not None and chosen.step == step:
            frames.append(outline(panel.x + chosen.column // block, panel.y + chosen.row // block, 1, 1, 2))
    height = 100 + min(1700, max(280, min(480, 14 * rows)) * panels_down)
    drawn = Drawn(trace, declaration, layer, panels, colors)
    figure = build_map(drawn, canvas.numbers, canvas.hidden if canvas.is_masked else None, *labels, *frames)
    figure["layout"]["height"] = height
    _square(figure["layout"])
    if block > 1:
        meta: Meta = figure["layout"]["meta"]
        meta["offsets"] = canvas.offsets.astype(np.min_scalar_type(block * block - 1))
        meta["rows"] = {"labelalias": hover_labels(drawn_layer, declaration.row_axis)}
        meta["columns"] = {"labelalias": hover_labels(drawn_layer, declaration.column_axis)}
    return figure


heads = plotly_variant(heads_json)
"""`heads_json` as a Plotly figure."""


def layers_json(
    trace: Trace,
    step: str,
    chosen: Cell | None = None,
    colors: str = "fixed",
    cells: int = MOSAIC_CELLS,
    order: HeadOrder | None = None,
) -> Spec:
    """Returns a square tile for every head of every layer that has a step, in one map with one colour scale.

    Without an `order`, each layer is a row and each column a head; where layers outnumber heads, it is the other way round. Layers may differ in
    tokens and in numbers of heads. Above `cells` numbers, each cell shows the number of largest magnitude in a block, and the title states it.

    Args:
        trace: whose heads are drawn.
        step: whose matrices are drawn.
        chosen: the cell whose head is outlined.
        colors: as for a single map.
        cells: the maximum number of cells drawn. With no more than `SCREEN_CELLS`, the tiles of hundreds of heads leave only one
            line for their labels, which the page shortens.
        order: another order of all heads, row by row, whose numbers stand under the tiles, and with more digits in the tooltips.

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
    sorted_heads = [(i, head) for i, head in order.numbers if head < heads.get(i, 0)] if order else []
    order = order if sorted_heads else None
    names = [layer_label(trace.layers[i], i) for i in present]
    may_turn = all(name == f"L{i}" for i, name in zip(present, names, strict=True))
    tiles = _arrange(heads, sorted_heads, (rows, columns), may_turn)
    if tiles.label and cells > SCREEN_CELLS:
        tiles = tiles._replace(label=2 * _LABEL_LINE)
    panels = tiles.panels(shapes, block)
    canvas, layers = _Canvas(trace, declaration, panels), [trace.layers[i] for i in present]
    subtitle = _facts_of_tiles(layers, declaration, len(panels), block)
    subtitle += [f"sorted by {order.by}, the largest first"] if order else []
    span = canvas.facts.drawn_range(any(layer.hides_keys for layer in layers))
    low, high = scales.scale_range(declaration, span, colors)
    color_keys, extra_traces = scales.color_keys(declaration, low, high, colors, many=True)
    row_hovers, column_hovers = _hovers_of_tiles(layers, declaration)
    values = [order.numbers[panel.layer, panel.head] for panel in panels] if order else []
    meta: Meta = {
        "alt": _alt(declaration, subtitle, canvas.facts, scales.describe_colors(declaration, low, high, colors)),
        "step": step,
        "panels": [asdict(panel) for panel in panels],
        "metrics": [f"{order.by}: {format_number(value)}" for value in values] if order else [],
        "axes": [axis.removesuffix("_pos") for axis in (declaration.row_axis, declaration.column_axis)],
        "file": [step, "all-heads"],
        "offsets": canvas.offsets.astype(np.min_scalar_type(max(1, block * block - 1))),
        "rows": {"labelalias": row_hovers},
        "columns": {"labelalias": column_hovers},
        "design_width": _SCREEN[0],
    }
    layout = base_layout(tiles.shape, f"<b>{declaration.symbol}</b>  {step}", subtitle, meta)
    _lay_out_tiles(layout, tiles, names)
    shown = np.where(canvas.hidden, np.nan, canvas.numbers).astype(canvas.numbers.dtype)  # nothing shines through
    return draw(
        layout, *cell_traces(shown, canvas.hidden, color_keys, {"opacity": _HIDDEN_OPACITY}), *extra_traces, *outline_head(panels, chosen),
        *map(_tile_label, panels, values), *scales.scale_note(declaration, high, colors, True, canvas.facts.high or 0),
    )  # fmt: skip


def _facts_of_tiles(layers: Sequence[Layer], step: Step, n_heads: int, block: int) -> list[str]:
    """The formula, the numbers of layers and heads, and the shape of their matrices in words."""
    shapes = {layer.shape(step.name)[-2:] for layer in layers}
    facts = [layers[0].formula_of(step), f"{plural(len(layers), 'layer')}, {n_heads} heads"]
    facts += [" × ".join(map(str, shapes.pop())) if len(shapes) == 1 else "of several sizes"]
    return facts + [f"each cell the largest of {block} × {block}"] * (block > 1)


def _hovers_of_tiles(layers: Sequence[Layer], step: Step) -> list[dict[str, str]]:
    """The hover label of every row and of every column; none where layers have other tokens."""
    same_axes = len({(layer.tokens, layer.key_tokens, layer.shape(step.name)[-2:]) for layer in layers}) == 1
    return [hover_labels(layers[0], axis) if same_axes else {} for axis in (step.row_axis, step.column_axis)]


def _lay_out_tiles(layout: dict[str, Any], tiles: _Tiles, names: list[str]) -> None:
    """Makes tiles square in a layout, and names the lines of those that have no label."""
    pitch, cells = tiles.pitch, tiles.cells
    top = 84 if tiles.label else 90  # names of columns stand on the tiles
    layout |= {"margin": {"l": 12, "r": 12, "t": top, "b": 4}, "uirevision": f"all heads of {layout['uirevision']}"}
    layout["font"] = layout["title"]["subtitle"]["font"] = {"size": _LABEL_SIZE}
    layout["xaxis"] |= {**panel_ticks(()), "side": "top"}
    layout["yaxis"] |= panel_ticks(())
    _square(layout, cells[1] / cells[0])
    if not tiles.label:
        own = [f"H{i}" for i in range(tiles.down if tiles.is_deep else tiles.across)]
        lines, columns = (own, names) if tiles.is_deep else (names, own)
        label_lines(
            layout,
            [(i * pitch[0], cells[0], name) for i, name in enumerate(lines)],
            [(i * pitch[1], cells[1], name) for i, name in enumerate(columns)],
        )
    down, across = tiles.shape
    width = _SCREEN[0] + 12 - layout["margin"]["l"]
    layout["height"] = top + 4 + round(down / across * width * cells[1] / cells[0])


def _square(layout: dict[str, Any], ratio: float = 1) -> None:
    """Makes the cells of a map as high as wide, times `ratio`, and moves it into the corner of its space."""
    layout["xaxis"] |= {"constrain": "domain", "constraintoward": "left"}
    layout["yaxis"] |= {"scaleanchor": "x", "scaleratio": ratio, "constrain": "domain", "constraintoward": "top"}


def outline_head(panels: Sequence[Panel], chosen: Cell | None) -> list[Mark]:
    """Returns the outline of the panel of the chosen head; none if there is no such panel."""
    own = [panel for panel in panels if chosen and (panel.layer, panel.head) == (chosen.layer, chosen.head)]
    return [outline(panel.x, panel.y, panel.columns, panel.rows, 3) for panel in own]


def panel_labels(panels: Sequence[Panel]) -> list[Mark]:
    """Returns the name of each head above its panel."""
    style = {"borderpad": 0, "font": {"size": TYPE["axis"]}}
    return [panel_label(f"L{panel.layer} H{panel.head}", panel, **style) for panel in panels]


def label_lines(
    layout: dict[str, Any], rows: Sequence[tuple[int, int, str]], columns: Sequence[tuple[int, int, str]]
) -> None:
    """Names the rows and columns of panels along the axes of a layout, as `panel_ticks`, and makes room for the names of the rows."""
    layout["xaxis"] |= panel_ticks(columns)
    layout["yaxis"] |= panel_ticks(rows)
    layout["margin"]["l"] = 16 + 7 * max(len(text) for _, _, text in rows)


def estimate_seconds(trace: Trace, step: str, cells: int = MOSAIC_CELLS) -> float:
    """Returns an estimate of the seconds that `layers_json` takes on one thread; cached heads take none."""
    layers = [layer for layer in trace.layers if layer.has(step)]
    return seconds_of_heads(layers, step, ("small", step, _block(trace, step, cells)))


def seconds_of_heads(layers: Sequence[Layer], step: str, place: tuple[object, ...]) -> float:
    """Returns an estimate of the seconds for all heads of layers that are streamed, and not cached at this place."""
    streamed = [layer for layer in layers if is_streamed(layer, step)]
    uncached = [layer for layer in streamed if cache.CACHE.get((layer.uid, place, layer.formula)) is None]
    return sum(math.prod(layer.shape(step)) for layer in uncached) / _CELLS_PER_SECOND


def places_of_heads(
    heads: Mapping[int, int], order: Sequence[tuple[int, int]] = ()
) -> dict[tuple[int, int], tuple[int, int]]:
    """Returns the place (row, column) of the panel of each head (layer, head): a row for each layer, or line by line in an `order`.

    `heads` has the number of heads of each layer, by its index.
    """
    if not order:
        return {(layer, head): (row, head) for row, layer in enumerate(heads) for head in range(heads[layer])}
    across = max(*heads.values(), math.ceil(math.sqrt(1.2 * len(order))))
    return {layer_head: divmod(index, across) for index, layer_head in enumerate(order)}


def cell_at(figure: go.Figure | Spec, x: int, y: int) -> Cell | None:
    """Returns the cell drawn at column `x` and row `y` of a map (in a block, the cell whose number it shows); None between the panels.

    In a figure over a picture, it is the cell of the line that is drawn, at the token that lies there; None where no token lies.
    """
    meta: Meta = figure["layout"]["meta"]
    for panel in (Panel(**position) for position in meta["panels"]):
        row, column = y - panel.y, x - panel.x
        if 0 <= row < panel.rows and 0 <= column < panel.columns:
            down, across = divmod(int(meta["offsets"][y, x]) if "offsets" in meta else 0, panel.block)
            row, column = row * panel.block + down, column * panel.block + across
            if grid := meta.get("panel_grid"):
                if (position := int(grid["positions"][row, column])) == NO_TOKEN:
                    return None
                row, column = (grid["at"], position) if grid["reads"] == QUERY else (position, grid["at"])
            return Cell(panel.layer, meta["step"], panel.head, row, column)
    return None


class _Canvas:
    """The matrices of a step in the area of all panels [row column]: the numbers, the offset of each in its block, which cells are hidden, and facts about all numbers."""

    def __init__(self, trace: Trace, step: Step, panels: list[Panel]) -> None:
        self.numbers, self.facts, self.is_masked = filled_canvas(panels, np.float16(np.nan)), StepStats(), False
        self.offsets, self.hidden = filled_canvas(panels, np.uint32(0)), filled_canvas(panels, np.bool_(False))
        for layer in dict.fromkeys(panel.layer for panel in panels):
            heads = _pool_heads(trace.layers[layer], step.name, panels[0].block)
            hidden, self.facts = hidden_cells(trace, step, layer), self.facts.merge(heads.facts)
            self.is_masked |= hidden is not None
            for panel in panels:
                if panel.layer == layer:
                    self._put(panel, heads, hidden)

    def _put(self, panel: Panel, heads: _PooledHeads, hidden: NDArray[np.bool_] | None) -> None:
        """Writes the numbers of the panel's head, and which of its cells are `hidden` [query_pos key_pos], into the area of the panel."""
        if self.numbers.dtype != np.promote_types(self.numbers.dtype, heads.numbers.dtype):
            self.numbers = self.numbers.astype(heads.numbers.dtype)  # the first panel decides
        self.numbers[panel.area] = heads.numbers[panel.head]
        self.offsets[panel.area] = heads.offsets[panel.head]
        if hidden is not None:
            self.hidden[panel.area] = ~pool_blocks(~hidden, panel.block, panel.block)


class _PooledHeads(NamedTuple):
    """The number of largest magnitude in each block of each head, [head row column], its offset in the block, and facts about all numbers."""

    numbers: NDArray[Any]
    offsets: NDArray[np.uint32]
    facts: StepStats

    @property
    def nbytes(self) -> int:
        return self.numbers.nbytes + self.offsets.nbytes


def _pool_heads(layer: Layer, step: str, block: int) -> _PooledHeads:
    """Returns the heads of a step pooled to blocks of `block` rows and columns; cached if the heads are computed one by one."""
    declaration = find_step(step)

    def compute() -> _PooledHeads:
        n_heads = layer.n_heads if declaration.per_head else 1
        shape = n_heads, *(-(-side // block) for side in layer.shape(step)[-2:])
        # Allocate the results first: small arrays that stay between large temporary ones would keep all their memory from being returned.
        numbers, offsets, facts = np.empty(shape), np.zeros(shape, dtype=np.uint32), StepStats()
        dtype = numbers.dtype
        for head, matrix in enumerate(head_matrices(layer, step)):
            facts, full = facts.merge(StepStats.of(declaration, matrix)), matrix.numpy()
            numbers[head], dtype = pool_blocks(full, block, block), full.dtype
            if block > 1:
                offsets[head] = block_offsets(full, block, block)
        return _PooledHeads(numbers.astype(dtype), offsets, facts)

    if not is_streamed(layer, step):
        return compute()
    return cache.memoize(layer.uid, ("small", step, block), layer.formula, compute)


def is_streamed(layer: Layer, step: str) -> bool:
    """Whether the heads of a step are computed one by one on access, and not cached."""
    return not layer.materialize_all_heads and step not in layer.recorded and find_step(step).axes == MAP_AXES


def head_matrices(layer: Layer, step: str) -> Iterator[Tensor]:
    """Yields the matrix of each head of a step in order; streamed heads are not cached."""
    declaration = find_step(step)
    if not is_streamed(layer, step):
        yield from (layer.matrix(step, head) for head in range(layer.n_heads if declaration.per_head else 1))
        return
    n_heads, rows, columns = layer.shape(step)
    if not layer.keeps_maps:
        yield from (layer.matrix(step, head) for head in range(n_heads))
        return
    n_heads_at_once = max(1, BLOCK_CELLS // (rows * columns))
    for head in range(0, n_heads, n_heads_at_once):
        (matrices,) = layer.blocks(step, heads=slice(head, min(n_heads, head + n_heads_at_once)))
        yield from matrices


def panels_across(n_heads: int, rows: int, columns: int) -> int:
    """Returns the number of panels per line: it divides the number of heads, and the map is about 1.8 times as wide as high."""
    ideal = math.sqrt(1.8 * n_heads * rows / columns)
    return min(divisors(n_heads), key=lambda across: abs(math.log(across / ideal)))


def tile_panels(
    count: int, across: int, rows: int, columns: int, gutters: tuple[int, int], block: int = 1
) -> list[Panel]:
    """Returns `count` panels of one size in lines of `across` panels, with `gutters` (below, beside) between them."""
    panel_height, panel_width = rows + gutters[0], columns + gutters[1]
    return [Panel(i, i % across * panel_width, i // across * panel_height, rows, columns, block) for i in range(count)]


def filled_canvas(panels: list[Panel], number: np.generic) -> NDArray[Any]:
    """Returns a matrix large enough for all panels, filled with `number`, in its type."""
    shape = max(panel.y + panel.rows for panel in panels), max(panel.x + panel.columns for panel in panels)
    return np.full(shape, number, dtype=number.dtype)


def cell_traces(
    numbers: NDArray[Any], hidden: NDArray[np.bool_], colors: dict[str, Any], of_hidden: dict[str, Any]
) -> list[Mark]:
    """Returns the cells of all panels, and the ground of hidden ones with its keys `of_hidden`; the page finds the head and cell of a position."""
    return [cells(numbers, "", colors), *([ground(hidden, **of_hidden)] if hidden.any() else [])]


def _block(trace: Trace, step: str, cells: int) -> int:
    """Returns the number of rows and columns per cell, so that the map has at most `cells` cells."""
    layers = [layer for layer in trace.layers if layer.has(step)]
    per_head = find_step(step).per_head
    numbers = sum((layer.n_heads if per_head else 1) * math.prod(layer.shape(step)[-2:]) for layer in layers)
    return math.ceil(math.sqrt(max(1.0, numbers / cells)))


class _Tiles(NamedTuple):
    """Where the tile of each head stands (row, column); the rows and columns of the largest; and in pixels its side, the gap beside it and below its label, and the height of that."""

    places: dict[tuple[int, int], tuple[int, int]]
    cells: tuple[int, int]
    side: float
    gap: int
    label: int = 0
    is_deep: bool = False

    @property
    def down(self) -> int:
        return 1 + max(row for row, _ in self.places.values())

    @property
    def across(self) -> int:
        return 1 + max(column for _, column in self.places.values())

    @property
    def pitch(self) -> tuple[int, int]:
        """The rows and columns from tile to tile."""
        rows, columns = self.cells
        below = max(1, round(rows * (self.gap + self.label) / self.side))
        return rows + below, columns + max(1, round(columns * self.gap / self.side))

    @property
    def shape(self) -> tuple[int, int]:
        """The rows and columns of the map: with the labels of the last tiles, and with free space beside the tiles where these could not be larger."""
        rows, width, (height_of_one, width_of_one) = self.down * self.pitch[0], _SCREEN[0], self.cells
        height = max(_SCREEN[1], self.down * (self.side + self.gap + self.label))
        widest = math.ceil(width * width_of_one * rows / height_of_one / height)  # whole cells make gaps wider
        return rows, max(self.across * self.pitch[1], round(width * width_of_one / self.side), widest)

    def panels(self, shapes: Mapping[int, tuple[int, ...]], block: int) -> list[Panel]:
        """The panel of each head, by layer and head, with the rows and columns that its layer has of the `shapes`, in blocks."""
        (down, across), panels = self.pitch, []
        for (layer, head), (row, column) in sorted(self.places.items()):
            rows, columns = (-(-side // block) for side in shapes[layer])
            panels.append(Panel(head, column * across, row * down, rows, columns, block, layer))
        return panels


def _arrange(
    heads: Mapping[int, int], order: Sequence[tuple[int, int]], cells: tuple[int, int], may_turn: bool
) -> _Tiles:
    """Returns the tiles, as large as fit on a screen: a row for each layer, or a column where this is larger and they `may_turn`; or line by line in an `order`."""
    if not order:
        places = places_of_heads(heads)
        gap = _GAPS[len(places) > _MANY]
        is_deep = may_turn and len(heads) > max(heads.values())
        if is_deep:
            places = {place: (column, row) for place, (row, column) in places.items()}
        tiles = _Tiles(places, cells, 0, gap, is_deep=is_deep)
        return tiles._replace(side=_side(tiles.across, tiles.down, gap, 0))
    gap = _GAPS[len(order) > _MANY]
    label = 2 * _LABEL_LINE  # name and value; one of them where tiles would be narrower than a name
    side, across = _largest_side(len(order), gap, label)
    if side + gap < _NAME_WIDTH:
        label = _LABEL_LINE
        side, across = _largest_side(len(order), gap, label)
    return _Tiles({place: divmod(index, across) for index, place in enumerate(order)}, cells, side, gap, label)


def _largest_side(count: int, gap: int, label: int) -> tuple[float, int]:
    """Returns the largest side of that many tiles on a screen, and how many stand side by side then."""
    return max((_side(across, -(-count // across), gap, label), across) for across in range(1, count + 1))


def _side(across: int, down: int, gap: int, label: int) -> float:
    """Returns the side of a tile in pixels, so that lines of tiles fit on a screen with their gaps and labels."""
    width, height = _SCREEN
    return min(_TILES[1], max(_TILES[0], min((width + gap) / across - gap, height / down - gap - label)))


def _tile_label(panel: Panel, value: float) -> Mark:
    """Returns the name of a head under its tile, and the value that sorts it; the page leaves out what does not fit."""
    text = f"L{panel.layer} H{panel.head}<br><b>{_short_number(value)}</b>"
    place = {"x": panel.x - 0.5, "y": panel.y + panel.rows - 0.5, "xanchor": "left", "yanchor": "top"}
    return note(text, align="left", borderpad=0, font={"size": _LABEL_SIZE}, **place)


def _short_number(value: float) -> str:
    """Returns a value with two decimals, fewer where it is large, so that it fits under a tile; a dash where there is none."""
    return (
        f"{value:.{2 if abs(value) < 10 else 1 if abs(value) < 100 else 0}f}".replace("-", "−")
        if math.isfinite(value)
        else "–"
    )


def _alt(step: Step, facts: Sequence[str], numbers: StepStats, colors: str) -> str:
    axes = (AXIS_TITLES.get(axis, axis) for axis in (step.row_axis, step.column_axis))
    facts_text = ", ".join(filter(None, [describe_range(numbers.finite_range), colors]))
    return f"Heatmaps of {step.name} ({step.symbol} = {', '.join(facts)}): each {' by '.join(axes)}, {facts_text}."
