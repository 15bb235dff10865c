"""Figures on a page: everything gets the room it needs, and the plot what is left, in the proportions of the screen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.errors import PictureError
from attention.export.paper import axes, colorbar, marks, markup, notes
from attention.export.paper.cells import Cells, visible
from attention.export.paper.notes import MIDDLE, Area
from attention.export.paper.page import Page
from attention.export.paper.screen import ratio

if TYPE_CHECKING:
    import plotly.graph_objects as go

_EDGE = 5  # pixels of white around everything
_GAP = 5  # pixels between things
_DRAWN = ("heatmap", "scatter", "bar")
_SAID = re.compile(r"each cell the largest of \d+ × \d+")


def laid_out(figures: Sequence[go.Figure], width: float, kind: str, title: bool) -> Page:
    """The page with the figures on it side by side, `width` centimetres wide in all.

    Raises:
        PictureError: a figure holds something that is not drawn here.
    """
    if strange := {trace.type for figure in figures for trace in figure.data} - set(_DRAWN):
        raise PictureError(
            f"A picture can hold {', '.join(_DRAWN)}; got {', '.join(sorted(strange))}: save this figure as HTML instead."
        )
    page = Page(width, kind, len(figures))
    plans = [_planned(part, figure, title) for part, figure in zip(page.parts, figures, strict=True)]
    # Plots begin and end at the same height, so that the row of a query is one line across all of them.
    top, high = max(plan.top for plan in plans), max(plan.high for plan in plans)
    page.height = max(_draw(plan, top, high) for plan in plans)
    return page


@dataclass(frozen=True)
class _Plan:
    """What will stand on a page, and the room it needs: where the plot may begin, and its place, width and height."""

    page: Page
    figure: go.Figure
    x: axes.Axis
    y: axes.Axis
    cells: list[Cells]
    notes: list[notes.Note]
    rows: axes.Labels
    columns: axes.Labels
    bar: colorbar.Bar | None
    bar_top: float
    left: float
    top: float
    wide: float
    high: float


def _planned(page: Page, figure: go.Figure, title: bool) -> _Plan:
    """Writes the head of a figure, and measures all the rest."""
    x, y = axes.read(figure, "x"), axes.read(figure, "y")
    cells, block = visible(figure)
    written = notes.read(figure, x, y)
    bar = colorbar.read(figure)
    bar_above = None if bar is None or bar.below else bar

    rows, columns, left, wide = _fitted_across(page, x, y, written, ratio(figure))
    free = _free_above(cells, y, written)
    # Where the names of heads would be too small, the plot is higher than on the screen.
    high = max(wide * ratio(figure), min(notes.LEGIBLE * axes.LINE / free, 2 * page.width))

    top, bar_top = _write_head(page, figure, _said(figure, block), title, bar_above)
    trial = Area(left, 0, wide, high)
    written = notes.fitted(page, written, trial, free * high)
    top += max([0.0, *(-note.box(page, trial)[1] for note in written)])
    if x.opposite:
        top += columns.reach + _GAP + x.standoff + (axes.LINE * x.title_size if x.title else 0)
    elif bar is None:
        top += _GAP + rows.size / 2  # a label may stand at the very top of the plot
    return _Plan(page, figure, x, y, cells, written, rows, columns, bar, bar_top - top, left, top, wide, high)


def _draw(plan: _Plan, top: float, high: float) -> float:
    """Draws a figure whose plot begins at `top` and is so `high`; gives where all of it ends."""
    page, figure, bar = plan.page, plan.figure, plan.bar
    area = Area(plan.left, top, plan.wide, high)
    _draw_inside(page, figure, plan.cells, plan.x, plan.y, area)
    for note in plan.notes:
        notes.write(page, note, area)
    _write_rows(page, plan.rows, plan.y, area)
    below = _write_columns(page, plan.columns, plan.x, area, marks.largest_dot(figure) / 2)
    if bar is not None:
        colorbar.draw(page, bar, area, below + _GAP if bar.below else top + plan.bar_top)
        below += _GAP + bar.height if bar.below else 0
    size = figure.layout.font.size or 12
    taken = marks.draw_legend(page, figure, plan.left, page.width - _EDGE, below + 2 * _GAP, size)
    return below + (2 * _GAP + taken if taken else 0) + _EDGE


def _fitted_across(
    page: Page, x: axes.Axis, y: axes.Axis, written: list[notes.Note], high: float
) -> tuple[axes.Labels, axes.Labels, float, float]:
    """The labels of the rows and of the columns, where the plot begins, and how wide it is, if it is so `high` per width.

    Labels are chosen for the smallest plot there may be; smaller ones leave it more room, never less.
    """
    beside = (_GAP + axes.LINE * y.title_size) * bool(y.title) + _GAP + y.standoff
    least = page.width - _EDGE - beside - axes.down(page, y, 1e6).reach - _right(page, written, page.width)
    rows, columns = axes.down(page, y, least * high), axes.across(page, x, least)
    before, after = _overhang(page, columns, least)
    left = max(_EDGE + beside + rows.reach, before)
    right = max(_right(page, written, least), after)
    return rows, columns, left, page.width - left - right


def _draw_inside(page: Page, figure: go.Figure, cells: list[Cells], x: axes.Axis, y: axes.Axis, area: Area) -> None:
    """Draws all that lies in the plot, what is in front last."""
    marks.draw_grid(page, x, y, area)
    marks.draw_cells(page, cells, x, y, area)
    marks.draw_bars(page, figure, x, y, area)
    marks.draw_curves(page, figure, x, y, area)
    notes.draw_shapes(page, figure, x, y, area)


def _said(figure: go.Figure, block: tuple[int, int]) -> str:
    """What must be said where a cell stands for several numbers: more than the figure itself says."""
    if block == (1, 1):
        return ""
    panels = (figure.layout.meta or {}).get("panels") or [{}]
    before = panels[0].get("block", 1)
    return f"each cell the largest of {before * block[0]} × {before * block[1]}"


def _write_head(
    page: Page, figure: go.Figure, pooled: str, title: bool, bar: colorbar.Bar | None
) -> tuple[float, float]:
    """Writes title and subtitle, or at least that cells stand for several numbers; gives where the plot may begin, and the bar."""
    top = float(_EDGE)
    if title:
        given = figure.layout.title
        facts = given.subtitle.text or ""
        if pooled:
            facts = _SAID.sub(pooled, facts) if _SAID.search(facts) else " · ".join(filter(None, [facts, pooled]))
        top = _write_wrapped(page, given.text or "", given.font.size or 17, top) + 1
        top = _write_wrapped(page, facts, given.subtitle.font.size or 11, top)
    elif pooled:
        top = _write_wrapped(page, pooled, 10, top)
    bar_top = top + _GAP * (top > _EDGE)
    return (bar_top + bar.height if bar else top), bar_top


def _write_wrapped(page: Page, text: str, size: float, top: float) -> float:
    room = page.width - 2 * _EDGE
    for line in notes.wrapped(page, text, size, room):
        own = size * min(1, room / notes.width_of(page, line, size))  # a single word may be wider than the page
        top += axes.LINE * size
        notes.write_line(page, _EDGE, top - (axes.LINE / 2 - MIDDLE) * size, line, own)
    return top


def _write_rows(page: Page, labels: axes.Labels, axis: axes.Axis, area: Area) -> None:
    """Writes the labels left of the plot and the title of their axis."""
    edge = area.left - _GAP - axis.standoff
    for tick in labels.ticks:
        first = area.y(tick.at) - axes.LINE * labels.size * (len(tick.lines) - 1) / 2
        for i, line in enumerate(tick.lines):
            y = first + axes.LINE * labels.size * i + MIDDLE * labels.size
            notes.write_line(page, edge, y, line, labels.size, "right")
    if axis.title:
        size = min(axis.title_size, axis.title_size * area.height / _width(page, axis.title, axis.title_size))
        x, y = edge - labels.reach - _GAP - 0.25 * size, area.top + area.height / 2
        page.write(x, y, markup.plain(axis.title), size, "center", upright=True)


def _write_columns(page: Page, labels: axes.Labels, axis: axes.Axis, area: Area, clear: float) -> float:
    """Writes the labels below the plot and `clear` of its edge, or above it, and the title of their axis; gives where all of it ends."""
    size = labels.size
    top = area.bottom + max(_GAP, clear) if not axis.opposite else area.top - _GAP - axis.standoff - labels.reach
    for tick in labels.ticks:
        x = area.x(tick.at)
        if labels.upright:
            text = " ".join(run.text for line in tick.lines for run in line)
            page.write(x + MIDDLE * size, top, text, size, "right", upright=True)
            continue
        for i, line in enumerate(tick.lines):
            notes.write_line(page, x, top + axes.LINE * size * (i + 0.5) + MIDDLE * size, line, size, "center")
    below = area.bottom if axis.opposite else top + labels.reach
    if not axis.title:
        return below
    size = min(axis.title_size, axis.title_size * area.width / _width(page, axis.title, axis.title_size))
    y = top - _GAP - 0.25 * size if axis.opposite else below + 2 + axes.LINE * size / 2 + MIDDLE * size
    page.write(area.x(0.5), y, markup.plain(axis.title), size, "center")
    return below if axis.opposite else below + 2 + axes.LINE * size


def _right(page: Page, written: list[notes.Note], width: float) -> float:
    """How far notes reach out at the right of a plot of this width."""
    area = Area(0, 0, width, width)
    return max([float(_EDGE), *(note.box(page, area)[2] - width + 2 for note in written)])


def _overhang(page: Page, labels: axes.Labels, width: float) -> tuple[float, float]:
    """How far the first and the last label below the plot reach out at its left and at its right."""
    if not labels.ticks or labels.upright:
        return 0.0, 0.0
    first, last = labels.ticks[0], labels.ticks[-1]
    left, right = (axes.width_of(page, tick, labels.size) / 2 + 2 for tick in (first, last))
    return left - first.at * width, right - (1 - last.at) * width


def _free_above(cells: list[Cells], y: axes.Axis, written: list[notes.Note]) -> float:
    """How much is free of cells, in parts of the plot's height, above the notes that stand on them."""
    rows = {edge for own in cells for edge in own.boxes[:, 3].tolist()}
    free = [1.0]
    for note in written:
        at = y.start + note.y * (y.end - y.start)
        above = [edge for edge in rows if edge < at - 1e-6]
        if note.above == 1 and above and note.y < 1:
            free.append(float(abs(y.at(at) - y.at(max(above)))))
    return min(value for value in free if value > 0)


def _width(page: Page, text: str, size: float) -> float:
    return page.width_of(markup.plain(text), size) or 1.0
