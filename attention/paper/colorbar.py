"""The colour bar of a figure: a lying strip of colours with its numbers below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attention.paper import markup
from attention.paper.axes import LINE
from attention.paper.cells import colors_of

if TYPE_CHECKING:
    from attention.paper.notes import Area
    from attention.paper.page import Align, Page

_SLICES = 128


def draw(page: Page, trace: Any, area: Area, top: float) -> None:
    """Draws a lying colour bar at the right end of the plot, its upper edge at `top`, its numbers below it."""
    bar = trace.colorbar
    size = bar.tickfont.size or 10
    values = bar.tickvals if bar.tickvals is not None else [trace.zmin, trace.zmax]
    texts = list(map(markup.plain, bar.ticktext if bar.ticktext is not None else [f"{value:.3g}" for value in values]))
    words = sum(page.width_of(text, size) for text in texts) + size * len(texts)
    length = min(area.width, max((bar.len or 1) * area.width, words))
    size *= min(1, length / words)
    left = area.right - length
    edges = np.linspace(left, area.right, _SLICES + 1)
    thick = bar.thickness or 8
    rows = [np.full(_SLICES, top), edges[1:], np.full(_SLICES, top + thick)]
    middles = (np.arange(_SLICES) + 0.5) / _SLICES * (trace.zmax - trace.zmin) + trace.zmin
    colors = colors_of(middles, trace.colorscale, trace.zmin, trace.zmax)
    page.boxes(np.stack([edges[:-1], *rows], axis=1), colors, "colorbar", seam=True)
    for value, text in zip(values, texts, strict=True):
        at = (value - trace.zmin) / (trace.zmax - trace.zmin)
        half = page.width_of(text, size) / 2
        middle = min(max(left + at * length, left + half), area.right - half)  # never past the ends of the bar
        align: Align = "left" if at == 0 else "right" if at == 1 else "center"
        x = {"left": left, "right": area.right, "center": middle}[align]
        page.write(x, top + thick + 1.05 * size, text, size, align)


def height(trace: Any) -> float:
    """How much room a colour bar and its numbers take."""
    return float((trace.colorbar.thickness or 8) + LINE * (trace.colorbar.tickfont.size or 10) + 4)
