"""Trace to Plotly figure: one head's map, or all heads side by side.

Labels come from the trace, colours from the kind of number. A figure carries in ``layout.meta`` what a page needs beside
the picture, see `contract.Meta`.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from attention.formula.cell import Cell
from attention.formula.names import OUTPUT, WEIGHTS
from attention.formula.steps import Step, find_step
from attention.formula.trace import Trace
from attention.pictures.changed import as_figure
from attention.pictures.contract import Meta
from attention.pictures.drawing import ALLOWED, HIDDEN, figure_of, hidden_cells, seeing_none
from attention.pictures.layout import AXIS_TITLES, Panel, Spec, laid_out, note, outline
from attention.pictures.mosaic import cell_at, heads, heads_json
from attention.pictures.scales import COLORS, color_range

__all__ = ["COLORS", "cell_at", "color_range", "heads", "heads_json", "heatmap", "heatmap_json", "mask_map"]

CELL_TEXT_UP_TO = 24  # rows or columns; beyond, numbers in the cells are noise


def heatmap_json(
    trace: Trace,
    step: str,
    layer: int = 0,
    head: int = 0,
    chosen: Cell | None = None,
    colors: str = "fixed",
    span: tuple[float, float] | None = None,
) -> Spec:
    """One matrix of a step as a heatmap: rows from top to bottom, one cell per number.

    The `chosen` cell is outlined; in a map of another step the row and the column that share its
    query or key are marked. A hidden score is a gap on a neutral ground; a hidden weight is 0 under
    the same ground. The `colors` of a probability are one of `COLORS`: over 0 … 1, stretched to the layer's largest,
    or over powers of ten; the numbers stay what they are. Maps that share a scale are given one `span` of numbers.

    Raises:
        MissingError: the trace has no such layer, step or head.
        ConfigError: there are no such colours.
    """
    found = find_step(step)
    matrix = trace.layer(layer).matrix(step, head)
    rows, columns = matrix.shape
    panel, hidden = Panel(head, 0, 0, rows, columns), hidden_cells(trace, found, layer, head)
    row, column = place_of(found, chosen)
    more: dict[str, Any] = {"shapes": marks(rows, columns, row, column)}
    more["heat"] = numbers_in_cells(rows, columns)
    if found.kind == "probability" and rows <= CELL_TEXT_UP_TO:
        beside: dict[str, Any] = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": 4}
        blind = [False] * rows if hidden is None else [bool(row.all()) for row in hidden]
        totals = zip(blind, matrix.sum(dim=-1).tolist(), strict=True)
        sums = ["no key" if sees_none else f"{total:.2f}" for sees_none, total in totals]
        more["margin"] = {"r": 40 if any(blind) else 32}
        above = note("Σ", y=-0.5, yanchor="bottom", **beside)
        more["annotations"] = [above, *(note(text, y=row, **beside) for row, text in enumerate(sums))]
    figure = figure_of(trace, found, layer, matrix.numpy(), hidden, [panel], colors, span=span, **more)
    return placed(figure, row, column)


def placed(figure: Spec, row: int | None, column: int | None) -> Spec:
    """The figure with the chosen place in it: where the keyboard begins, and what a map's file is called after, such as q3-k2."""
    meta: Meta = figure["layout"]["meta"]
    meta["chosen"] = None if row is None or column is None else [row, column]
    cell = "-".join(f"{side}{at}" for side, at in (("q", row), ("k", column)) if at is not None)
    meta["file"] = [*meta["file"], cell]
    return figure


def numbers_in_cells(rows: int, columns: int) -> dict[str, Any]:
    """What a heatmap of this size writes into its cells: its numbers, where there is room."""
    small = max(rows, columns) <= CELL_TEXT_UP_TO
    return {"texttemplate": "%{z:.2f}", "textfont": {"size": 10}} if small else {}


