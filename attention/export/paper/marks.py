"""The content of the plot: cells with numbers, grid lines, curves, points, bars, and the legend."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.export.paper import markup
from attention.export.paper.figure_notes import MIDDLE, Area
from attention.export.paper.heatmap_cells import Cells, text_color_on
from attention.export.paper.page import INK
from attention.export.paper.tick_layout import LINE, Axis

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from attention.export.paper.page import Page

_SMALLEST_NUMBER = 6.5  # pixels (4.9 points): numbers in cells are left out rather than drawn smaller
_SWATCH = 9  # pixels: the side of a legend's coloured square


def draw_cells(page: Page, cells: list[Cells], x: Axis, y: Axis, area: Area) -> None:
    """Fills the cells of every heatmap and writes their numbers; the first heatmap is named "cells", the others "ground"."""
    for i, layer in enumerate(cells):
        if not len(layer.boxes):
            continue
        left, right = area.x(x.at(layer.boxes[:, 0])), area.x(x.at(layer.boxes[:, 2]))
        top, bottom = area.y(y.at(layer.boxes[:, 1])), area.y(y.at(layer.boxes[:, 3]))
        across, down = (gap / 2 for gap in layer.gap)
        boxes = np.stack([left + across, top + down, right - across, bottom - down], axis=1)
        page.boxes(
            boxes, layer.colors, "ground" if i else "cells", not any(layer.gap) and layer.opacity == 1, layer.opacity
        )
        if layer.number:
            _write_numbers(page, layer, boxes)


def draw_grid(page: Page, x: Axis, y: Axis, area: Area) -> None:
    """Draws a line at each tick of the axes that have grid lines."""
    for tick in x.ticks if x.grid else ():
        pixel = area.x(tick.at)
        page.line([pixel, pixel], [area.top, area.bottom], x.grid or INK, 1)
    for tick in y.ticks if y.grid else ():
        pixel = area.y(tick.at)
        page.line([area.left, area.right], [pixel, pixel], y.grid or INK, 1)


def draw_curves(page: Page, figure: go.Figure, x: Axis, y: Axis, area: Area) -> None:
    """Draws the lines and points of a chart, in their order."""
    for trace in (trace for trace in figure.data if trace.type == "scatter" and not trace.marker.showscale):
        xs, ys = area.x(x.at(np.asarray(trace.x, dtype=float))), area.y(y.at(np.asarray(trace.y, dtype=float)))
        mode = trace.mode or "lines"
        if "lines" in mode:
            bounds = (area.left, area.top, area.right, area.bottom)
            page.line(xs, ys, _css(trace.line.color), _or(trace.line.width, 2), dash=trace.line.dash, within=bounds)
        if "markers" in mode:
            for i, (px, py) in enumerate(zip(xs, ys, strict=True)):
                marker = trace.marker
                edge, width = _css(marker.line.color, i), _or(marker.line.width, 0)
                page.dot(px, py, _css(marker.color, i), _or(marker.size, 6), edge if width else "none", width)


def draw_bars(page: Page, figure: go.Figure, x: Axis, y: Axis, area: Area) -> None:
    """Draws the bars of a chart; bars at the same position stand side by side."""
    bars = [trace for trace in figure.data if trace.type == "bar"]
    for i, trace in enumerate(bars):
        positions = np.asarray(trace.x, dtype=float)
        slot = (
            (1 - _or(figure.layout.bargap, 0.2)) * (np.diff(positions).min() if len(positions) > 1 else 1) / len(bars)
        )
        middle = positions + (i - (len(bars) - 1) / 2) * slot
        half = slot * (1 - _or(figure.layout.bargroupgap, 0)) / 2
        heights = np.asarray(trace.y, dtype=float)
        top, bottom = area.y(y.at(np.maximum(heights, 0))), area.y(y.at(np.minimum(heights, 0)))
        boxes = np.stack([area.x(x.at(middle - half)), top, area.x(x.at(middle + half)), bottom], axis=1)
        page.boxes(boxes, [_css(trace.marker.color, j) for j in range(len(positions))], f"bars-{i}", seam=False)


def largest_dot(figure: go.Figure) -> float:
    """The diameter of the largest point in pixels; up to half of it may extend beyond the plot."""
    curves = (trace for trace in figure.data if trace.type == "scatter" and not trace.marker.showscale)
    dotted = (trace for trace in curves if "markers" in (trace.mode or ""))
    return max((_or(trace.marker.size, 6) + _or(trace.marker.line.width, 0) for trace in dotted), default=0)


def draw_legend(page: Page, figure: go.Figure, left: float, right: float, top: float, size: float) -> float:
    """Writes the legend on as many lines as it needs, if the figure has one; returns its height."""
    entries = [trace for trace in figure.data if trace.type in ("bar", "scatter") and trace.showlegend is not False]
    if len(entries) < 2 or figure.layout.showlegend is False:
        return 0.0
    x, y = left, top + LINE * size / 2
    if title := markup.plain(figure.layout.legend.title.text).strip():
        page.write(x, y + MIDDLE * size, title, size)
        x += page.width_of(title, size) + size
    for trace in entries:
        name = markup.plain(trace.name)
        entry_width = _SWATCH + 5 + page.width_of(name, size)
        if x > left and x + entry_width > right:
            x, y = left, y + 1.4 * size
        swatch = np.array([[x, y - _SWATCH / 2, x + _SWATCH, y + _SWATCH / 2]])
        page.boxes(swatch, [_css((trace.marker if trace.type == "bar" else trace.line).color)], "legend", seam=False)
        page.write(x + _SWATCH + 5, y + MIDDLE * size, name, size)
        x += entry_width + 1.3 * size
    return y + LINE * size / 2 - top


def _write_numbers(page: Page, cells: Cells, boxes: Any) -> None:
    """Writes the number of each cell into it, if the cells are large enough for the widest number."""
    texts = [_format(float(number), cells.number) for number in cells.numbers]
    widest = max(page.width_of(text, 1) for text in texts)
    width, height = (boxes[:, 2] - boxes[:, 0]).min(), (boxes[:, 3] - boxes[:, 1]).min()
    size = min(cells.number_size, 0.9 * width / widest, 0.8 * height)
    if size < _SMALLEST_NUMBER:
        return
    middles = (boxes[:, :2] + boxes[:, 2:]) / 2
    for text, (x, y), color in zip(texts, middles, cells.colors, strict=True):
        page.write(x, y + MIDDLE * size, text, size, "center", color=text_color_on(str(color)))


def _format(number: float, pattern: str) -> str:
    text = format(number, pattern)
    return text.removeprefix("-") if float(text) == 0 else text


def _css(color: Any, i: int = 0) -> str:
    """The colour of the i-th point, from one colour for all points or one for each."""
    if color is None:
        return INK
    return str(color[i]) if isinstance(color, Sequence | np.ndarray) and not isinstance(color, str) else str(color)


def _or(value: float | None, default: float) -> float:
    return default if value is None else value
