"""All heads of a step side by side, in one map."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from attention.formula.cell import Cell
from attention.formula.config import divisors
from attention.formula.steps import find_step
from attention.formula.trace import Trace
from attention.pictures.changed import drawn
from attention.pictures.contract import Meta
from attention.pictures.drawing import figure_of, hidden_cells
from attention.pictures.layout import Panel, Spec, names_of, note, outline
from attention.pictures.pooling import MOST_CELLS, places, pooled

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOSAIC_CELLS = 1_000_000  # more are no picture any more
SCREEN_CELLS = MOST_CELLS**2  # what a screen draws at once


def heads(
    trace: Trace,
    step: str,
    layer: int = 0,
    chosen: Cell | None = None,
    colors: str = "fixed",
    cells: int = MOSAIC_CELLS,
) -> go.Figure:
    """`heads_json` as Plotly's object."""
    return drawn(heads_json(trace, step, layer, chosen, colors, cells))


def heads_json(
    trace: Trace,
    step: str,
    layer: int = 0,
    chosen: Cell | None = None,
    colors: str = "fixed",
    cells: int = MOSAIC_CELLS,
) -> Spec:
    """All heads of a step as small multiples with one colour scale, in one map with gutters.

    One heatmap instead of a subplot per head: 144 heads stay quick. Above `cells` numbers each cell shows the one of
    largest size in a block, and the title says so; ``layout.meta["at"]`` has its place in the block.

    Raises:
        MissingError: the trace has no such layer or step.
        ConfigError: there are no such colours.
    """
    found, shown = find_step(step), trace.layer(layer)
    n_heads = shown.n_heads if found.per_head else 1
    rows, columns = shown.shape(step)[-2:]
    block = math.ceil(math.sqrt(max(1.0, n_heads * rows * columns / cells)))
    rows, columns = -(-rows // block), -(-columns // block)
    across = _panels_across(n_heads, rows, columns)
    down = n_heads // across
    panels = tiles(n_heads, across, rows, columns, (max(1, rows // 8), max(1, columns // 12)), block)
    covered = hidden_cells(trace, found, layer)
    mosaic = blank(panels, shown.matrix(step).numpy().dtype.type(np.nan))
    at, hidden = blank(panels, np.uint32(0)), blank(panels, np.bool_(False))
    for panel in panels:  # one head after the other: all of them may be more than there is room for
        matrix = shown.matrix(step, panel.head).numpy()
        mosaic[panel.place] = pooled(matrix, block, block)
        if block > 1:
            at[panel.place] = places(matrix, block, block)
        if covered is not None:
            hidden[panel.place] = ~pooled(~covered, block, block)

    notes, frames = [], []
    for panel in panels:
        if found.per_head:
            corner = {"x": panel.x - 0.5, "y": panel.y - 0.5, "xanchor": "left", "yanchor": "bottom"}
            notes.append(note(f"L{layer} H{panel.head}", **corner))
        if chosen is not None and panel.head == chosen.head and found.per_head:
            frames.append(outline(panel.x, panel.y, columns, rows, 3))
        if chosen is not None and chosen.step == step:
            frames.append(outline(panel.x + chosen.column // block, panel.y + chosen.row // block, 1, 1, 2))
    height = 100 + min(1700, max(280, min(480, 14 * rows)) * down)
    ground = hidden if covered is not None else None
    figure = figure_of(
        trace, found, layer, mosaic, ground, panels, colors, height=height, annotations=notes, shapes=frames
    )
    if block > 1:
        meta: Meta = figure["layout"]["meta"]
        meta["at"] = at.astype(np.min_scalar_type(block * block - 1))
        meta["rows"] = {"labelalias": names_of(shown, found.row_axis)}
        meta["columns"] = {"labelalias": names_of(shown, found.column_axis)}
    return figure


def tiles(count: int, across: int, rows: int, columns: int, gutters: tuple[int, int], block: int = 1) -> list[Panel]:
    """Panels of one size in lines of so many `across`, with `gutters` below and beside them."""
    high, wide = rows + gutters[0], columns + gutters[1]
    return [Panel(i, i % across * wide, i // across * high, rows, columns, block) for i in range(count)]


def blank(panels: list[Panel], number: np.generic) -> NDArray[Any]:
    """A matrix with room for all panels, and one `number` everywhere, in its type."""
    shape = max(panel.y + panel.rows for panel in panels), max(panel.x + panel.columns for panel in panels)
    return np.full(shape, number, dtype=number.dtype)


def cell_at(figure: go.Figure | Spec, x: int, y: int) -> Cell | None:
    """The cell drawn at column `x` and row `y` of a map, in a block the one it shows; None between the panels."""
    meta: Meta = figure["layout"]["meta"]
    for panel in (Panel(**place) for place in meta["panels"]):
        row, column = y - panel.y, x - panel.x
        if 0 <= row < panel.rows and 0 <= column < panel.columns:
            down, across = divmod(int(meta["at"][y, x]) if "at" in meta else 0, panel.block)
            return Cell(
                meta["layer"], meta["step"], panel.head, row * panel.block + down, column * panel.block + across
            )
    return None


def _panels_across(n_heads: int, rows: int, columns: int) -> int:
    """How many panels in a row: none is left over, and the whole is about 1.8 times as wide as high."""
    ideal = math.sqrt(1.8 * n_heads * rows / columns)
    return min(divisors(n_heads), key=lambda across: abs(math.log(across / ideal)))
