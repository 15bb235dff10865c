"""The colour bar of a figure: a lying strip of colours with its numbers below it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.export.paper import markup
from attention.export.paper.axes import LINE
from attention.export.paper.cells import colors_of

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from attention.export.paper.notes import Area
    from attention.export.paper.page import Align, Page

_SLICES = 128


@dataclass(frozen=True)
class Bar:
    """A colour bar: Plotly's own description of it, its colours and the numbers at its ends, and what stands beside it."""

    given: Any
    scale: Any
    low: float
    high: float
    words: str

    @property
    def below(self) -> bool:
        """Whether it lies below the plot."""
        return bool(self.given.y == 0)

    @property
    def height(self) -> float:
        """How much room it and its numbers take."""
        return float((self.given.thickness or 8) + LINE * (self.given.tickfont.size or 10) + 4)


def read(figure: go.Figure) -> Bar | None:
    """The colour bar of a figure: its heatmap's, or that of the trace that has it in its place."""
    words = next((note.text for note in figure.layout.annotations if note.name == "colors"), "")
    for trace in figure.data:
        if trace.type == "heatmap" and trace.showscale is not False:
            return Bar(trace.colorbar, trace.colorscale, trace.zmin, trace.zmax, words)
        if trace.type == "scatter" and trace.marker.showscale:
            marker = trace.marker
            return Bar(marker.colorbar, marker.colorscale, marker.cmin, marker.cmax, words)
    return None


def draw(page: Page, bar: Bar, area: Area, top: float) -> None:
    """Draws a lying colour bar at the right end of the plot, its upper edge at `top`, its numbers below it."""
    given = bar.given
    size = given.tickfont.size or 10
    values = given.tickvals if given.tickvals is not None else [bar.low, bar.high]
    texts = list(
        map(markup.plain, given.ticktext if given.ticktext is not None else [f"{value:.3g}" for value in values])
    )
    words = sum(page.width_of(text, size) for text in texts) + size * len(texts)
    length = min(area.width, max((given.len or 1) * area.width, words))
    size *= min(1, length / words)
    left = area.right - length
    edges = np.linspace(left, area.right, _SLICES + 1)
    thick = given.thickness or 8
    if bar.words:
        room = max(1.0, left - size / 2)
        fitted = min(size, size * room / page.width_of(bar.words, size))
        page.write(left - fitted / 2, top + thick, bar.words, fitted, "right")
    rows = [np.full(_SLICES, top), edges[1:], np.full(_SLICES, top + thick)]
    middles = (np.arange(_SLICES) + 0.5) / _SLICES * (bar.high - bar.low) + bar.low
    colors = colors_of(middles, bar.scale, bar.low, bar.high)
    page.boxes(np.stack([edges[:-1], *rows], axis=1), colors, "colorbar", seam=True)
    for value, text in zip(values, texts, strict=True):
        at = (value - bar.low) / (bar.high - bar.low)
        half = page.width_of(text, size) / 2
        middle = min(max(left + at * length, left + half), area.right - half)  # never past the ends of the bar
        align: Align = "left" if at == 0 else "right" if at == 1 else "center"
        x = {"left": left, "right": area.right, "center": middle}[align]
        page.write(x, top + thick + 1.05 * size, text, size, align)
