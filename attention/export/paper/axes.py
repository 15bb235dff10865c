"""The axes of a figure on a page: where a number lies, and how the tick labels are set so that none touches another."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.export.paper import markup

if TYPE_CHECKING:
    import plotly.graph_objects as go

    from attention.export.paper.page import Page

LINE = 1.22  # from baseline to baseline, in font sizes
_PACKED = 1.02  # the same between labels, which may stand closer
_SMALLEST = 6  # pixels, 4.5 points: below, labels are left out instead
_WANTED = 8  # pixels: the size of labels where some are left out


@dataclass(frozen=True)
class Tick:
    """A label and where it stands: 0 at the start of the axis, 1 at its end."""

    at: float
    lines: list[list[markup.Run]]


@dataclass(frozen=True)
class Axis:
    """One axis: from left to right, or from the bottom to the top."""

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
        """Where numbers lie along the axis: 0 at its start, 1 at its end."""
        place = np.log10(value) if self.log else np.asarray(value, dtype=float)
        return (place - self.start) / (self.end - self.start)

    def fraction(self, value: float, reference: str, exponents: bool = False) -> float:
        """The same for the place of a note or a shape; on a log axis notes are placed by `exponents` of ten."""
        if reference == "paper" or reference.endswith("domain"):
            return value
        if exponents and self.log:
            return (value - self.start) / (self.end - self.start)
        return float(self.at(value))


@dataclass(frozen=True)
class Labels:
    """The tick labels as they are set: which, how large, upright or not, and how far they reach from the plot."""

    ticks: list[Tick]
    size: float
    upright: bool
    reach: float


def read(figure: go.Figure, letter: str) -> Axis:
    """The axis called "x" or "y" of a figure."""
    given = figure.layout[f"{letter}axis"]
    base = figure.layout.font.size or 12
    log = given.type == "log"
    start, end = given.range or _range(figure, letter, log)
    values, texts = given.tickvals, given.ticktext
    if values is None:
        values, texts = _round_numbers(min(start, end), max(start, end), log)
    axis = Axis(
        float(start),
        float(end),
        log,
        [],
        given.title.text or "",
        given.title.font.size or round(1.2 * base),
        given.tickfont.size or base,
        given.ticklabelstandoff or 0,
        given.side in ("top", "right"),
        (given.gridcolor or "#eeeeee") if given.showgrid is not False else None,
    )
    ticks = [Tick(float(axis.at(value)), markup.lines(str(text))) for value, text in zip(values, texts, strict=True)]
    axis.ticks.extend(tick for tick in ticks if -1e-6 <= tick.at <= 1 + 1e-6)
    return axis


def across(page: Page, axis: Axis, length: float) -> Labels:
    """The labels under a plot of this width: side by side where they fit, else upright."""
    ticks = sorted(axis.ticks, key=lambda tick: tick.at)
    places = [tick.at * length for tick in ticks]
    widths = [width_of(page, tick, 1) for tick in ticks]
    for size in (axis.size, 0.9 * axis.size, 0.8 * axis.size):
        needed = [(a + b) / 2 * size + 0.7 * size for a, b in pairwise(widths)]
        if all(b - a >= room for (a, b), room in zip(pairwise(places), needed, strict=True)):
            return Labels(ticks, size, False, LINE * size * max((len(tick.lines) for tick in ticks), default=0))
    return _apart(page, ticks, axis.size, length, True)


def down(page: Page, axis: Axis, length: float) -> Labels:
    """The labels beside a plot of this height."""
    return _apart(page, sorted(axis.ticks, key=lambda tick: 1 - tick.at), axis.size, length, False)


def _apart(page: Page, ticks: list[Tick], size: float, length: float, upright: bool) -> Labels:
    """Labels one under the other: smaller where they must be, and only some where they would be too small."""
    lines = max((len(tick.lines) for tick in ticks), default=1)
    widest = max((width_of(page, tick, 1) for tick in ticks), default=0)
    size = min(size, 0.36 * page.width / widest if widest else size)  # a label leaves room for the plot
    fitting = _least(ticks) * length / (_PACKED + LINE * (lines - 1))
    if fitting < min(size, _SMALLEST):
        size = min(size, _WANTED)
        ticks = _thinned(ticks, (_PACKED + LINE * (lines - 1)) * size / length)
    else:
        size = min(size, fitting)
    return Labels(ticks, size, upright, max((width_of(page, tick, size) for tick in ticks), default=0))


def _thinned(ticks: list[Tick], apart: float) -> list[Tick]:
    """Every n-th label, counted anew in each panel; where even the panels are too close, every n-th panel."""
    usual = _least(ticks) * 1.5
    runs: list[list[Tick]] = []
    for tick in ticks:
        if runs and abs(tick.at - runs[-1][-1].at) <= usual:
            runs[-1].append(tick)
        else:
            runs.append([tick])
    for stride in range(2, max(map(len, runs)) + 1):
        kept = [tick for run in runs for tick in run[::stride]]
        if _least(kept) >= apart:
            return kept
    for stride in range(1, len(runs) + 1):
        kept = [run[0] for run in runs[::stride]]
        if _least(kept) >= apart:
            return kept
    return ticks[:1]


def _least(ticks: list[Tick]) -> float:
    """How close the two closest labels are."""
    return min((abs(b.at - a.at) for a, b in pairwise(ticks)), default=1.0)


def width_of(page: Page, tick: Tick, size: float) -> float:
    """How wide a label is."""
    return max(sum(page.width_of(run.text, size, run.bold) for run in line) for line in tick.lines)


def _range(figure: go.Figure, letter: str, log: bool) -> tuple[float, float]:
    """What Plotly would show of an axis without a range: all numbers, and a margin above and below them."""
    numbers = np.concatenate([np.asarray(trace[letter], dtype=float) for trace in figure.data])
    if log:
        numbers = np.log10(numbers)
    low, high = float(np.nanmin(numbers)), float(np.nanmax(numbers))
    if any(trace.type == "bar" for trace in figure.data) and letter == "y":
        low, high = min(low, 0.0), max(high, 0.0)
    margin = (0.05 if letter == "y" else 0) * (high - low) or (0 if high > low else 0.5)
    return (low - margin if low else low), high + margin


def _round_numbers(low: float, high: float, log: bool) -> tuple[list[float], list[str]]:
    """About six round numbers between two others, and how they are written."""
    if log:
        powers = range(math.ceil(low), math.floor(high) + 1)
        return [10.0**power for power in powers], [f"{10.0**power:g}" for power in powers]
    rough = (high - low) / 6
    step = 10 ** math.floor(math.log10(rough))
    step *= next(factor for factor in (1, 2, 5, 10) if factor * step >= rough * 0.999)
    decimals = max(0, -math.floor(math.log10(step)))
    places = [i * step for i in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    return places, [f"{place:.{decimals}f}" if place else "0" for place in places]
