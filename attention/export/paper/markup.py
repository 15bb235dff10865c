"""Plotly's markup: its HTML subset as lines of plain text, and CSS colours."""

from __future__ import annotations

import html
import re
from typing import NamedTuple

_TAG = re.compile(r"<(/?)([^<> ]*)[^<>]*>")
_RGB = re.compile(r"rgba?\(([^)]*)\)")


class Run(NamedTuple):
    """A part of a line with uniform weight."""

    text: str
    bold: bool = False


def lines(text: str | None) -> list[list[Run]]:
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
    return " ".join("".join(run.text for run in line) for line in lines(text))


def color(css: str) -> tuple[str, float]:
    """A colour as #rrggbb, and its opacity; names and shades of grey are returned unchanged."""
    match = _RGB.fullmatch(css.replace(" ", ""))
    if match is None:
        return css, 1.0
    numbers = [float(number) for number in match[1].split(",")]
    return "#" + "".join(f"{round(part):02x}" for part in numbers[:3]), numbers[3] if len(numbers) > 3 else 1.0


def _add(line: list[Run], text: str, bold: bool) -> None:
    if text:
        line.append(Run(html.unescape(text), bold))
