"""Charts of the Softmax page as Plotly JSON: lines and bars.

As in `attention.pictures`, ``layout.meta`` carries ``alt``; ``panels`` is empty, so clicks have no effect.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.lessons.softmax_examples import MAX_TEMPERATURE, MIN_TEMPERATURE, TEMPERATURES
from attention.pictures.drawing import HIDDEN_COLOR
from attention.pictures.layout import Spec, note
from attention.pictures.metric_charts import POINT_COLOR, empty_chart, set_axes

if TYPE_CHECKING:
    from attention.lessons.softmax_examples import Curve, Spread

LINE = {"type": "scatter", "mode": "lines", "line": {"color": POINT_COLOR, "width": 3}, "showlegend": False}
LEGEND = {
    "orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom", "title": {"text": "temperature "},
}  # fmt: skip
COLD_TO_HOT = ("#2f6fb4", "#7db8dd", "#9a9da6", "#eda27c", "#cf3f45")  # a colour for each temperature


def softmax_curve(lesson: Curve) -> Spec:
    """The softmax curve over evenly spaced numbers."""
    low, high, top = float(lesson.x[0]), float(lesson.x[-1]), float(lesson.share[-1])
    figure = empty_chart(
        "softmax",
        f"{len(lesson.x)} numbers from {low:.1f} to {high:.1f}; the shares sum to 1",
        f"Line chart of the softmax of {len(lesson.x)} numbers from {low:.1f} to {high:.1f}: the share grows exponentially with "
        f"the number, up to {top:.4f}.",
    )
    figure["data"].append({
        **LINE, "x": lesson.x, "y": lesson.share, "hovertemplate": "number %{x:.1f}<br>share <b>%{y:.9g}</b><extra></extra>",
    })  # fmt: skip
    set_axes(figure, "number", "its share")
    return figure


def shares_by_temperature(lesson: Spread) -> Spec:
    """The shares of a row as bars: one group per number, one colour per temperature."""
    figure = empty_chart(
        "softmax(x / temperature)",
        "at five temperatures; the bars of one colour sum to 1",
        f"Bar chart of the softmax of {len(lesson.row)} numbers at the temperatures {', '.join(map(_format_temperature, TEMPERATURES))}: the largest "
        f"number, {max(lesson.row):g}, gets "
        + ", ".join(f"{max(lesson.shares[t]):.4f} at {_format_temperature(t)}" for t in TEMPERATURES)
        + ".",
    )
    positions = np.arange(len(lesson.row))
    for color, (temperature, shares) in zip(COLD_TO_HOT, lesson.shares.items(), strict=True):
        figure["data"].append({
            "type": "bar", "x": positions, "y": shares, "marker": {"color": color}, "name": _legend(temperature),
            "hovertemplate": f"x = %{{x}}<br>temperature {_format_temperature(temperature)}<br>share <b>%{{y:.9g}}</b><extra></extra>",
        })  # fmt: skip
    figure["layout"] |= {"bargap": 0.25, "bargroupgap": 0.05, "legend": LEGEND}
    figure["layout"]["margin"]["b"] = 92
    names = [f"{number:g}" for number in lesson.row]
    across = {"tickvals": positions, "ticktext": names, "range": [-0.6, len(names) - 0.4], "showgrid": False}
    set_axes(figure, "number of the row", "its share", across, {"range": [0, 1.02]})
    return figure


def variance_by_temperature(lesson: Spread) -> Spec:
    """The variance of the shares against temperature, with the five temperatures marked."""
    return _against_temperature(
        lesson, lesson.variance, "variance", f"of the shares: from 0 (all equal) to {1 / len(lesson.row):.3g}", 1 / len(lesson.row), "one number takes all"
    )  # fmt: skip


def entropy_by_temperature(lesson: Spread) -> Spec:
    """The entropy of the shares against temperature, with the five temperatures marked."""
    limit = math.log(len(lesson.row))
    facts = f"of the shares, in nats: from 0 (one number takes all) to {limit:.3f}"
    return _against_temperature(lesson, lesson.entropy, "entropy", facts, limit, f"ln {len(lesson.row)}: all equal")


def _against_temperature(lesson: Spread, numbers: Any, name: str, facts: str, limit: float, limit_label: str) -> Spec:
    marked = [int(np.flatnonzero(lesson.temperatures == t)[0]) for t in TEMPERATURES]
    figure = empty_chart(
        name,
        facts,
        f"Line chart of the {name} of the shares against temperature: "
        + ", ".join(f"{numbers[i]:.4f} at {_format_temperature(t)}" for i, t in zip(marked, TEMPERATURES, strict=True))
        + ".",
    )
    hover = f"temperature %{{x:.4g}}<br>{name} <b>%{{y:.9g}}</b><extra></extra>"
    marker = {"color": COLD_TO_HOT, "size": 12, "line": {"color": POINT_COLOR, "width": 1}}
    figure["data"] += [
        {**LINE, "x": lesson.temperatures, "y": numbers, "hovertemplate": hover},
        {**LINE, "x": list(TEMPERATURES), "y": numbers[marked], "mode": "markers", "hovertemplate": hover, "cliponaxis": False, "marker": marker},
    ]  # fmt: skip
    rising = numbers[-1] > numbers[0]
    side = {"x": 0.01, "xanchor": "left"} if rising else {"x": 0.99, "xanchor": "right"}  # away from the curve
    figure["layout"] |= {
        "annotations": [note(limit_label, xref="paper", y=limit, yanchor="bottom", **side)],
        "shapes": [{
            "type": "line", "x0": 0, "x1": 1, "xref": "x domain", "y0": limit, "y1": limit, "yref": "y", "line": {"color": HIDDEN_COLOR, "width": 1, "dash": "dot"},
        }],
    }  # fmt: skip
    across = {
        "type": "log", "tickvals": [MIN_TEMPERATURE, *TEMPERATURES], "ticktext": list(map(_format_temperature, (MIN_TEMPERATURE, *TEMPERATURES))),
        "range": [math.log10(MIN_TEMPERATURE), math.log10(MAX_TEMPERATURE)],
    }  # fmt: skip
    set_axes(figure, "temperature", name, across, {"range": [0, limit * 1.14]})
    return figure


def _format_temperature(temperature: float) -> str:
    return "1/8" if temperature == 0.125 else f"{temperature:g}"


def _legend(temperature: float) -> str:
    """A temperature with its factor: dividing by 1/8 is multiplying by 8."""
    if temperature == 1:
        return "1"
    return f"{_format_temperature(temperature)} (x · {1 / temperature:g})" if temperature < 1 else f"{_format_temperature(temperature)} (x / {temperature:g})"  # fmt: skip
