"""The layout of figures on a page: labels get the room they need, and the plot gets the rest, in the proportions of the screen."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from attention.paper import marks, markup
from attention.paper.marks import LINE, MIDDLE, Area, Axis, Cells, Tick, visible_cells
from attention.paper.page import Page
from attention.pictures.marks import Spec

_EDGE = 5  # pixels: the white margin of the page
_GAP = 5  # pixels: the distance between elements
_PACKED = 1.02  # the distance between labels, which may be closer than lines, in font sizes
_SMALLEST = 6  # pixels (4.5 points): labels are left out rather than drawn smaller
_LEGIBLE = 6  # pixels (4.5 points) of the names of heads
_WANTED = 8  # pixels: the size of labels if some are left out
_HIGHEST = 1.2  # widths of the page: the height of a plot with square cells
_POOLED = re.compile(r"each cell the largest of \d+ × \d+")


def lay_out(figures: Sequence[Spec], width: float, kind: str, title: bool) -> Page:
    """The page with the figures side by side, `width` centimetres wide in total."""
    page = Page(width, kind, len(figures))
    plans = [_planned(part, figure, title) for part, figure in zip(page.parts, figures, strict=True)]
    # All plots begin and end at the same height, so that the row of a query runs straight across them.
    # Pictures keep the height of their square cells.
    top = max(plan.top for plan in plans)
    high = max((plan.height for plan in plans if not _has_square_cells(plan.figure)), default=0)
    page.height = max(_draw(plan, top, high) for plan in plans)
    return page


@dataclass(frozen=True)
class _Labels:
    """The arranged tick labels: the selected ticks, their size and orientation, and how far they extend from the plot."""

    ticks: list[Tick]
    size: float
    upright: bool
    reach: float


@dataclass(frozen=True)
class _Plan:
    """The elements of a figure and the room they need: the position of the plot, its width and its height."""

    page: Page
    figure: Spec
    x: Axis
    y: Axis
    cells: list[Cells]
    notes: list[marks.Note]
    rows: _Labels
    columns: _Labels
    bar: marks.ColorBar | None
    bar_top: float
    left: float
    top: float
    width: float
    height: float


def _planned(page: Page, figure: Spec, title: bool) -> _Plan:
    """Writes the heading of a figure and measures everything else."""
    x, y = marks.read_axis(figure, "x"), marks.read_axis(figure, "y")
    cells, block = visible_cells(figure)
    annotations = marks.read_notes(figure, x, y)
    bar = marks.read_colorbar(figure)
    bar_above = None if bar is None or bar.below else bar

    rows, columns, left, wide = _fitted_across(page, x, y, annotations, _plot_ratio(figure))
    wide = min(wide, _HIGHEST * page.width / _plot_ratio(figure)) if _has_square_cells(figure) else wide
    free = _free_beside(cells, y, annotations)
    # The plot is higher than on the screen if the names of heads would be too small otherwise.
    high = max(wide * _plot_ratio(figure), min(_LEGIBLE * LINE / free, 2 * page.width))

    top, bar_top = _write_head(page, figure, _pooling_words(figure, block), title, bar_above)
    trial_area = Area(left, 0, wide, high)
    annotations = marks.fit_notes(page, annotations, trial_area, free * high)
    top += max([0.0, *(-note.box(page, trial_area)[1] for note in annotations)])
    if x.opposite:
        top += columns.reach + _GAP + x.standoff + (LINE * x.title_size if x.title else 0)
    elif bar is None:
        top += _GAP + rows.size / 2  # a label may lie at the upper edge of the plot
    return _Plan(page, figure, x, y, cells, annotations, rows, columns, bar, bar_top - top, left, top, wide, high)


def _draw(plan: _Plan, top: float, high: float) -> float:
    """Draws a figure whose plot begins at `top` with the height `high`; returns the lower end of the figure."""
    page, figure, bar = plan.page, plan.figure, plan.bar
    area = Area(plan.left, top, plan.width, plan.height if _has_square_cells(figure) else high)
    # Everything inside the plot, from back to front.
    axes = plan.x, plan.y, area
    marks.draw_images(page, figure, *axes)
    marks.draw_grid(page, *axes)
    marks.draw_cells(page, plan.cells, *axes)
    marks.draw_bars(page, figure, *axes)
    marks.draw_curves(page, figure, *axes)
    marks.draw_shapes(page, figure, *axes)
    for i, note in enumerate(plan.notes):
        marks.write_note(page, note, area, f"note-{i}")
    _write_rows(page, plan.rows, plan.y, area)
    below = _write_columns(page, plan.columns, plan.x, area, marks.largest_dot(figure) / 2)
    if bar is not None:
        marks.draw_colorbar(page, bar, area, below + _GAP if bar.below else top + plan.bar_top)
        below += _GAP + bar.height if bar.below else 0
    size = figure["layout"]["font"]["size"]
    legend_height = marks.draw_legend(page, figure, plan.left, page.width - _EDGE, below + 2 * _GAP, size)
    return below + (2 * _GAP + legend_height if legend_height else 0) + _EDGE


def _fitted_across(
    page: Page, x: Axis, y: Axis, annotations: list[marks.Note], high: float
) -> tuple[_Labels, _Labels, float, float]:
    """The row labels, the column labels, the plot's left edge and its width, given its height-to-width ratio `high`.

    Labels are chosen for the smallest possible plot; the actual plot is never smaller.
    """
    label_room = (_GAP + LINE * y.title_size) * bool(y.title) + _GAP + y.standoff
    right = _right(page, annotations, page.width)
    least_width = page.width - _EDGE - label_room - _labels_beside(page, y, 1e6).reach - right
    rows, columns = _labels_beside(page, y, least_width * high), _labels_below(page, x, least_width)
    left_overhang, right_overhang = _overhang(page, columns, least_width)
    left = max(_EDGE + label_room + rows.reach, left_overhang)
    right = max(_right(page, annotations, least_width), right_overhang)
    return rows, columns, left, page.width - left - right


def _pooling_words(figure: Spec, block: tuple[int, int]) -> str:
    """A sentence if a drawn cell represents more numbers than the figure itself states; otherwise empty."""
    if block == (1, 1):
        return ""
    before = (figure["layout"]["meta"]["panels"] or [{}])[0].get("block", 1)
    return f"each cell the largest of {before * block[0]} × {before * block[1]}"


def _write_head(page: Page, figure: Spec, pooled: str, title: bool, bar: marks.ColorBar | None) -> tuple[float, float]:
    """Writes the title and subtitle, or at least the note on pooling; returns where the plot may begin, and the top of the bar."""
    top = float(_EDGE)
    if title:
        heading = figure["layout"]["title"]
        facts = heading["subtitle"]["text"]
        if pooled:
            facts = _POOLED.sub(pooled, facts) if _POOLED.search(facts) else " · ".join(filter(None, [facts, pooled]))
        top = _write_wrapped(page, heading["text"], heading["font"]["size"], top) + 1
        top = _write_wrapped(page, facts, heading["subtitle"]["font"]["size"], top)
    elif pooled:
        top = _write_wrapped(page, pooled, 10, top)
    bar_top = top + _GAP * (top > _EDGE)
    return (bar_top + bar.height if bar else top), bar_top


def _write_wrapped(page: Page, text: str, size: float, top: float) -> float:
    room = page.width - 2 * _EDGE
    for line in marks.wrap(page, text, size, room):
        fitted = size * min(1, room / marks.width_of(page, line, size))  # a single word may be wider than the page
        top += LINE * size
        marks.write_line(page, _EDGE, top - (LINE / 2 - MIDDLE) * size, line, fitted)
    return top


def _write_rows(page: Page, labels: _Labels, axis: Axis, area: Area) -> None:
    """Writes the labels left of the plot and the title of their axis."""
    edge = area.left - _GAP - axis.standoff
    for tick in labels.ticks:
        first = area.y(tick.at) - LINE * labels.size * (len(tick.lines) - 1) / 2
        for i, line in enumerate(tick.lines):
            y = first + LINE * labels.size * i + MIDDLE * labels.size
            marks.write_line(page, edge, y, line, labels.size, "right")
    if axis.title:
        size = min(axis.title_size, axis.title_size * area.height / _width(page, axis.title, axis.title_size))
        x, y = edge - labels.reach - _GAP - 0.25 * size, area.top + area.height / 2
        page.write(x, y, markup.plain(axis.title), size, "center", upright=True)


def _write_columns(page: Page, labels: _Labels, axis: Axis, area: Area, clear: float) -> float:
    """Writes the column labels and the axis title below the plot, `clear` of its edge, or above it; returns the lower end."""
    size = labels.size
    top = area.bottom + max(_GAP, clear) if not axis.opposite else area.top - _GAP - axis.standoff - labels.reach
    for tick in labels.ticks:
        x = area.x(tick.at)
        if labels.upright:
            text = " ".join(run.text for line in tick.lines for run in line)
            page.write(x + MIDDLE * size, top, text, size, "right", upright=True)
            continue
        for i, line in enumerate(tick.lines):
            marks.write_line(page, x, top + LINE * size * (i + 0.5) + MIDDLE * size, line, size, "center")
    below = area.bottom if axis.opposite else top + labels.reach
    if not axis.title:
        return below
    size = min(axis.title_size, axis.title_size * area.width / _width(page, axis.title, axis.title_size))
    y = top - _GAP - 0.25 * size if axis.opposite else below + 2 + LINE * size / 2 + MIDDLE * size
    page.write(area.x(0.5), y, markup.plain(axis.title), size, "center")
    return below if axis.opposite else below + 2 + LINE * size


def _right(page: Page, annotations: list[marks.Note], width: float) -> float:
    """How far notes extend beyond the right edge of a plot of this width."""
    area = Area(0, 0, width, width)
    return max([float(_EDGE), *(note.box(page, area)[2] - width + 2 for note in annotations)])


def _overhang(page: Page, labels: _Labels, width: float) -> tuple[float, float]:
    """How far the first and the last column label extend beyond the left and right edges of the plot."""
    if not labels.ticks or labels.upright:
        return 0.0, 0.0
    first, last = labels.ticks[0], labels.ticks[-1]
    left, right = (_tick_width(page, tick, labels.size) / 2 + 2 for tick in (first, last))
    return left - first.at * width, right - (1 - last.at) * width


def _free_beside(cells: list[Cells], y: Axis, annotations: list[marks.Note]) -> float:
    """The height above the notes that stand on cells, or below those that hang on cells, free of other cells, as a fraction of the plot's height."""
    starts, ends = ({edge for layer in cells for edge in layer.boxes[:, side].tolist()} for side in (1, 3))
    free = [1.0]
    for note in annotations:
        position = y.start + note.y * (y.end - y.start)
        above = [edge for edge in ends if edge < position - 1e-6]
        below = [edge for edge in starts if edge > position + 1e-6]
        if note.above == 1 and above and note.y < 1:
            free.append(float(abs(y.at(position) - y.at(max(above)))))
        if note.above == 0 and below and note.y > 0:
            free.append(float(abs(y.at(position) - y.at(min(below)))))
    return min(value for value in free if value > 0)


