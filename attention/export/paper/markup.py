"""What Plotly writes: a little HTML, read into lines of plain text; and colours in CSS."""

from __future__ import annotations

import html
import re
from typing import NamedTuple

_TAG = re.compile(r"<(/?)([^<> ]*)[^<>]*>")
_RGB = re.compile(r"rgba?\(([^)]*)\)")


class Run(NamedTuple):
    """A piece of a line in one weight."""

    text: str
    bold: bool = False


def lines(text: str | None) -> list[list[Run]]:
    """The lines of a text: `<br>` ends one, `<b>` is bold, other tags vanish as in Plotly, `&lt;` is <."""
    made: list[list[Run]] = [[]]
    bold = False
    start = 0
    for tag in _TAG.finditer(text or ""):
        _add(made[-1], (text or "")[start : tag.start()], bold)
        start = tag.end()
        name = tag[2].lower().rstrip("/")
        if name == "br":
            made.append([])
        elif name in ("b", "strong"):
            bold = not tag[1]
    _add(made[-1], (text or "")[start:], bold)
    return made


def plain(text: str | None) -> str:
    """A text without its markup, on one line."""
    return " ".join("".join(run.text for run in line) for line in lines(text))


def color(css: str) -> tuple[str, float]:
    """A colour as #rrggbb, and how opaque it is; names and shades of grey pass as they are."""
    found = _RGB.fullmatch(css.replace(" ", ""))
    if found is None:
        return css, 1.0
    numbers = [float(number) for number in found[1].split(",")]
    return "#" + "".join(f"{round(part):02x}" for part in numbers[:3]), numbers[3] if len(numbers) > 3 else 1.0


def _add(line: list[Run], text: str, bold: bool) -> None:
    if text:
        line.append(Run(html.unescape(text), bold))
