"""Draw one head's map, that of a quantity derived from the weights, or all heads side by side, as a Plotly figure.

Labels come from the trace, colours from the kind of number. ``layout.meta`` of a figure has further data for the page,
see `message_contract.Meta`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from attention.explanation.derived import DerivedMap
from attention.formula.names import OUTPUT, WEIGHTS, Cell
from attention.formula.steps import Step, find_step
from attention.pictures.drawing import (
    MAX_SIDE_WITH_NUMBERS,
    Drawn,
    build_map,
    describe_blind_queries,
    head_map,
    hidden_cells,
    hidden_map,
)
from attention.pictures.layout import AXIS_TITLES, map_layout
from attention.pictures.look import LIGHT
from attention.pictures.marks import HIDDEN_COLOR, Mark, Panel, Spec, cells, draw, note, outline
from attention.pictures.message import plotly_variant
from attention.pictures.message_contract import Meta
from attention.pictures.mosaic import cell_at, heads, heads_json
from attention.pictures.scales import COLORS
from attention.trace.trace import Trace

__all__ = ["COLORS", "cell_at", "heads", "heads_json", "heatmap", "heatmap_json", "mask_map"]

_ALLOWED_COLOR = LIGHT["yes"]
_SMALLEST_PRINTED = 0.05  # of a derived map's largest number; smaller ones would all be printed as 0.00


def heatmap_json(
    trace: Trace,
    step: str,
    layer: int = 0,
    head: int = 0,
    chosen: Cell | None = None,
    colors: str = "fixed",
) -> Spec:
    """Returns one matrix of a step as a heatmap: rows from top to bottom, one cell for each number.

    The `chosen` cell is outlined; in a map of another step, the row and the column of its
    query or key are outlined. A hidden score is a gap on a neutral background; a hidden weight is 0 under
    the same background. The `colors` of a probability are one of `COLORS`: over 0 … 1, stretched to the layer's largest,
    or logarithmic; the numbers are unchanged.

    Raises:
        MissingError: the trace has no such layer, step or head.
        ConfigError: `colors` is not one of `COLORS`.
    """
    return drawn_map_json(Drawn.of_head(trace, step, layer, head, colors), chosen)


def drawn_map_json(drawn: Drawn, chosen: Cell | None = None) -> Spec:
    """Returns the map of `heatmap_json`; maps that share a colour scale have the same `Drawn.span`."""
    (panel,), step = drawn.panels, drawn.step
    layer = drawn.trace.layer(drawn.layer)
    matrix = head_map(layer, step.name, panel.head)
    rows, columns = matrix.shape
    hidden = hidden_map(drawn.trace, step, drawn.layer, panel.head)
    row, column = chosen_position(step, chosen)
    has_sums = step.kind == "probability" and rows <= MAX_SIDE_WITH_NUMBERS
    sees_none = [bool(row.all()) for row in np.asarray(hidden)] if has_sums and hidden is not None else [False] * rows
    sums = _row_sums(layer.matrix(step.name, panel.head).sum(dim=-1).tolist(), sees_none) if has_sums else []
    outlines = cell_outlines(rows, columns, row, column)
    figure = build_map(drawn, matrix, hidden, *outlines, *sums, numbers=True)
    if has_sums:
        figure["layout"]["margin"]["r"] = 40 if any(sees_none) else 32
    return with_chosen_cell(figure, row, column)


def _row_sums(totals: Sequence[float], sees_none: Sequence[bool]) -> list[Mark]:
    """The sums of the rows beside a map."""
    position: dict[str, Any] = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": 4}
    header = note("Σ", y=-0.5, yanchor="bottom", **position | {"xshift": 14})  # beside the last number of the bar
    texts = ["no key" if is_blind else f"{total:.2f}" for is_blind, total in zip(sees_none, totals, strict=True)]
    return [header, *(note(text, y=row, **position) for row, text in enumerate(texts))]


def with_chosen_cell(figure: Spec, row: int | None, column: int | None) -> Spec:
    """Returns the figure with the chosen cell in its metadata: the start of keyboard navigation, and a part of the file name such as q3-k2."""
    meta: Meta = figure["layout"]["meta"]
    meta["chosen"] = None if row is None or column is None else [row, column]
    cell = "-".join(f"{side}{index}" for side, index in (("q", row), ("k", column)) if index is not None)
    meta["file"] = [*meta["file"], cell]
    return figure


def mask_map_json(trace: Trace, layer: int = 0, chosen: Cell | None = None) -> Spec:
    """Returns a map of which keys each query may attend to in the head of the chosen cell: allowed cells coloured, hidden cells neutral.

    Raises:
        MissingError: the trace has no such layer.
    """
    drawn_layer = trace.layer(layer)
    head_layer = drawn_layer.for_head(chosen.head if chosen else 0)
    mask, rows, columns = head_layer.mask, len(drawn_layer.tokens), len(drawn_layer.key_tokens)
    visible = np.ones((rows, columns), dtype=bool) if mask is None else mask.numpy()
    allowed = f"{int(visible.sum())} of {visible.size} cells may attend"
    n_blind = int((~visible.any(axis=1)).sum())
    facts = [allowed, *([f"L{layer} H{chosen.head} alone"] if chosen and head_layer is not drawn_layer else [])]
    facts += describe_blind_queries(n_blind)
    alt = f"Heatmap of the mask, query (attends from) by key (attends to): {', '.join(facts)}."
    panel, file = Panel(0, 0, 0, rows, columns), ["mask", f"L{layer}"]
    meta: Meta = {"alt": alt, "step": "mask", "panels": [asdict(panel)], "axes": ["query", "key"], "file": file}
    heading = "<b>mask</b>  may attend"
    layout = map_layout(drawn_layer, ("query_pos", "key_pos"), heading, facts, meta, (rows, columns))
    layout["title"]["pad"]["b"] = 60  # level with neighbouring maps, whose colour bar needs space
    row, column = chosen_position(find_step(WEIGHTS), chosen)
    scale = [[0, HIDDEN_COLOR], [0.5, HIDDEN_COLOR], [0.5, _ALLOWED_COLOR], [1, _ALLOWED_COLOR]]
    figure = draw(
        layout,
        cells(
            visible.astype(np.float32), "query %{y}<br>key %{x}<br>1 = may attend, 0 = hidden: <b>%{z}</b>",
            {"zmin": 0, "zmax": 1, "colorscale": scale, "showscale": False}, 1 if max(rows, columns) <= MAX_SIDE_WITH_NUMBERS else 0,
        ),
        *cell_outlines(rows, columns, row, column),
    )  # fmt: skip
    return with_chosen_cell(figure, row, column)


heatmap, mask_map = plotly_variant(heatmap_json), plotly_variant(mask_map_json)
"""`heatmap_json` and `mask_map_json` as Plotly figures."""


def derived_map_json(trace: Trace, reading: DerivedMap, cell: Cell, colors: str = "fixed") -> Spec:
    """Returns the map of a derived quantity for the cell's layer (and its head, where each head has its own), with the cell outlined.

    An unbounded quantity, such as a norm, uses a colour range up to its largest value.

    Raises:
        AttentionError: the layer lacks a step that it is derived from.
        ConfigError: `colors` is not one of `COLORS`.
    """
    matrix = reading.matrix(trace, cell.layer, cell.head)
    rows, columns = matrix.shape
    is_readable = float(matrix.abs().max()) >= _SMALLEST_PRINTED
    position = (cell.row, cell.column) if cell.row < rows and cell.column < columns else (None, None)
    scale = "stretched" if reading.per_head and colors == "fixed" else colors
    drawn = Drawn(trace, reading.step, cell.layer, [Panel(cell.head, 0, 0, rows, columns)], scale, matrix)
    hidden, outlines = hidden_cells(trace, reading.step, cell.layer), cell_outlines(rows, columns, *position)
    figure = build_map(drawn, matrix.numpy(), hidden, *outlines, numbers=is_readable)
    figure["layout"]["meta"].pop("hidden_trace", None)  # the page does not recompute derived maps
    for axis in ("xaxis", "yaxis") if reading.sides else ():
        figure["layout"][axis]["title"]["text"] = reading.sides
    return with_chosen_cell(figure, *position)


def averaging_json(trace: Trace, name: str) -> Spec:
    """Returns the map of `output` titled with the method that computed it, for a comparison of several methods."""
    figure = heatmap_json(trace, OUTPUT)
    layout, meta = figure["layout"], figure["layout"]["meta"]
    layout["title"]["text"] = f"<b>{name}</b>"
    layout["title"]["subtitle"]["text"] = "each row the average of all rows up to it"
    meta["alt"] = f"By {name}: {meta['alt']}"
    meta["file"][0] += f"-by-{name.replace(' ', '-')}"
    return figure


def cell_outlines(rows: int, columns: int, row: int | None, *outlined_columns: int | None) -> list[Mark]:
    """Returns the outlines of a row, of columns, and of the cells where they meet, on a map of `rows` × `columns` cells."""
    present = [column for column in outlined_columns if column is not None]
    across = [] if row is None else [outline(0, row, columns, 1, 1)]
    down = [outline(column, 0, 1, rows, 1) for column in present]
    return [*across, *down, *(outline(column, row, 1, 1, 3) for column in present if row is not None)]


def chosen_position(step: Step, chosen: Cell | None) -> tuple[int | None, int | None]:
    """Returns the row and the column of a step's map that belong to the chosen cell, or share its query or key."""
    if chosen is None:
        return None, None
    if chosen.step == step.name:
        return chosen.row, chosen.column
    origin = find_step(chosen.step)
    sides = ((origin.row_axis, chosen.row), (origin.column_axis, chosen.column))
    positions = {axis: index for axis, index in sides if axis in AXIS_TITLES}
    return positions.get(step.row_axis), positions.get(step.column_axis)
