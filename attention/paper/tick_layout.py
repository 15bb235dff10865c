"""The axes of a figure on a page: the position of a number, and tick labels that do not touch each other."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.paper import markup

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from attention.paper.page import Page

LINE = 1.22  # the distance between baselines, in font sizes
_PACKED = 1.02  # the same between labels, which may be closer
_SMALLEST = 6  # pixels (4.5 points): labels are left out rather than drawn smaller
_WANTED = 8  # pixels: the size of labels if some are left out


@dataclass(frozen=True)
class Tick:
    """A label and its position: 0 at the start of the axis, 1 at its end."""

    at: float
    lines: list[list[markup.Run]]


@dataclass(frozen=True)
class Axis:
    """One axis: from left to right, or from bottom to top."""

    start: float
    end: float
    log: bool
    ticks: list[Tick]
    title: str
    title_size: float
    size: float
    standoff: float
    opposite: bool
    grid: str | None

    def at(self, value: Any) -> Any:
        """The positions of numbers along the axis: 0 at its start, 1 at its end."""
        scaled = np.log10(value) if self.log else np.asarray(value, dtype=float)
        return (scaled - self.start) / (self.end - self.start)

    def fraction(self, value: float, reference: str, exponents: bool = False) -> float:
        """The position of a note or shape along the axis; on a log axis, notes give `exponents` of ten."""
        if reference == "paper" or reference.endswith("domain"):
            return value
        if exponents and self.log:
            return (value - self.start) / (self.end - self.start)
        return float(self.at(value))


@dataclass(frozen=True)
class Labels:
    """The arranged tick labels: the selected ticks, their size and orientation, and how far they extend from the plot."""

    ticks: list[Tick]
    size: float
    upright: bool
    reach: float


def read_axis(figure: go.Figure, letter: str) -> Axis:
    """The axis "x" or "y" of a figure."""
    settings = figure.layout[f"{letter}axis"]
    base = figure.layout.font.size or 12
    log = settings.type == "log"
    start, end = settings.range or _range(figure, letter, log)
    values, texts = ([], []) if settings.showticklabels is False else (settings.tickvals, settings.ticktext)
    if values is None:
        values, texts = _round_numbers(min(start, end), max(start, end), log)
    axis = Axis(
        float(start),
        float(end),
        log,
        [],
        settings.title.text or "",
        settings.title.font.size or round(1.2 * base),
        settings.tickfont.size or base,
        settings.ticklabelstandoff or 0,
        settings.side in ("top", "right"),
        (settings.gridcolor or "#eeeeee") if settings.showgrid is not False else None,
    )
    ticks = [
        Tick(float(axis.at(value)), markup.parse_lines(str(text))) for value, text in zip(values, texts, strict=True)
    ]
    axis.ticks.extend(tick for tick in ticks if -1e-6 <= tick.at <= 1 + 1e-6)
    return axis


def labels_below(page: Page, axis: Axis, length: float) -> Labels:
    """The labels under a plot of this width: horizontal if they fit, otherwise upright."""
    ticks = sorted(axis.ticks, key=lambda tick: tick.at)
    positions = [tick.at * length for tick in ticks]
    widths = [width_of(page, tick, 1) for tick in ticks]
    for size in (axis.size, 0.9 * axis.size, 0.8 * axis.size):
        needed = [(a + b) / 2 * size + 0.7 * size for a, b in pairwise(widths)]
        if all(b - a >= room for (a, b), room in zip(pairwise(positions), needed, strict=True)):
            return Labels(ticks, size, False, LINE * size * max((len(tick.lines) for tick in ticks), default=0))
    return _apart(page, ticks, axis.size, length, True)


def labels_beside(page: Page, axis: Axis, length: float) -> Labels:
    """The labels beside a plot of this height."""
    return _apart(page, sorted(axis.ticks, key=lambda tick: 1 - tick.at), axis.size, length, False)


def _apart(page: Page, ticks: list[Tick], size: float, length: float, upright: bool) -> Labels:
    """Stacked labels: shrunk if necessary, and thinned out if they would be too small."""
    lines = max((len(tick.lines) for tick in ticks), default=1)
    widest = max((width_of(page, tick, 1) for tick in ticks), default=0)
    size = min(size, 0.36 * page.width / widest if widest else size)  # leaves room for the plot
    fitting = _smallest_gap(ticks) * length / (_PACKED + LINE * (lines - 1))
    if fitting < min(size, _SMALLEST):
        size = min(size, _WANTED)
        ticks = _thinned(ticks, (_PACKED + LINE * (lines - 1)) * size / length)
    else:
        size = min(size, fitting)
    return Labels(ticks, size, upright, max((width_of(page, tick, size) for tick in ticks), default=0))


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
    """The smallest distance between two labels."""
    return min((abs(b.at - a.at) for a, b in pairwise(ticks)), default=1.0)


def width_of(page: Page, tick: Tick, size: float) -> float:
    """The width of a label."""
    return max(sum(page.width_of(run.text, size, run.bold) for run in line) for line in tick.lines)


def _range(figure: go.Figure, letter: str, log: bool) -> tuple[float, float]:
    """Plotly's default range of an axis: all numbers, with a margin at both ends."""
    numbers = np.concatenate([np.asarray(trace[letter], dtype=float) for trace in figure.data])
    if log:
        numbers = np.log10(numbers)
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    if any(trace.type == "bar" for trace in figure.data) and letter == "y":
        low, high = min(low, 0.0), max(high, 0.0)
    margin = (0.05 if letter == "y" else 0) * (high - low) or (0 if high > low else 0.5)
    return (low - margin if low else low), high + margin


def _round_numbers(low: float, high: float, log: bool) -> tuple[list[float], list[str]]:
    """About six round numbers within a range, with their texts."""
    if log:
        powers = range(math.ceil(low), math.floor(high) + 1)
        return [10.0**power for power in powers], [f"{10.0**power:g}" for power in powers]
    approximate_step = (high - low) / 6
    step = 10 ** math.floor(math.log10(approximate_step))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= approximate_step * 0.999)
    decimals = max(0, -math.floor(math.log10(step)))
    numbers = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return numbers, [f"{place:.{decimals}f}" if place else "0" for place in numbers]
