"""What a figure is: a frame, and marks in it. `draw(frame(…), *marks)` makes Plotly's JSON of them, which pages, notebooks, the demo and `paper` draw.

The marks are cells, ground (cells of one colour), outlines, labels (notes), points, points joined by a line, bars, pictures and straight rules; all
are plain JSON with arrays in it, and later ones lie above earlier ones. Positions are in units of the axes: the cell [row column] of a map has its middle at x = column, y = row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.pictures.look import LIGHT, TYPE
from attention.trace.large_map import RowsOnDemand

if TYPE_CHECKING:
    from numpy.typing import NDArray

Spec = dict[str, Any]
"""A figure as Plotly's JSON, {"data": …, "layout": …}, containing arrays."""
Mark = dict[str, Any]
"""An entry of the figure's data, shapes, annotations or images: which of them follows from its keys."""

CHOSEN_COLOR, HIDDEN_COLOR, POINT_COLOR = LIGHT["ink"], LIGHT["line"], LIGHT["point"]
_RIM, _GRID_COLOR = "rgba(128,128,140,0.8)", "rgba(128,128,140,0.28)"  # of points; of charts
POINT = {"size": 9, "color": POINT_COLOR, "line": {"width": 0.5, "color": _RIM}}
NO_TEMPLATE = {"data": {"scatter": [{"type": "scatter"}]}}
"""Plotly's "none"; without a template it uses its own colours."""
CLEAR = {"paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)"}
"""A ground that suits both themes."""
_PART_OF_TYPE = {"heatmap": "data", "scatter": "data", "bar": "data", "rect": "shapes", "line": "shapes"}


@dataclass(frozen=True)
class Panel:
    """The position of one head's matrix in a map: its corner, its size, and how many numbers the side of a cell covers."""

    head: int
    x: int
    y: int
    rows: int
    columns: int
    block: int = 1
    layer: int = 0

    @property
    def area(self) -> tuple[slice, slice]:
        """The part of the map that it covers, as an index into an array [row column]."""
        return np.s_[self.y : self.y + self.rows, self.x : self.x + self.columns]


def draw(layout: dict[str, Any], *marks: Mark | None) -> Spec:
    """A figure of a frame and its marks; None is no mark."""
    figure: dict[str, list[Mark]] = {"data": [], "shapes": [], "annotations": [], "images": []}
    for mark in filter(None, marks):
        part = _PART_OF_TYPE.get(mark.get("type", ""), "images" if "source" in mark else "annotations")
        figure[part].append(mark)
    data = figure.pop("data")
    return {"data": data, "layout": layout | {part: drawn for part, drawn in figure.items() if drawn}}


def frame(
    title: str, facts: str, alt: str, x: Mapping[str, Any], y: Mapping[str, Any], height: int = 340, **more: Any
) -> dict[str, Any]:
    """What stands around the marks of a chart: title, facts below it, and two of `axis`; colours suit both themes, and clicks do nothing.

    Args:
        alt: the alternative text, in sentences: what the marks show.
        height: of the figure in pixels, with title and axes.
        more: further keys of Plotly's layout; those of `margin` and `meta` (`message_contract.Meta`) are added to the usual ones.
    """
    usual = {"l": 58, "r": 16, "t": 70, "b": 44}
    meta = {"alt": f"{alt} The table has the numbers.", "step": "", "panels": []}
    return {
        "title": {
            "text": f"<b>{title}</b>", "font": {"size": TYPE["text"]}, "x": 0, "xref": "container", "pad": {"l": 6},
            "y": 1 - 30 / height, "yref": "container", "yanchor": "bottom", "subtitle": {"text": facts, "font": {"size": TYPE["axis"]}},
        },
        "template": NO_TEMPLATE, "font": {"size": TYPE["axis"]}, "height": height, **CLEAR, "uirevision": title, "xaxis": x, "yaxis": y,
        **more, "margin": usual | more.get("margin", {}), "meta": meta | more.get("meta", {}),
    }  # fmt: skip


def axis(
    title: str = "",
    span: Sequence[float] = (),
    ticks: Mapping[Any, str] | None = None,
    grid: bool = True,
    **more: Any,
) -> dict[str, Any]:
    """An axis of a chart: its title, from where to where (pictures for print need it), and the labels at some places; without `ticks`, Plotly finds round numbers."""
    return {
        "gridcolor": _GRID_COLOR, "zeroline": False, "showline": False, "ticks": "", "title": {"text": title, "standoff": 8},
        **({"range": [*span]} if len(span) else {}), **({} if grid else {"showgrid": False}),
        **({} if ticks is None else {"tickvals": [*ticks], "ticktext": [*ticks.values()]}), **more,
    }  # fmt: skip


