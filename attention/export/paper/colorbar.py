"""The colour bar of a figure: a horizontal strip of colours with its numbers below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.export.paper import markup
from attention.export.paper.heatmap_cells import colors_of
from attention.export.paper.tick_layout import LINE

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from attention.export.paper.figure_notes import Area
    from attention.export.paper.page import Align, Page

_SLICES = 128


@dataclass(frozen=True)
class ColorBar:
    """A colour bar: Plotly's settings, the colour scale, its range, and the words beside it."""

    settings: Any
    scale: Any
    low: float
    high: float
    caption: str

    @property
    def below(self) -> bool:
        """Whether the bar lies below the plot."""
        return bool(self.settings.y == 0)

    @property
    def height(self) -> float:
        """The height of the bar with its numbers."""
        return float((self.settings.thickness or 8) + LINE * (self.settings.tickfont.size or 10) + 4)


def read(figure: go.Figure) -> ColorBar | None:
    """The colour bar of a figure, taken from its heatmap or from the trace that carries it."""
    words = next((note.text for note in figure.layout.annotations if note.name == "colors"), "")
    for trace in figure.data:
        if trace.type == "heatmap" and trace.showscale is not False:
            return ColorBar(trace.colorbar, trace.colorscale, trace.zmin, trace.zmax, words)
        if trace.type == "scatter" and trace.marker.showscale:
            marker = trace.marker
            return ColorBar(marker.colorbar, marker.colorscale, marker.cmin, marker.cmax, words)
    return None


def draw(page: Page, bar: ColorBar, area: Area, top: float) -> None:
    """Draws a horizontal colour bar at the right end of the plot, with its upper edge at `top` and its numbers below."""
    settings = bar.settings
    size = settings.tickfont.size or 10
    values = settings.tickvals if settings.tickvals is not None else [bar.low, bar.high]
    texts = list(
        map(markup.plain, settings.ticktext if settings.ticktext is not None else [f"{value:.3g}" for value in values])
    )
    text_width = _text_width([page.width_of(text, size) for text in texts], _fractions(bar, values), size)
    length = min(area.width, max((settings.len or 1) * area.width, text_width))
    size *= min(1, length / text_width)
    left = area.right - length
    edges = np.linspace(left, area.right, _SLICES + 1)
    thickness = settings.thickness or 8
    if bar.caption:
        room = max(1.0, left - size / 2)
        fitted = min(size, size * room / page.width_of(bar.caption, size))
        page.write(left - fitted / 2, top + thickness, bar.caption, fitted, "right")
    rows = [np.full(_SLICES, top), edges[1:], np.full(_SLICES, top + thickness)]
    middles = (np.arange(_SLICES) + 0.5) / _SLICES * (bar.high - bar.low) + bar.low
    colors = colors_of(middles, bar.scale, bar.low, bar.high)
    page.boxes(np.stack([edges[:-1], *rows], axis=1), colors, "colorbar", seam=True)
    for fraction, text in zip(_fractions(bar, values), texts, strict=True):
        half = page.width_of(text, size) / 2
        middle = min(max(left + fraction * length, left + half), area.right - half)  # within the ends of the bar
        align: Align = "left" if fraction == 0 else "right" if fraction == 1 else "center"
        x = {"left": left, "right": area.right, "center": middle}[align]
        page.write(x, top + thickness + 1.05 * size, text, size, align)


def _fractions(bar: ColorBar, values: Sequence[float]) -> list[float]:
    """The places of numbers along the bar, from 0 to 1."""
    return [(value - bar.low) / (bar.high - bar.low) for value in values]


def _text_width(widths: Sequence[float], fractions: Sequence[float], space: float) -> float:
    """The length of a bar whose numbers have this space between them, also where one in the middle is nearer to one end."""
    lengths = [sum(widths) + space * len(widths)]
    for width, fraction in [*zip(widths, fractions, strict=True)][1:-1]:
        if 0 < fraction < 1:
            lengths += [(widths[0] + space + width / 2) / fraction, (width / 2 + space + widths[-1]) / (1 - fraction)]
    # A number close to an end would need a bar of any length; it is moved within the ends instead.
    return min(max(lengths), 2 * lengths[0])