def mask_map_json(trace: Trace, layer: int = 0, chosen: Cell | None = None) -> Spec:
    """Which keys each query may attend to, in the head of the chosen cell: allowed cells in colour, hidden ones on their ground.

    Raises:
        MissingError: the trace has no such layer.
    """
    its = trace.layer(layer)
    own = its.of(chosen.head if chosen else 0)
    mask, rows, columns = own.mask, len(its.tokens), len(its.key_tokens)
    visible = np.ones((rows, columns), dtype=bool) if mask is None else mask.numpy()
    gap = 1 if max(rows, columns) <= CELL_TEXT_UP_TO else 0
    heat = {
        "type": "heatmap",
        "z": visible.astype(np.float32),
        "zmin": 0,
        "zmax": 1,
        "colorscale": [[0, HIDDEN], [0.5, HIDDEN], [0.5, ALLOWED], [1, ALLOWED]],
        "showscale": False,
        "xgap": gap,
        "ygap": gap,
        "hovertemplate": "query %{y}<br>key %{x}<br>1 = may attend, 0 = hidden: <b>%{z}</b><extra></extra>",
    }
    allowed = f"{int(visible.sum())} of {visible.size} cells may attend"
    blind = int((~visible.any(axis=1)).sum())
    facts = [allowed, *([f"L{layer} H{chosen.head} alone"] if chosen and own is not its else [])]
    facts += seeing_none(blind)
    alt = f"Heatmap of the mask, query (attends from) by key (attends to): {', '.join(facts)}."
    panel, file = Panel(0, 0, 0, rows, columns), ["mask", f"L{layer}"]
    meta: Meta = {"alt": alt, "step": "mask", "panels": [asdict(panel)], "axes": ["query", "key"], "file": file}
    heading = "<b>mask</b>  may attend"
    layout = laid_out(its, ("query_pos", "key_pos"), [panel], heading, facts, meta, (rows, columns))
    layout["title"]["pad"]["b"] = 60  # level with its neighbours, which a colour bar lifts
    row, column = place_of(find_step(WEIGHTS), chosen)
    layout["shapes"] = marks(rows, columns, row, column)
    return placed({"data": [heat], "layout": layout}, row, column)


heatmap, mask_map = as_figure(heatmap_json), as_figure(mask_map_json)
"""`heatmap_json` and `mask_map_json` as Plotly's object."""


def way_json(trace: Trace, name: str) -> Spec:
    """The rows of `output` under the name of the way that made them, for a comparison of several ways."""
    figure = heatmap_json(trace, OUTPUT)
    layout, meta = figure["layout"], figure["layout"]["meta"]
    layout["title"]["text"] = f"<b>{name}</b>"
    layout["title"]["subtitle"]["text"] = "each row the average of all rows up to it"
    meta["alt"] = f"By {name}: {meta['alt']}"
    meta["file"][0] += f"-by-{name.replace(' ', '-')}"
    return figure


def marks(rows: int, columns: int, row: int | None, *at: int | None) -> list[dict[str, Any]]:
    """The outlines of a row, of the columns `at`, and of the cells where they meet, on a map of so many `rows` and `columns`."""
    there = [column for column in at if column is not None]
    across = [] if row is None else [outline(0, row, columns, 1, 1)]
    down = [outline(column, 0, 1, rows, 1) for column in there]
    return [*across, *down, *(outline(column, row, 1, 1, 3) for column in there if row is not None)]


def place_of(step: Step, chosen: Cell | None) -> tuple[int | None, int | None]:
    """The row and the column of a step's map that are the chosen cell's, or share its query or key."""
    if chosen is None:
        return None, None
    if chosen.step == step.name:
        return chosen.row, chosen.column
    origin = find_step(chosen.step)
    sides = ((origin.row_axis, chosen.row), (origin.column_axis, chosen.column))
    at = {axis: place for axis, place in sides if axis in AXIS_TITLES}
    return at.get(step.row_axis), at.get(step.column_axis)
