"""What is read from a figure in Plotly's terms: its HTML subset as lines of plain text, CSS colours, and the size on the screen."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    import plotly.graph_objects as go


_TAG = re.compile(r"<(/?)([^<> ]*+)[^<>]*+>")
_RGB = re.compile(r"rgba?\(([^)]*)\)")


class Run(NamedTuple):
    """A part of a line with uniform weight."""

    text: str
    bold: bool = False


def parse_lines(text: str | None) -> list[list[Run]]:
    """The lines of a text: `<br>` breaks lines, `<b>` is bold, other tags are dropped as in Plotly, `&lt;` is <."""
    parsed: list[list[Run]] = [[]]
    bold = False
    start = 0
    for tag in _TAG.finditer(text or ""):
        _add(parsed[-1], (text or "")[start : tag.start()], bold)
        start = tag.end()
        name = tag[2].lower().rstrip("/")
        if name == "br":
            parsed.append([])
        elif name in ("b", "strong"):
            bold = not tag[1]
    _add(parsed[-1], (text or "")[start:], bold)
    return parsed


def plain(text: str | None) -> str:
    """The text without markup, on one line."""
    return " ".join("".join(run.text for run in line) for line in parse_lines(text))


def parse_color(css: str) -> tuple[str, float]:
    """A colour as #rrggbb, and its opacity; names and shades of grey are returned unchanged."""
    match = _RGB.fullmatch(css.replace(" ", ""))
    if match is None:
        return css, 1.0
    numbers = [float(number) for number in match[1].split(",")]
    return "#" + "".join(f"{round(part):02x}" for part in numbers[:3]), numbers[3] if len(numbers) > 3 else 1.0


def screen_width(figure: go.Figure) -> int:
    """The width of a figure in pixels on a wide screen: all heads, a map beside others, a map that fills a column, or a chart."""
    panels = (figure.layout.meta or {}).get("panels") or []
    if len(panels) > 1:
        return 1076
    if panels:
        return 400
    return 640 if any(trace.type == "heatmap" for trace in figure.data) else 480


def plot_ratio(figure: go.Figure) -> float:
    """The ratio of the plot's height to its width."""
    if has_square_cells(figure):
        x, y = (abs(axis.range[1] - axis.range[0]) for axis in (figure.layout.xaxis, figure.layout.yaxis))
        return float(y / x)
    margin = figure.layout.margin
    left, right, top, bottom = (80 if side is None else side for side in (margin.l, margin.r, margin.t, margin.b))
    return float(max(60, (figure.layout.height or 450) - top - bottom) / max(100, screen_width(figure) - left - right))


def has_square_cells(figure: go.Figure) -> bool:
    """Whether a row of the plot is as high as a column is wide, as in a picture."""
    return bool(figure.layout.yaxis.scaleanchor == "x" and figure.layout.xaxis.range)


def _add(line: list[Run], text: str, bold: bool) -> None:
    if text:
        line.append(Run(html.unescape(text), bold))
