"""Text and outlines on and beside the plot: wrapped titles, notes that do not overlap, shapes."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.export.paper import markup
from attention.export.paper.page import INK, Align
from attention.export.paper.tick_layout import LINE, Axis

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from attention.export.paper.page import Page

MIDDLE = 0.36  # the distance from the middle of a line down to its baseline, in font sizes
LEGIBLE = 6  # pixels, 4.5 points
_SMALLEST = 5  # pixels: notes that would still overlap at this size are left out
_PAD = 2  # pixels beside a note that has a ground
_NO_BREAK = "\xa0"  # a space that does not break lines


@dataclass(frozen=True)
class Area:
    """The area of the plot on the page."""

    left: float
    top: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """The right edge."""
        return self.left + self.width

    @property
    def bottom(self) -> float:
        """The lower edge."""
        return self.top + self.height

    def x(self, fraction: Any) -> Any:
        """The pixel at a fraction of the x axis."""
        return self.left + fraction * self.width

    def y(self, fraction: Any) -> Any:
        """The pixel at a fraction of the y axis, counted from the bottom."""
        return self.bottom - fraction * self.height


@dataclass(frozen=True)
class Note:
    """An annotation: its position in the plot as fractions, its shift in pixels, and its anchor."""

    lines: list[list[markup.Run]]
    x: float
    y: float
    shift: tuple[float, float]
    align: Align
    above: float  # the fraction of its height above its position
    size: float
    color: str
    ground: str = ""

    def box(self, page: Page, area: Area) -> tuple[float, float, float, float]:
        """The note's bounding box: x0 y0 x1 y1."""
        width = max(width_of(page, line, self.size) for line in self.lines)
        height = LINE * self.size * len(self.lines)
        x = area.x(self.x) + self.shift[0] - width * {"left": 0, "center": 0.5, "right": 1}[self.align]
        y = area.y(self.y) - self.shift[1] - height * self.above
        return x, y, x + width, y + height


def read(figure: go.Figure, x: Axis, y: Axis) -> list[Note]:
    """The annotations of a figure, except for the one beside its colour bar."""
    return [
        Note(
            markup.lines(annotation.text),
            x.fraction(annotation.x, annotation.xref or "x", exponents=True),
            y.fraction(annotation.y, annotation.yref or "y", exponents=True),
            (annotation.xshift or 0, annotation.yshift or 0),
            annotation.xanchor if annotation.xanchor in ("left", "right") else "center",
            {"top": 0.0, "bottom": 1.0}.get(annotation.yanchor or "", 0.5),
            annotation.font.size or figure.layout.font.size or 12,
            annotation.font.color or INK,
            annotation.bgcolor or "",
        )
        for annotation in figure.layout.annotations
        if annotation.text and annotation.name != "colors"
    ]


def fit_notes(page: Page, notes: list[Note], area: Area, room: float) -> list[Note]:
    """The notes at the largest size at which none overlaps another or is higher than `room`."""
    scale = min([1.0, *(room / (LINE * note.size * len(note.lines)) for note in notes)])
    while True:
        scaled_notes = [replace(note, size=note.size * scale) for note in notes]
        boxes = np.array([note.box(page, area) for note in scaled_notes]).reshape(-1, 4)
        overlaps = _overlaps(boxes)
        if not overlaps.any() or max((note.size for note in scaled_notes), default=0) < _SMALLEST:
            break
        scale *= 0.93
    selected: list[int] = []
    for i in range(len(scaled_notes)):
        if not overlaps[i, selected].any():
            selected.append(i)
    return [scaled_notes[i] for i in selected]


def write(page: Page, note: Note, area: Area, name: str) -> None:
    """Writes a note at its position, on its ground if it has one; `name` is that of the ground in the file."""
    left, top, right, bottom = note.box(page, area)
    if note.ground:
        page.boxes(np.array([[left - _PAD, top, right + _PAD, bottom]]), [note.ground], name, seam=False)
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
    position = x - width_of(page, line, size) * {"left": 0, "center": 0.5, "right": 1}[align]
    for run in line:
        text = run.text.lstrip()
        position += page.width_of(run.text, size, run.bold) - page.width_of(text, size, run.bold)
        if text:
            page.write(position, y, text.rstrip(), size, bold=run.bold, color=color)
        position += page.width_of(text, size, run.bold)


def width_of(page: Page, line: list[markup.Run], size: float) -> float:
    """The width of a line."""
    return sum(page.width_of(run.text, size, run.bold) for run in line)


def wrap(page: Page, text: str, size: float, room: float) -> list[list[markup.Run]]:
    """A text in as few lines as fit into `room`, of similar length, broken at " · " where possible."""
    lines = _break_lines(page, text, size, room)
    while len(lines) > 1 and len(narrower := _break_lines(page, text, size, room := 0.97 * room)) == len(lines):
        lines = narrower
    return lines


def _break_lines(page: Page, text: str, size: float, room: float) -> list[list[markup.Run]]:
    text = f"{_NO_BREAK}· ".join(
        part if page.width_of(markup.plain(part), size) > room else part.replace(" ", _NO_BREAK)
        for part in text.split(" · ")
    )
    lines: list[list[markup.Run]] = []
    for line in markup.lines(text):
        lines.append([])
        line_width = 0.0
        for piece in (markup.Run(part, run.bold) for run in line for part in re.findall(r" +|[^ ]+", run.text)):
            width = page.width_of(piece.text, size, piece.bold)
            if line_width + width > room and piece.text.strip() and line_width:
                lines.append([])
                line_width = 0.0
            if line_width or piece.text.strip():
                lines[-1].append(piece)
                line_width += width
    return [_merge_runs(line) for line in lines if line]


def draw_shapes(page: Page, figure: go.Figure, x: Axis, y: Axis, area: Area) -> None:
    """Draws the outlines and straight lines of a figure."""
    for shape in figure.layout.shapes:
        x0, x1 = (area.x(x.fraction(position, shape.xref or "x")) for position in (shape.x0, shape.x1))
        y0, y1 = (area.y(y.fraction(position, shape.yref or "y")) for position in (shape.y0, shape.y1))
        line = (shape.line.color or INK, shape.line.width or 1)
        if shape.type == "rect":
            page.outline(x0, y0, x1, y1, *line, dash=shape.line.dash)
        else:
            page.line([x0, x1], [y0, y1], *line, dash=shape.line.dash)


def _merge_runs(line: list[markup.Run]) -> list[markup.Run]:
    """A line with neighbouring runs of equal weight merged."""
    merged: list[markup.Run] = []
    for run in line:
        if merged and merged[-1].bold == run.bold:
            merged[-1] = markup.Run(merged[-1].text + run.text, run.bold)
        else:
            merged.append(run)
    return [markup.Run(run.text.replace(_NO_BREAK, " "), run.bold) for run in merged]


def _overlaps(boxes: Any) -> Any:
    """Whether each box overlaps each other box, [box box]."""
    x0, y0, x1, y1 = (boxes[:, i] for i in range(4))
    disjoint = (x1[:, None] <= x0) | (x1 <= x0[:, None]) | (y1[:, None] <= y0) | (y1 <= y0[:, None])
    overlaps = ~disjoint
    np.fill_diagonal(overlaps, False)
    return overlaps
