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
    parts = _TAG.split(text or "")  # a text, and then for each tag its slash, its name and the text after it
    for slash, name, words in zip(["", *parts[1::3]], ["", *parts[2::3]], parts[::3], strict=True):
        if (kind := name.lower().rstrip("/")) == "br":
            parsed.append([])
        elif kind in ("b", "strong"):
            bold = not slash
        if words:
            parsed[-1].append(Run(html.unescape(words), bold))
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
