"""What is read from a figure in Plotly's terms: its HTML subset as lines of plain text, CSS colours, and the size on the screen."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from attention.base.errors import PictureError
from attention.pictures.marks import Spec

if TYPE_CHECKING:
    import plotly.graph_objects as go

    Figures: TypeAlias = Spec | go.Figure | Sequence[Spec | go.Figure]

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


def specs_of(figures: Figures) -> list[Spec]:
    """One figure or several as Plotly's JSON, with their arrays as they are.

    Raises:
        PictureError: it is not one of our figures.
    """
    if isinstance(figures, dict):
        if "alt" not in figures["layout"].get("meta", {}):
            raise PictureError(
                'A picture is made of the figures of `attention`, such as heatmap(trace, "weights"); got another one of Plotly: save it by its own write_image or write_html.'
            )
        return [figures]
    if not isinstance(figures, Sequence):
        return specs_of(
            {"data": [mark.to_plotly_json() for mark in figures.data], "layout": figures.layout.to_plotly_json()}
        )
    return [spec for each in figures for spec in specs_of(each)]


def screen_width(figure: Spec) -> int:
    """The width of a figure in pixels on a wide screen: all heads, a map beside others, a map that fills a column, or a chart."""
    panels = figure["layout"]["meta"].get("panels", ())
    if len(panels) > 1:
        return 1076
    if panels:
        return 400
    return 640 if any(mark["type"] == "heatmap" for mark in figure["data"]) else 480