def cells(
    numbers: NDArray[Any] | RowsOnDemand, hover: str, colors: Mapping[str, Any], gap: int = 0, **more: Any
) -> Mark:
    """A cell for each number [row column], a gap where it is not finite; `colors` are of `scales`, `hover` is the text under the pointer, with %{x}, %{y} and %{z}."""
    gaps, z = {"xgap": gap, "ygap": gap} if gap else {}, numbers
    if not isinstance(numbers, RowsOnDemand) and not (finite := np.isfinite(numbers)).all():
        z = np.where(finite, numbers, np.nan).astype(numbers.dtype)
    return {"type": "heatmap", "z": z, **colors, **gaps, "hoverongaps": False, **_hover(hover, "none"), **more}


def ground(
    where: NDArray[np.bool_] | RowsOnDemand | None = None, hover: str = "", color: str = HIDDEN_COLOR, **more: Any
) -> Mark:
    """Cells of one colour `where` it is true, such as those that a mask hides; without `where`, the page fills in which."""

    def numbers(where: NDArray[np.bool_]) -> NDArray[np.float32]:
        return np.where(where, np.float32(1), np.float32(np.nan))

    z: dict[str, Any] = {}
    if isinstance(where, RowsOnDemand):
        z = {"z": RowsOnDemand(where.shape, np.dtype(np.float32), lambda rows: numbers(where.rows(rows)))}
    elif where is not None:
        z = {"z": numbers(where)}
    scale = {"colorscale": [[0, color], [1, color]], "showscale": False}
    return {"type": "heatmap", **scale, "hoverongaps": False, **_hover(hover, "none"), **z, **more}


def outline(x: int, y: int, columns: int, rows: int, width: int, color: str = CHOSEN_COLOR, **more: Any) -> Mark:
    """An outline of some cells of a map, by default in the colour of the chosen cell, `width` pixels wide."""
    line = {"color": color, "width": width, **more}
    return {"type": "rect", "x0": x - 0.5, "x1": x + columns - 0.5, "y0": y - 0.5, "y1": y + rows - 0.5, "line": line}


def rule(
    x: tuple[float, float], y: tuple[float, float], color: str, width: int = 1, dash: str = "", **more: Any
) -> Mark:
    """A straight line between two places, which has no text under the pointer."""
    line = {"color": color, "width": width, **({"dash": dash} if dash else {})}
    return {"type": "line", "x0": x[0], "x1": x[1], "y0": y[0], "y1": y[1], "line": line, **more}


def note(text: str, **position: Any) -> Mark:
    """A short text."""
    return {"text": text, "showarrow": False, "font": {"size": TYPE["axis"]}, **position}


def panel_label(text: str, panel: Panel, **more: Any) -> Mark:
    """A label above the left edge of a panel."""
    return note(text, x=panel.x - 0.5, y=panel.y - 0.5, xanchor="left", yanchor="bottom", **more)


def points(x: Any, y: Any, hover: str, marker: Mapping[str, Any] = POINT, **more: Any) -> Mark:
    """A point at each place."""
    usual = {"mode": "markers", "marker": marker, "showlegend": False, "cliponaxis": False}
    return {"type": "scatter", "x": x, "y": y, **usual, **_hover(hover), **more}


def ring(x: Any, y: Any) -> Mark:
    """A ring around the chosen point."""
    return points(x, y, "", {"size": 15, "color": "rgba(0,0,0,0)", "line": {"width": 3, "color": CHOSEN_COLOR}})


def joined(
    x: Any, y: Any, hover: str = "", color: str = POINT_COLOR, width: float = 2, dash: str = "", **more: Any
) -> Mark:
    """Points joined by a line; NaN interrupts it."""
    style = {"color": color, "width": width, **({"dash": dash} if dash else {})}
    usual = {"mode": "lines", "line": style, "showlegend": False}
    return {"type": "scatter", "x": x, "y": y, **usual, **_hover(hover), **more}


def dotted(x: Any, y: Any, hover: str = "") -> Mark:
    """A line for comparison, such as where heads lie that have not changed."""
    return joined(x, y, hover, LIGHT["edge"], dash="dot")


def bars(x: Any, y: Any, hover: str, color: str = POINT_COLOR, opacity: float = 1, **more: Any) -> Mark:
    """An upright bar at each x up to y; with `orientation="h"`, a lying one at each y up to x."""
    marker = {"color": color, **({"opacity": opacity} if opacity < 1 else {})}
    return {"type": "bar", "x": x, "y": y, "marker": marker, "showlegend": False, **_hover(hover), **more}


def image(source: str, x: float, y: float, columns: float, rows: float) -> Mark:
    """A picture under some cells, as a data URI; `x` and `y` are those of its first cell."""
    return {
        "source": source, "xref": "x", "yref": "y", "x": x - 0.5, "y": y - 0.5, "sizex": columns, "sizey": rows,
        "xanchor": "left", "yanchor": "top", "sizing": "stretch", "layer": "below",
    }  # fmt: skip


def _hover(text: str, without: str = "skip") -> dict[str, str]:
    """The text under the pointer; `without` one, "skip" is not there for the pointer, and "none" is, so that the page can say what it is."""
    return {"hovertemplate": f"{text}<extra></extra>"} if text else {"hoverinfo": without}
