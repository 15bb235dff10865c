"""Colour scales: the scale of each kind of number, its range, and its colour bar."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from attention.base.errors import ConfigError
from attention.base.printed import format_number
from attention.formula.steps import Step, find_step
from attention.pictures.look import LIGHT, TYPE, mix
from attention.pictures.marks import note
from attention.trace.layer import Layer
from attention.trace.stats import StepStats

COLORS = ("fixed", "stretched", "log")
"""The colour ranges of a probability: 0 … 1, 0 … the largest that is drawn, or powers of ten up to 1."""

FITTED = "fitted"
"""The colour range that reaches up to the largest number on the pictures of one figure."""
OPACITY = 0.6
"""Of the colours over a picture; the rest is the picture."""

LOG_FLOOR = 1e-4
"""The lower end of the logarithmic scale: smaller numbers have the same colour, and 0 has `_ZERO_COLOR`."""

PROBABILITY: list[list[Any]] = [[0.0, LIGHT["zero"]], [1.0, LIGHT["weight"]]]
POSITIVE: list[list[Any]] = [[0.0, LIGHT["zero"]], [0.5, LIGHT["positive"]], [1.0, LIGHT["most-positive"]]]
SIGNED: list[list[Any]] = [[0.0, LIGHT["most-negative"]], [0.25, LIGHT["negative"]]] + [
    [(1 + place) / 2, color] for place, color in POSITIVE
]
_ZERO_COLOR = LIGHT["ground"]  # a probability of 0 on the logarithmic scale
LEAST_SHARE = 0.12  # of the scale of a probability: a colour that differs from the page, and from `_ZERO_COLOR`

_STOPS = 6 * 9  # of the logarithmic scale: enough for linear interpolation to follow the curve
_SMALLEST = 1e-45  # below the smallest positive float32


def drawn_stats(layer: Layer, step: str, head: int | None = None) -> StepStats:
    """Returns the statistics of a step: of weights those of one head, since another head's peak would leave it dark; otherwise of all heads.

    Of maps that are not kept, those of one head too, since each head takes seconds.
    """
    of_all = find_step(step).kind != "probability" and layer.keeps_maps
    return layer.stats(step, None if of_all else head)


def drawn_span(layer: Layer, step: str, head: int | None = None) -> tuple[float, float] | None:
    """Returns the smallest and the largest number that colours tell apart, see `drawn_stats` and `StepStats.drawn_range`; None if there is none."""
    return drawn_stats(layer, step, head).drawn_range(layer.hides_keys)


def joined_span(spans: Sequence[tuple[float, float] | None]) -> tuple[float, float] | None:
    """Returns the range of maps that share their colours; None if none has a number."""
    present = [span for span in spans if span]
    return (min(low for low, _ in present), max(high for _, high in present)) if present else None


def scale_range(step: Step, span: tuple[float, float] | None, colors: str) -> tuple[float, float]:
    """Returns both ends of the colour scale for numbers within `span`: 0 … 1 for a probability, or 0 … the largest if "stretched"; symmetric around 0 for others.

    Raises:
        ConfigError: `colors` is not one of `COLORS`.
    """
    if colors not in COLORS:
        raise ConfigError(f"Colours are {', '.join(COLORS[:-1])} or {COLORS[-1]}; got {colors!r}: choose one of these.")
    low, high = span or (0.0, 0.0)
    largest = max(-low, high)
    if step.kind == "probability":
        stretched = colors == "stretched" and largest > 0
        return (0.0, largest if stretched else max(1.0, largest))  # after dropout, surviving weights may exceed 1
    return (-largest, largest) if largest else (-1.0, 1.0)


def describe_colors(step: Step, low: float, high: float, colors: str) -> str:
    """Returns a description of the colour scale for screen readers; empty for the default scale."""
    if step.kind != "probability" or colors == "fixed":
        return ""
    if colors == "log":
        return f"colours logarithmic from {LOG_FLOOR:g} to {high:.3g}, 0 in the colour of the page"
    return f"colours stretched to {low:g} … {high:.3g}"


def scale_note(step: Step, high: float, colors: str, many: bool = False, largest: float = 0) -> list[dict[str, Any]]:
    """Returns the note beside the colour bar: what the scale of a probability is, if not 0 … 1; the `largest` magnitude, if beyond its end."""
    if step.kind == "probability":
        text = {
            "fixed": "",
            # In float32 a weight may pass 1 by its rounding.
            "stretched": f"full colour = {high:.3g}{' or more' * (largest > (1 + 1e-6) * high)}",
            "log": "logarithmic",
        }[colors]
    else:
        colors, text = "fixed", f"cut at {high:.3g}, largest {largest:.3g}" if largest > high else ""
    if not text:
        return []
    bar = _bar(many, colors)
    place = {
        "x": 1 - bar["len"], "xref": "paper", "xanchor": "right", "xshift": -6, "y": 1, "yref": "paper", "yanchor": "bottom",
    }  # fmt: skip
    return [note(text, name="colors", yshift=bar["ypad"] + 7, **place)]


def _bar(many: bool, colors: str = "fixed") -> dict[str, Any]:
    """Returns the colour bar without its ticks; that of the logarithmic scale is longer."""
    return color_bar(None, (0.25 if many else 0.5) * (1.5 if colors == "log" else 1), 18 if many else 4)


def color_bar(ticks: Mapping[Any, str] | None = None, length: float = 0, pad: int = 4) -> dict[str, Any]:
    """A colour bar with labels at some numbers, by default round ones: beside a map, or of a `length` (a part of its width) above it, `pad` pixels away."""
    above = {"orientation": "h", "len": length, "x": 1, "xanchor": "right", "xpad": 0, "y": 1, "ypad": pad, "ticklabeloverflow": "allow"}  # fmt: skip
    labels = {} if ticks is None else {"tickvals": [*ticks], "ticktext": [*ticks.values()]}
    return {"thickness": 8, "outlinewidth": 0, "tickfont": {"size": TYPE["axis"]}} | labels | (above if length else {})  # fmt: skip


def between(low: float, high: float, scale: Sequence[Sequence[Any]], bar: Mapping[str, Any]) -> dict[str, Any]:
    """The colours of cells from `low` to `high`, with their bar."""
    return {"zmin": low, "zmax": high, "colorscale": scale, "colorbar": bar}


def up_to(limit: float, is_signed: bool = True) -> dict[str, Any]:
    """The colours of cells up to `limit`, with a bar beside them: symmetric around 0, or from 0."""
    low, scale = (-limit, SIGNED) if is_signed else (0.0, POSITIVE)
    ticks = {low: f"−{format_number(limit)}", 0: "0", limit: format_number(limit)} if is_signed else {0: "0", limit: format_number(limit)}  # fmt: skip
    return between(low, limit, scale, color_bar(ticks))


def color_keys(
    step: Step, low: float, high: float, colors: str, many: bool = False
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the keys of a heatmap for its colours, and additional traces where the colour bar needs one.

    The bar of a map of `many` panels is shorter, to leave space for their labels.
    """
    bar = _bar(many, colors if step.kind == "probability" else "fixed")
    if step.kind == "probability" and colors == "log":
        # The numbers are unchanged; the stops of the scale lie at powers of ten. Plotly would draw all labels of
        # its bar at the left end, so the bar belongs to a trace without points.
        heat = {"colorscale": _log_colorscale(high), "showscale": False, "meta": {"colors": colors, "floor": LOG_FLOOR}}  # fmt: skip
        return heat | {"zmin": low, "zmax": high}, [_log_bar_trace(high, bar)]
    scale = PROBABILITY if step.kind == "probability" else SIGNED
    places = [low, (low + high) / 2, high]
    bar |= {"tickvals": places, "ticktext": [f"{place:.3g}" for place in places]}
    heat = {"colorscale": scale, "zmin": low, "zmax": high, "colorbar": bar}
    return heat | ({"meta": {"colors": colors}} if describe_colors(step, low, high, colors) else {}), []


