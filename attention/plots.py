"""Trace to Plotly figure: one head's map, or all heads side by side.

Labels come from the trace, colours from the kind of number. A figure carries in ``layout.meta``
what a page needs beside the picture: ``alt``, a sentence for who cannot see it, ``step``, and
``panels``, where the matrix of each head lies in the map.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import plotly.graph_objects as go

from attention.arithmetic import Cell
from attention.drawing import (
    ALLOWED,
    AXIS_TITLES,
    HIDDEN,
    Panel,
    Spec,
    drawn,
    figure_of,
    hidden_cells,
    laid_out,
    note,
    outline,
)
from attention.mosaic import cell_at, heads, heads_json
from attention.scales import COLORS, color_range
from attention.trace import Step, Trace, find_step

__all__ = ["COLORS", "cell_at", "color_range", "heads", "heads_json", "heatmap", "heatmap_json", "mask_map"]

CELL_TEXT_UP_TO = 24  # rows or columns; beyond, numbers in the cells are noise


def heatmap(
    trace: Trace, step: str, layer: int = 0, head: int = 0, chosen: Cell | None = None, colors: str = "fixed"
) -> go.Figure:
    """`heatmap_json` as Plotly's object."""
    return drawn(heatmap_json(trace, step, layer, head, chosen, colors))


def heatmap_json(
    trace: Trace, step: str, layer: int = 0, head: int = 0, chosen: Cell | None = None, colors: str = "fixed"
) -> Spec:
    """One matrix of a step as a heatmap: rows from top to bottom, one cell per number.

    The `chosen` cell is outlined; in a map of another step the row and the column that share its
    query or key are marked. A hidden score is a gap on a neutral ground; a hidden weight is 0 under
    the same ground. The `colors` of a probability are one of `COLORS`: over 0 … 1, stretched to the layer's largest,
    or over powers of ten; the numbers stay what they are.

    Raises:
        MissingError: the trace has no such layer, step or head.
        ConfigError: there are no such colours.
    """
    found = find_step(step)
    matrix = trace.layer(layer).matrix(step, head)
    rows, columns = matrix.shape
    panel, hidden = Panel(head, 0, 0, rows, columns), hidden_cells(trace, found, layer)
    more: dict[str, Any] = {"shapes": [] if chosen is None else _marks(found, panel, chosen)}
    if max(rows, columns) <= CELL_TEXT_UP_TO:
        more["heat"] = {"texttemplate": "%{z:.2f}", "textfont": {"size": 10}}
    if found.kind == "probability" and rows <= CELL_TEXT_UP_TO:
        beside: dict[str, Any] = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": 6}
        blind = [False] * rows if hidden is None else [bool(row.all()) for row in hidden]
        sums = [
            "no key" if sees_none else f"{total:.2f}"
            for sees_none, total in zip(blind, matrix.sum(dim=-1).tolist(), strict=True)
        ]
        more["margin"] = {"r": 40}
        more["annotations"] = [
            note("Σ row", y=-0.5, yanchor="bottom", **beside),
            *(note(text, y=row, **beside) for row, text in enumerate(sums)),
        ]
    figure = figure_of(trace, found, layer, matrix.numpy(), hidden, [panel], colors, **more)
    figure["layout"]["meta"]["file"].append(_place(found, chosen))
    return figure


def mask_map(trace: Trace, layer: int = 0, chosen: Cell | None = None) -> go.Figure:
    """Which keys each query may attend to: allowed cells in colour, hidden ones on their ground.

    Raises:
        MissingError: the trace has no such layer.
    """
    mask = trace.layer(layer).mask
    rows, columns = len(trace.tokens), len(trace.key_tokens)
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
    facts = [allowed] + ([f"{blind} {'query sees' if blind == 1 else 'queries see'} no key"] if blind else [])
    alt = f"Heatmap of the mask, query (attends from) by key (attends to): {', '.join(facts)}."
    panel = Panel(0, 0, 0, rows, columns)
    meta = {"alt": alt, "step": "mask", "file": ["mask", f"L{layer}", _place(find_step("weights"), chosen)]}
    heading = "<b>mask</b>  may attend"
    layout = laid_out(trace, ("query_pos", "key_pos"), [panel], heading, facts, meta, (rows, columns))
    layout["title"]["pad"]["b"] = 60  # level with its neighbours, which a colour bar lifts
    layout["shapes"] = [] if chosen is None else _marks(find_step("weights"), panel, chosen)
    return drawn({"data": [heat], "layout": layout})


def way(trace: Trace, name: str) -> go.Figure:
    """The rows of `output` under the name of the way that made them, for a comparison of several ways."""
    figure = heatmap(trace, "output")
    figure.layout.title.text = f"<b>{name}</b>"
    figure.layout.title.subtitle.text = "each row the average of all rows up to it"
    figure.layout.meta["alt"] = f"By {name}: {figure.layout.meta['alt']}"
    figure.layout.meta["file"][0] += f"-by-{name.replace(' ', '-')}"
    return figure


def _shared(step: Step, chosen: Cell) -> tuple[int, int]:
    """The row and the column of a map that belong to the chosen cell; −1 where there is none."""
    if chosen.step == step.name:
        return chosen.row, chosen.column
    origin = find_step(chosen.step)
    at = {
        axis: i
        for axis, i in ((origin.row_axis, chosen.row), (origin.column_axis, chosen.column))
        if axis in AXIS_TITLES
    }
    return at.get(step.row_axis, -1), at.get(step.column_axis, -1)


def _place(step: Step, chosen: Cell | None) -> str:
    """What a map's file is called after: the row and column that are outlined in it, such as q3-k2."""
    places = zip("qk", (-1, -1) if chosen is None else _shared(step, chosen), strict=True)
    return "-".join(f"{letter}{i}" for letter, i in places if i >= 0)


def _marks(step: Step, panel: Panel, chosen: Cell) -> list[dict[str, Any]]:
    """Outlines of the chosen cell, or the row and column of this map that share its query or key."""
    row, column = _shared(step, chosen)
    marks = []
    if row >= 0:
        marks.append(outline(0, row, panel.columns, 1, 1))
    if column >= 0:
        marks.append(outline(column, 0, 1, panel.rows, 1))
    if row >= 0 and column >= 0:
        marks.append(outline(column, row, 1, 1, 3))
    return marks
