"""The colours of numbers: which scale a kind of number has, what it runs over, and the bar that says so."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from plotly.colors import hex_to_rgb, sequential

from attention.errors import ConfigError
from attention.formula.steps import Step, find_step
from attention.formula.trace import Trace

COLORS = ("fixed", "stretched", "log")
"""What the colours of a probability run over: 0 … 1, 0 … the layer's largest, or powers of ten up to 1."""

FLOOR = 1e-4
"""Where the powers of ten begin: what is smaller has the colour of this, and 0 has its own."""

WORDS = {"fixed": "", "stretched": "stretched to", "log": "logarithmic"}
"""What stands beside the colour bar."""

# Explicit, never a theme's: a page in dark mode must not turn the scale round.
PROBABILITY = [[i / 9, color] for i, color in enumerate(sequential.Viridis)]
SIGNED = [[0.0, "#2166ac"], [0.25, "#8ec1de"], [0.5, "#f5f4f1"], [0.75, "#f0a582"], [1.0, "#b2182b"]]
DIFFERENCE = [[0.0, "#2166ac"], [0.25, "#8ec1de"], [0.5, "#ffffff"], [0.75, "#f0a582"], [1.0, "#b2182b"]]  # 0 is white
ZERO = "#000000"  # of a probability over powers of ten, which have no 0

_STOPS = 6 * 9  # over powers of ten: so many that straight lines between them are the curve
_LEAST = 1e-45  # no float32 lies between 0 and this


def color_range(trace: Trace, step: str, layer: int = 0, colors: str = "fixed") -> tuple[float, float]:
    """The numbers at the two ends of a step's colours, one range for all heads of the layer, so that heads compare.

    A probability lies in 0 … 1 (with the `colors` "stretched": 0 … the largest there is); signed numbers lie
    symmetrically about 0.

    Raises:
        ConfigError: there are no such colours.
    """
    return range_of(find_step(step), trace.layer(layer).ends(step), colors)


def range_of(step: Step, span: tuple[float, float] | None, colors: str) -> tuple[float, float]:
    """The two ends of the colours of numbers between the two ends of `span`."""
    if colors not in COLORS:
        raise ConfigError(f"Colours are {', '.join(COLORS[:-1])} or {COLORS[-1]}; got {colors!r}: choose one of these.")
    low, high = span or (0.0, 0.0)
    largest = max(-low, high)
    if step.kind == "probability":
        stretched = colors == "stretched" and largest > 0
        return (0.0, largest if stretched else max(1.0, largest))  # what is left of dropped weights may be over 1
    return (-largest, largest) if largest else (-1.0, 1.0)


def said(step: Step, low: float, high: float, colors: str) -> str:
    """What the colours of a map do, for who cannot see them; nothing where they are as always."""
    if step.kind != "probability" or colors == "fixed":
        return ""
    if colors == "log":
        return f"colours logarithmic from {FLOOR:g} to {high:.3g}, 0 in black"
    return f"colours stretched to {low:g} … {high:.3g}"


def painted(
    step: Step, low: float, high: float, colors: str, many: bool = False
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """What a heatmap needs for its colours, and the traces beside it, if its colour bar needs one of its own.

    A bar of a map of `many` panels is shorter, and leaves room for their names.
    """
    bar: dict[str, Any] = {
        "orientation": "h", "thickness": 8, "len": 0.25 if many else 0.5, "x": 1, "xanchor": "right", "xpad": 0,
        "y": 1, "yanchor": "bottom", "ypad": 18 if many else 4, "outlinewidth": 0, "tickfont": {"size": 10},
    }  # fmt: skip
    if step.kind == "probability" and colors == "log":
        # The numbers stay what they are; it is the stops of the scale that lie at powers of ten. Plotly would draw
        # its bar with all of them at the left end, so the bar belongs to a trace of no points.
        heat = {"colorscale": over_powers(high), "showscale": False, "meta": {"colors": colors, "floor": FLOOR}}
        bar["len"] *= 1.5
        return heat | {"zmin": low, "zmax": high}, [_powers(high, bar)]
    scale = PROBABILITY if step.kind == "probability" else SIGNED
    places = [low, (low + high) / 2, high]
    bar |= {"tickvals": places, "ticktext": [f"{place:.3g}" for place in places]}
    heat = {"colorscale": scale, "zmin": low, "zmax": high, "colorbar": bar}
    return heat | ({"meta": {"colors": colors}} if said(step, low, high, colors) else {}), []


def over_powers(high: float) -> list[list[Any]]:
    """The scale of a probability over powers of ten from `FLOOR` to `high`, as stops along 0 … `high`."""
    shares = np.linspace(0, 1, _STOPS + 1)
    places = FLOOR / high * (high / FLOOR) ** shares
    places[-1] = 1
    return [[0.0, ZERO], [_LEAST, PROBABILITY[0][1]]] + [
        [float(place), color] for place, color in zip(places, mixed(shares), strict=True)
    ]


def mixed(shares: Any) -> list[str]:
    """The colours of a probability at some `shares` of its scale, as #rrggbb."""
    stops = np.array([hex_to_rgb(color) for _, color in PROBABILITY], dtype=float)
    mixed = np.stack([np.interp(shares, np.linspace(0, 1, len(stops)), part) for part in stops.T], axis=-1)
    return ["#" + "".join(f"{round(part):02x}" for part in color) for color in mixed]


def ramp(step: Step, share: float) -> str:
    """The colour of a step's numbers at a `share` of its scale, as #rrggbb."""
    stops = PROBABILITY if step.kind == "probability" else SIGNED
    places = np.array([place for place, _ in stops], dtype=float)
    colors = np.array([hex_to_rgb(color) for _, color in stops], dtype=float)
    return "#" + "".join(f"{round(float(np.interp(share, places, part))):02x}" for part in colors.T)


def _powers(high: float, bar: dict[str, Any]) -> dict[str, Any]:
    """A trace without points that has the colour bar of powers of ten: one of them for 0, then `FLOOR` … `high`."""
    first, last = math.log10(FLOOR), math.log10(high)
    start = first - 1
    edge = (first - start) / (last - start)
    stops = [[0.0, ZERO], [edge, ZERO]] + [[edge + share * (1 - edge), color] for share, color in PROBABILITY]
    texts = ["0", "≤10⁻⁴", "10⁻³", "0.01", "0.1", "1"]  # short enough for a bar of 120 pixels
    bar = bar | {"tickvals": [start + 0.2, *range(round(first), 1)], "ticktext": texts}
    marker = {"cmin": start, "cmax": last, "colorscale": stops, "showscale": True, "colorbar": bar}
    return {
        "type": "scatter", "mode": "markers", "x": [None], "y": [None], "hoverinfo": "skip", "showlegend": False, "marker": marker,
    }  # fmt: skip