def _log_colorscale(high: float) -> list[list[Any]]:
    """Returns the logarithmic scale of a probability from `LOG_FLOOR` to `high`, as stops along 0 … `high`."""
    fractions = np.linspace(0, 1, _STOPS + 1)
    shades = interpolate_colors(LEAST_SHARE + (1 - LEAST_SHARE) * fractions)
    positions = LOG_FLOOR / high * (high / LOG_FLOOR) ** fractions
    positions[-1] = 1
    return [[0.0, _ZERO_COLOR], [_SMALLEST, shades[0]]] + [
        [float(position), color] for position, color in zip(positions, shades, strict=True)
    ]


def interpolate_colors(fractions: Iterable[float]) -> list[str]:
    """Returns the colours of a probability at `fractions` of its scale, as #rrggbb."""
    return [mix(LIGHT["zero"], LIGHT["weight"], fraction) for fraction in fractions]


def color_at(step: Step, share: float) -> str:
    """Returns the colour of a step's numbers at a fraction `share`, from 0 to 1, of its scale, as #rrggbb."""
    stops = PROBABILITY if step.kind == "probability" else SIGNED
    (low, first), (high, second) = next(pair for pair in pairwise(stops) if min(share, 1) <= pair[1][0])
    return mix(first, second, (share - low) / (high - low))


def _log_bar_trace(high: float, bar: dict[str, Any]) -> dict[str, Any]:
    """Returns a trace without points that has the logarithmic colour bar: one decade for 0, then `LOG_FLOOR` … `high`."""
    first, last = math.log10(LOG_FLOOR), math.log10(high)
    start = first - 1
    edge = (first - start) / (last - start)
    shades = interpolate_colors([LEAST_SHARE, 1])
    stops = [
        [0.0, _ZERO_COLOR],
        [edge, _ZERO_COLOR],
        *([place, color] for place, color in zip((edge, 1.0), shades, strict=True)),
    ]
    labels = ["0", "≤10⁻⁴", "10⁻³", "0.01", "0.1", "1"]  # short enough for a bar of 120 pixels
    return bar_trace(start, last, stops, bar | {"tickvals": [start + 0.2, *range(round(first), 1)], "ticktext": labels})


def bar_trace(low: float, high: float, scale: Sequence[Sequence[Any]], bar: dict[str, Any]) -> dict[str, Any]:
    """Returns a trace without points that has a colour bar."""
    marker = {"cmin": low, "cmax": high, "colorscale": scale, "showscale": True, "colorbar": bar}
    return {
        "type": "scatter", "mode": "markers", "x": [None], "y": [None], "hoverinfo": "skip", "showlegend": False, "marker": marker,
    }  # fmt: skip
