"""All heads of a step as small multiples in one map: those of one layer, or of all layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from attention.analysis.patterns import BLOCK_CELLS
from attention.core import cache
from attention.core.cell import Cell
from attention.core.config import divisors
from attention.core.layer import Layer
from attention.core.names import QUERY
from attention.core.stats import StepStats
from attention.core.steps import MAP_AXES, find_step
from attention.core.trace import Trace
from attention.pictures.downsample import MAX_SIDE, block_offsets, pool_blocks
from attention.pictures.drawing import build_map, hidden_cells
from attention.pictures.layout import Panel, Spec, hover_labels, outline, panel_label
from attention.pictures.message_contract import Meta
from attention.pictures.redraw import plotly_variant
from attention.pictures.token_grid import NO_TOKEN

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

MOSAIC_CELLS = 1_000_000  # more cannot be told apart in a picture
SCREEN_CELLS = MAX_SIDE**2  # the maximum number of cells of a map on the screen


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
    panels = tile_panels(n_heads, across, rows, columns, (max(1, rows // 8), max(1, columns // 12)), block)
    hidden = hidden_cells(trace, declaration, layer)
    canvas = Canvas(panels)
    pooled_heads = pool_heads(drawn_layer, step, block)
    for panel in panels:
        canvas.put(panel, pooled_heads, hidden)

    labels, frames = [], []
    for panel in panels:
        if declaration.per_head:
            labels.append(panel_label(f"L{layer} H{panel.head}", panel))
        if chosen is not None and panel.head == chosen.head and declaration.per_head:
            frames.append(outline(panel.x, panel.y, columns, rows, 3))
        if chosen is not None and chosen.step == step:
            frames.append(outline(panel.x + chosen.column // block, panel.y + chosen.row // block, 1, 1, 2))
    height = 100 + min(1700, max(280, min(480, 14 * rows)) * panels_down)
    hidden_ground = canvas.hidden if hidden is not None else None
    figure = build_map(
        trace,
        declaration,
        layer,
        canvas.numbers,
        hidden_ground,
        panels,
        colors,
        height=height,
        annotations=labels,
        shapes=frames,
    )
    if block > 1:
        meta: Meta = figure["layout"]["meta"]
        meta["offsets"] = canvas.offsets.astype(np.min_scalar_type(block * block - 1))
        meta["rows"] = {"labelalias": hover_labels(drawn_layer, declaration.row_axis)}
        meta["columns"] = {"labelalias": hover_labels(drawn_layer, declaration.column_axis)}
    return figure


heads = plotly_variant(heads_json)
"""`heads_json` as a Plotly figure."""


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


class Canvas:
    """The area of all panels [row column]: the numbers, the offset of each in its block, and which cells are hidden."""

    def __init__(self, panels: list[Panel]) -> None:
        self.numbers = filled_canvas(panels, np.float16(np.nan))
        self.offsets, self.hidden = filled_canvas(panels, np.uint32(0)), filled_canvas(panels, np.bool_(False))

    def put(self, panel: Panel, heads: PooledHeads, hidden: NDArray[np.bool_] | None) -> None:
        """Writes the numbers of the panel's head, and which of its cells are `hidden` [query_pos key_pos], into the area of the panel."""
        if self.numbers.dtype != np.promote_types(self.numbers.dtype, heads.numbers.dtype):
            self.numbers = self.numbers.astype(heads.numbers.dtype)  # the first panel decides
        self.numbers[panel.area] = heads.numbers[panel.head]
        self.offsets[panel.area] = heads.offsets[panel.head]
        if hidden is not None:
            self.hidden[panel.area] = ~pool_blocks(~hidden, panel.block, panel.block)


class PooledHeads(NamedTuple):
    """The heads of a step pooled to blocks, and facts about all their numbers.

    Attributes:
        numbers: the number of largest magnitude in each block, [head row column].
        offsets: the offset of that number in its block, [head row column].
        facts: the range and the row sums of all numbers.
    """

    numbers: NDArray[Any]
    offsets: NDArray[np.uint32]
    facts: StepStats

    @property
    def nbytes(self) -> int:
        """The memory of the arrays, in bytes."""
        return self.numbers.nbytes + self.offsets.nbytes


def pool_heads(layer: Layer, step: str, block: int) -> PooledHeads:
    """Returns the heads of a step pooled to blocks of `block` rows and columns; cached if the heads are computed one by one."""
    declaration = find_step(step)

    def compute() -> PooledHeads:
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
        return PooledHeads(numbers.astype(dtype), offsets, facts)

    if not is_streamed(layer, step):
        return compute()
    return cache.memoize(layer.uid, ("small", step, block), layer.formula, compute)


def is_pooling_cached(layer: Layer, step: str, block: int) -> bool:
    """Whether the result of `pool_heads` is cached."""
    return cache.CACHE.get((layer.uid, ("small", step, block), layer.formula)) is not None


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
    n_heads_at_once = max(1, BLOCK_CELLS // (rows * columns))
    for head in range(0, n_heads, n_heads_at_once):
        (matrices,) = layer.blocks(step, heads=slice(head, min(n_heads, head + n_heads_at_once)))
        yield from matrices


def panels_across(n_heads: int, rows: int, columns: int) -> int:
    """Returns the number of panels per line: it divides the number of heads, and the map is about 1.8 times as wide as high."""
    ideal = math.sqrt(1.8 * n_heads * rows / columns)
    return min(divisors(n_heads), key=lambda across: abs(math.log(across / ideal)))
