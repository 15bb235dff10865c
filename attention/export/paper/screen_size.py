"""The size of a figure on the screen."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import plotly.graph_objects as go


def width(figure: go.Figure) -> int:
    """The width of a figure in pixels on a wide screen: all heads, a map beside others, a map that fills a column, or a chart."""
    panels = (figure.layout.meta or {}).get("panels") or []
    if len(panels) > 1:
        return 1076
    if panels:
        return 400
    return 640 if any(trace.type == "heatmap" for trace in figure.data) else 480


def ratio(figure: go.Figure) -> float:
    """The ratio of the plot's height to its width."""
    if has_square_cells(figure):
        x, y = (abs(axis.range[1] - axis.range[0]) for axis in (figure.layout.xaxis, figure.layout.yaxis))
        return float(y / x)
    margin = figure.layout.margin
    left, right, top, bottom = (80 if side is None else side for side in (margin.l, margin.r, margin.t, margin.b))
    return float(max(60, (figure.layout.height or 450) - top - bottom) / max(100, width(figure) - left - right))


def has_square_cells(figure: go.Figure) -> bool:
    """Whether a row of the plot is as high as a column is wide, as in a picture."""
    return bool(figure.layout.yaxis.scaleanchor == "x" and figure.layout.xaxis.range)