def _width(page: Page, text: str, size: float) -> float:
    return page.width_of(markup.plain(text), size) or 1.0


def _labels_below(page: Page, axis: Axis, length: float) -> _Labels:
    """The labels under a plot of this width: horizontal if they fit, otherwise upright."""
    ticks = sorted(axis.ticks, key=lambda tick: tick.at)
    positions = [tick.at * length for tick in ticks]
    widths = [_tick_width(page, tick, 1) for tick in ticks]
    for size in (axis.size, 0.9 * axis.size, 0.8 * axis.size):
        needed = [(a + b) / 2 * size + 0.7 * size for a, b in pairwise(widths)]
        if all(b - a >= room for (a, b), room in zip(pairwise(positions), needed, strict=True)):
            return _Labels(ticks, size, False, LINE * size * max((len(tick.lines) for tick in ticks), default=0))
    return _apart(page, ticks, axis.size, length, True)


def _labels_beside(page: Page, axis: Axis, length: float) -> _Labels:
    return _apart(page, sorted(axis.ticks, key=lambda tick: 1 - tick.at), axis.size, length, False)


def _apart(page: Page, ticks: list[Tick], size: float, length: float, upright: bool) -> _Labels:
    """Stacked labels: shrunk if necessary, and thinned out if they would be too small."""
    lines = max((len(tick.lines) for tick in ticks), default=1)
    widest = max((_tick_width(page, tick, 1) for tick in ticks), default=0)
    size = min(size, 0.36 * page.width / widest if widest else size)  # leaves room for the plot
    fitting = _smallest_gap(ticks) * length / (_PACKED + LINE * (lines - 1))
    if fitting < min(size, _SMALLEST):
        size = min(size, _WANTED)
        ticks = _thinned(ticks, (_PACKED + LINE * (lines - 1)) * size / length)
    else:
        size = min(size, fitting)
    return _Labels(ticks, size, upright, max((_tick_width(page, tick, size) for tick in ticks), default=0))


