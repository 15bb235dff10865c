"""What stands on and beside the plot of a figure: titles that wrap, notes that do not overlap, outlines."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.export.paper import markup
from attention.export.paper.axes import LINE, Axis
from attention.export.paper.page import INK, Align

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from attention.export.paper.page import Page

MIDDLE = 0.36  # of a font's size: how far below the middle of a line its baseline lies
LEGIBLE = 6  # pixels, 4.5 points
_SMALLEST = 5  # pixels: notes that would still overlap at this size are left out
_KEPT = "\xa0"  # a space at which no line is broken


@dataclass(frozen=True)
class Area:
    """Where the plot lies on the page."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """Its right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """Its lower edge."""
        return self.top + self.height

    def x(self, fraction: Any) -> Any:
        """The pixel of a place along the x axis, 0 … 1."""
        return self.left + fraction * self.width

    def y(self, fraction: Any) -> Any:
        """The pixel of a place along the y axis, 0 … 1 from the bottom."""
        return self.bottom - fraction * self.height


@dataclass(frozen=True)
class Note:
    """A few words: their place in the plot as fractions, moved by pixels, and how they are anchored there."""

    lines: list[list[markup.Run]]
    x: float
    y: float
    shift: tuple[float, float]
    align: Align
    above: float  # which part of its height lies above its place
    size: float
    color: str

    def box(self, page: Page, area: Area) -> tuple[float, float, float, float]:
        """The room it takes: x0 y0 x1 y1."""
        width = max(width_of(page, line, self.size) for line in self.lines)
        height = LINE * self.size * len(self.lines)
        x = area.x(self.x) + self.shift[0] - width * {"left": 0, "center": 0.5, "right": 1}[self.align]
        y = area.y(self.y) - self.shift[1] - height * self.above
        return x, y, x + width, y + height


def read(figure: go.Figure, x: Axis, y: Axis) -> list[Note]:
    """The annotations of a figure, but what stands beside its colour bar."""
    return [
        Note(
            markup.lines(given.text),
            x.fraction(given.x, given.xref or "x", exponents=True),
            y.fraction(given.y, given.yref or "y", exponents=True),
            (given.xshift or 0, given.yshift or 0),
            given.xanchor if given.xanchor in ("left", "right") else "center",
            {"top": 0.0, "bottom": 1.0}.get(given.yanchor or "", 0.5),
            given.font.size or figure.layout.font.size or 12,
            given.font.color or INK,
        )
        for given in figure.layout.annotations
        if given.text and given.name != "colors"
    ]


def fitted(page: Page, notes: list[Note], area: Area, room: float) -> list[Note]:
    """The notes as large as they can be without one overlapping another, or being higher than `room`."""
    scale = min([1.0, *(room / (LINE * note.size * len(note.lines)) for note in notes)])
    while True:
        tried = [replace(note, size=note.size * scale) for note in notes]
        boxes = np.array([note.box(page, area) for note in tried]).reshape(-1, 4)
        hits = _hits(boxes)
        if not hits.any() or max((note.size for note in tried), default=0) < _SMALLEST:
            break
        scale *= 0.93
    kept: list[int] = []
    for i in range(len(tried)):
        if not hits[i, kept].any():
            kept.append(i)
    return [tried[i] for i in kept]


def write(page: Page, note: Note, area: Area) -> None:
    """Writes a note where it belongs."""
    left, top, right, _ = note.box(page, area)
    x = {"left": left, "center": (left + right) / 2, "right": right}[note.align]
    for i, line in enumerate(note.lines):
        write_line(
            page, x, top + LINE * note.size * (i + 0.5) + MIDDLE * note.size, line, note.size, note.align, note.color
        )


def write_line(
    page: Page, x: float, y: float, line: list[markup.Run], size: float, align: Align = "left", color: str = INK
) -> None:
    """Writes the runs of a line one after the other, each in its weight."""
    if len(line) == 1:
        page.write(x, y, line[0].text, size, align, line[0].bold, color=color)
        return
    at = x - width_of(page, line, size) * {"left": 0, "center": 0.5, "right": 1}[align]
    for run in line:
        text = run.text.lstrip()
        at += page.width_of(run.text, size, run.bold) - page.width_of(text, size, run.bold)
        if text:
            page.write(at, y, text.rstrip(), size, bold=run.bold, color=color)
        at += page.width_of(text, size, run.bold)


def width_of(page: Page, line: list[markup.Run], size: float) -> float:
    """How wide a line is."""
    return sum(page.width_of(run.text, size, run.bold) for run in line)


def wrapped(page: Page, text: str, size: float, room: float) -> list[list[markup.Run]]:
    """A text in as few lines as `room` asks for, all of about one length, broken at a " · " where that does."""
    made = _wrapped(page, text, size, room)
    while len(made) > 1 and len(closer := _wrapped(page, text, size, room := 0.97 * room)) == len(made):
        made = closer
    return made


def _wrapped(page: Page, text: str, size: float, room: float) -> list[list[markup.Run]]:
    text = f"{_KEPT}· ".join(
        part if page.width_of(markup.plain(part), size) > room else part.replace(" ", _KEPT)
        for part in text.split(" · ")
    )
    made: list[list[markup.Run]] = []
    for line in markup.lines(text):
        made.append([])
        used = 0.0
        for piece in (markup.Run(part, run.bold) for run in line for part in re.findall(r" +|[^ ]+", run.text)):
            width = page.width_of(piece.text, size, piece.bold)
            if used + width > room and piece.text.strip() and used:
                made.append([])
                used = 0.0
            if used or piece.text.strip():
                made[-1].append(piece)
                used += width
    return [_joined(line) for line in made if line]


def draw_shapes(page: Page, figure: go.Figure, x: Axis, y: Axis, area: Area) -> None:
    """Draws the outlines and straight lines of a figure."""
    for shape in figure.layout.shapes:
        x0, x1 = (area.x(x.fraction(at, shape.xref or "x")) for at in (shape.x0, shape.x1))
        y0, y1 = (area.y(y.fraction(at, shape.yref or "y")) for at in (shape.y0, shape.y1))
        line = (shape.line.color or INK, shape.line.width or 1)
        if shape.type == "rect":
            page.outline(x0, y0, x1, y1, *line)
        else:
            page.line([x0, x1], [y0, y1], *line, dash=shape.line.dash)


def _joined(line: list[markup.Run]) -> list[markup.Run]:
    """Neighbouring runs of one weight as one."""
    made: list[markup.Run] = []
    for run in line:
        if made and made[-1].bold == run.bold:
            made[-1] = markup.Run(made[-1].text + run.text, run.bold)
        else:
            made.append(run)
    return [markup.Run(run.text.replace(_KEPT, " "), run.bold) for run in made]


def _hits(boxes: Any) -> Any:
    """Which boxes overlap which others [box box]."""
    x0, y0, x1, y1 = (boxes[:, i] for i in range(4))
    apart = (x1[:, None] <= x0) | (x1 <= x0[:, None]) | (y1[:, None] <= y0) | (y1 <= y0[:, None])
    hits = ~apart
    np.fill_diagonal(hits, False)
    return hits
