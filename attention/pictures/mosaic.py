"""All heads of a step side by side in one map: those of one layer, or of all layers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import plotly.graph_objects as go

from attention.formula import kept
from attention.formula.cell import Cell
from attention.formula.config import divisors
from attention.formula.facts import Facts
from attention.formula.layer import Layer
from attention.formula.steps import MAP_AXES, find_step
from attention.formula.trace import Trace
from attention.numbers.patterns import CELLS
from attention.pictures.changed import as_figure
from attention.pictures.contract import Meta
from attention.pictures.drawing import figure_of, hidden_cells
from attention.pictures.layout import Panel, Spec, named, names_of, outline
from attention.pictures.pooling import MOST_CELLS, places, pooled

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

MOSAIC_CELLS = 1_000_000  # more are no picture any more
SCREEN_CELLS = MOST_CELLS**2  # what a screen draws at once


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
    paper = Paper(panels)
    heads = small(shown, step, block)
    for panel in panels:
        paper.put(panel, heads, covered)

    notes, frames = [], []
    for panel in panels:
        if found.per_head:
            notes.append(named(f"L{layer} H{panel.head}", panel))
        if chosen is not None and panel.head == chosen.head and found.per_head:
            frames.append(outline(panel.x, panel.y, columns, rows, 3))
        if chosen is not None and chosen.step == step:
            frames.append(outline(panel.x + chosen.column // block, panel.y + chosen.row // block, 1, 1, 2))
    height = 100 + min(1700, max(280, min(480, 14 * rows)) * down)
    ground = paper.hidden if covered is not None else None
    figure = figure_of(
        trace, found, layer, paper.numbers, ground, panels, colors, height=height, annotations=notes, shapes=frames
    )
    if block > 1:
        meta: Meta = figure["layout"]["meta"]
        meta["at"] = paper.at.astype(np.min_scalar_type(block * block - 1))
        meta["rows"] = {"labelalias": names_of(shown, found.row_axis)}
        meta["columns"] = {"labelalias": names_of(shown, found.column_axis)}
    return figure


heads = as_figure(heads_json)
"""`heads_json` as Plotly's object."""


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
            row, column = row * panel.block + down, column * panel.block + across
            return Cell(panel.layer, meta["step"], panel.head, row, column)
    return None


class Paper:
    """What panels are put on, [row column] each: the numbers, where in its block each stands, and what is hidden."""

    def __init__(self, panels: list[Panel]) -> None:
        self.numbers = blank(panels, np.float16(np.nan))
        self.at, self.hidden = blank(panels, np.uint32(0)), blank(panels, np.bool_(False))

    def put(self, panel: Panel, heads: Small, covered: NDArray[np.bool_] | None) -> None:
        """Puts the numbers of the panel's head, and what of its matrix is `covered`, where it lies."""
        if self.numbers.dtype != np.promote_types(self.numbers.dtype, heads.numbers.dtype):
            self.numbers = self.numbers.astype(heads.numbers.dtype)  # the first of them
        self.numbers[panel.place] = heads.numbers[panel.head]
        self.at[panel.place] = heads.at[panel.head]
        if covered is not None:
            self.hidden[panel.place] = ~pooled(~covered, panel.block, panel.block)


class Small(NamedTuple):
    """The heads of a step as they are drawn, and what is said of all their numbers.

    Attributes:
        numbers: of each block the one that stands out most, [head row column].
        at: where in its block it stands, [head row column].
        facts: the ends and the sums of rows of all numbers.
    """

    numbers: NDArray[Any]
    at: NDArray[np.uint32]
    facts: Facts

    @property
    def nbytes(self) -> int:
        """The memory of what is drawn, in bytes."""
        return self.numbers.nbytes + self.at.nbytes


def small(layer: Layer, step: str, block: int) -> Small:
    """The heads of a step in blocks of so many rows and columns; where they are made one by one, this is what is kept of them."""
    found = find_step(step)

    def make() -> Small:
        n_heads = layer.n_heads if found.per_head else 1
        shape = n_heads, *(-(-side // block) for side in layer.shape(step)[-2:])
        # Their places first: small things that stay would lie between large ones that go, and hold the room of all of them.
        numbers, at, facts = np.empty(shape), np.zeros(shape, dtype=np.uint32), Facts()
        kind = numbers.dtype
        for head, matrix in enumerate(matrices(layer, step)):
            facts, whole = facts.and_(Facts.of(found, matrix)), matrix.numpy()
            numbers[head], kind = pooled(whole, block, block), whole.dtype
            if block > 1:
                at[head] = places(whole, block, block)
        return Small(numbers.astype(kind), at, facts)

    if not made_one_by_one(layer, step):
        return make()
    return kept.matrix(layer.number, ("small", step, block), layer.formula, make)


def known(layer: Layer, step: str, block: int) -> bool:
    """Whether `small` is kept, and need not be made."""
    return kept.KEPT.get((layer.number, ("small", step, block), layer.formula)) is not None


def made_one_by_one(layer: Layer, step: str) -> bool:
    """Whether the heads of a step are made when they are looked at, and forgotten."""
    return not layer.whole and step not in layer.recorded and find_step(step).axes == MAP_AXES


def matrices(layer: Layer, step: str) -> Iterator[Tensor]:
    """The matrix of each head of a step, in their order; those that are made head by head are not kept."""
    found = find_step(step)
    if not made_one_by_one(layer, step):
        yield from (layer.matrix(step, head) for head in range(layer.n_heads if found.per_head else 1))
        return
    n_heads, rows, columns = layer.shape(step)
    few = max(1, CELLS // (rows * columns))
    for head in range(0, n_heads, few):
        (some,) = layer.part(step, heads=slice(head, min(n_heads, head + few)))
        yield from some


def _panels_across(n_heads: int, rows: int, columns: int) -> int:
    """How many panels in a row: none is left over, and the whole is about 1.8 times as wide as high."""
    ideal = math.sqrt(1.8 * n_heads * rows / columns)
    return min(divisors(n_heads), key=lambda across: abs(math.log(across / ideal)))