def _thinned(ticks: list[Tick], distance: float) -> list[Tick]:
    """Every n-th label, counted from the start of each panel; if panels are too close, the first label of every n-th panel."""
    panel_gap = _smallest_gap(ticks) * 1.5
    runs: list[list[Tick]] = []
    for tick in ticks:
        if runs and abs(tick.at - runs[-1][-1].at) <= panel_gap:
            runs[-1].append(tick)
        else:
            runs.append([tick])
    for stride in range(2, max(map(len, runs)) + 1):
        selected = [tick for run in runs for tick in run[::stride]]
        if _smallest_gap(selected) >= distance:
            return selected
    for stride in range(1, len(runs) + 1):
        selected = [run[0] for run in runs[::stride]]
        if _smallest_gap(selected) >= distance:
            return selected
    return ticks[:1]


def _smallest_gap(ticks: list[Tick]) -> float:
    return min((abs(b.at - a.at) for a, b in pairwise(ticks)), default=1.0)


def _tick_width(page: Page, tick: Tick, size: float) -> float:
    return max(sum(page.width_of(run.text, size, run.bold) for run in line) for line in tick.lines)


def _plot_ratio(figure: Spec) -> float:
    """The ratio of the plot's height to its width."""
    layout = figure["layout"]
    if _has_square_cells(figure):
        x, y = (abs(axis["range"][1] - axis["range"][0]) for axis in (layout["xaxis"], layout["yaxis"]))
        return float(y / x * layout["yaxis"].get("scaleratio", 1))
    margin = layout["margin"]
    height = layout["height"] - margin["t"] - margin["b"]
    return float(max(60, height) / max(100, markup.screen_width(figure) - margin["l"] - margin["r"]))


def _has_square_cells(figure: Spec) -> bool:
    """Whether a row of the plot is as high as a column is wide, as in a picture."""
    return bool(figure["layout"]["yaxis"].get("scaleanchor") == "x")
