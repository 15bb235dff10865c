"""Lessons to Plotly figures: lines and bars.

As in `plots`, ``layout.meta`` carries ``alt``; ``panels`` is empty, so a click on these does nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from attention.lessons.softmax import COLDEST, HOTTEST, TEMPERATURES
from attention.pictures.drawing import HIDDEN
from attention.pictures.layout import note

if TYPE_CHECKING:
    from attention.lessons.softmax import Curve, Spread

INK = "#3d8bc9"  # readable on white and on black
GRID = "rgba(128,128,140,0.28)"
COLD_TO_HOT = ("#2f6fb4", "#7db8dd", "#9a9da6", "#eda27c", "#cf3f45")  # one per temperature


def softmax_curve(lesson: Curve) -> go.Figure:
    """The curve of a softmax over evenly spaced numbers."""
    low, high, top = float(lesson.x[0]), float(lesson.x[-1]), float(lesson.share[-1])
    figure = chart(
        "softmax",
        f"{len(lesson.x)} numbers from {low:.1f} to {high:.1f}; all shares together are 1",
        f"Line chart of the softmax of {len(lesson.x)} numbers from {low:.1f} to {high:.1f}: the share grows like e to the power "
        f"of the number, up to {top:.4f}.",
    )
    figure.add_scatter(
        x=lesson.x, y=lesson.share, mode="lines", line={"color": INK, "width": 3}, showlegend=False,
        hovertemplate="number %{x:.1f}<br>share <b>%{y:.9g}</b><extra></extra>",
    )  # fmt: skip
    _axes(figure, "number", "its share")
    return figure


def shares_by_temperature(lesson: Spread) -> go.Figure:
    """The shares of every number of a row as bars, one group per number, one colour per temperature."""
    figure = chart(
        "softmax(x / temperature)",
        "at five temperatures; the bars of one colour sum to 1",
        f"Bar chart of the softmax of {len(lesson.row)} numbers at the temperatures {', '.join(map(_written, TEMPERATURES))}: the largest "
        f"number, {max(lesson.row):g}, gets "
        + ", ".join(f"{max(lesson.shares[t]):.4f} at {_written(t)}" for t in TEMPERATURES)
        + ".",
        legend=True,
    )
    places = np.arange(len(lesson.row))
    for color, (temperature, shares) in zip(COLD_TO_HOT, lesson.shares.items(), strict=True):
        figure.add_bar(
            x=places, y=shares, marker_color=color, name=_legend(temperature),
            hovertemplate=f"x = %{{x}}<br>temperature {_written(temperature)}<br>share <b>%{{y:.9g}}</b><extra></extra>",
        )  # fmt: skip
    _axes(figure, "number of the row", "its share")
    names = [f"{number:g}" for number in lesson.row]
    figure.update_layout(bargap=0.25, bargroupgap=0.05)
    figure.update_xaxes(tickvals=places, ticktext=names, range=[-0.6, len(names) - 0.4], showgrid=False)
    figure.update_yaxes(range=[0, 1.02])
    return figure


def variance_by_temperature(lesson: Spread) -> go.Figure:
    """The variance of the shares against temperature, the five temperatures marked."""
    return _against_temperature(
        lesson, lesson.variance, "variance", f"of the shares: from 0 (all get the same) to {1 / len(lesson.row):.3g}", 1 / len(lesson.row), "one takes all"
    )  # fmt: skip


def entropy_by_temperature(lesson: Spread) -> go.Figure:
    """The entropy of the shares against temperature, the five temperatures marked."""
    most = math.log(len(lesson.row))
    facts = f"of the shares, in nats: from 0 (one takes all) to {most:.3f}"
    return _against_temperature(lesson, lesson.entropy, "entropy", facts, most, f"ln {len(lesson.row)}: all the same")


def _against_temperature(lesson: Spread, numbers: Any, name: str, facts: str, most: float, most_name: str) -> go.Figure:
    at = [int(np.flatnonzero(lesson.temperatures == t)[0]) for t in TEMPERATURES]
    figure = chart(
        name,
        facts,
        f"Line chart of the {name} of the shares against temperature: "
        + ", ".join(f"{numbers[i]:.4f} at {_written(t)}" for i, t in zip(at, TEMPERATURES, strict=True))
        + ".",
    )
    hover = f"temperature %{{x:.4g}}<br>{name} <b>%{{y:.9g}}</b><extra></extra>"
    figure.add_scatter(
        x=lesson.temperatures, y=numbers, mode="lines", line={"color": INK, "width": 3}, hovertemplate=hover, showlegend=False
    )  # fmt: skip
    figure.add_scatter(
        x=list(TEMPERATURES), y=numbers[at], mode="markers", hovertemplate=hover, showlegend=False, cliponaxis=False,
        marker={"color": COLD_TO_HOT, "size": 12, "line": {"color": INK, "width": 1}},
    )  # fmt: skip
    figure.add_hline(y=most, line={"color": HIDDEN, "width": 1, "dash": "dot"})
    rising = numbers[-1] > numbers[0]
    side = {"x": 0.01, "xanchor": "left"} if rising else {"x": 0.99, "xanchor": "right"}  # where the curve is not
    figure.add_annotation(**note(most_name, xref="paper", y=most, yanchor="bottom", **side))
    _axes(figure, "temperature", name)
    figure.update_xaxes(
        type="log", tickvals=[COLDEST, *TEMPERATURES], ticktext=list(map(_written, (COLDEST, *TEMPERATURES))),
        range=[math.log10(COLDEST), math.log10(HOTTEST)],
    )  # fmt: skip
    figure.update_yaxes(range=[0, most * 1.14])
    return figure


def chart(title: str, facts: str, alt: str, legend: bool = False) -> go.Figure:
    """An empty chart with our title, ground and margins; colours stand on either theme."""
    height = 340
    figure = go.Figure()
    figure.update_layout(
        title={
            "text": f"<b>{title}</b>", "font_size": 15, "x": 0, "xref": "container", "pad_l": 6,
            "y": 1 - 30 / height, "yref": "container", "yanchor": "bottom", "subtitle": {"text": facts, "font_size": 11},
        },
        template="none", font_size=11, height=height, margin={"l": 58, "r": 16, "t": 70, "b": 92 if legend else 44},
        paper_bgcolor="rgba(0,0,0,0)", plot_bgcolor="rgba(0,0,0,0)", uirevision=title,
        legend={"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom", "title_text": "temperature "},
        meta={"alt": f"{alt} The table has the numbers.", "step": "", "panels": []},
    )  # fmt: skip
    return figure


def _axes(figure: go.Figure, x_title: str, y_title: str) -> None:
    plain = {"gridcolor": GRID, "zeroline": False, "showline": False, "ticks": ""}
    figure.update_xaxes(**plain, title={"text": x_title, "standoff": 8})
    figure.update_yaxes(**plain, title={"text": y_title, "standoff": 8})


def _written(temperature: float) -> str:
    return "1/8" if temperature == 0.125 else f"{temperature:g}"


def _legend(temperature: float) -> str:
    """A temperature and the factor it is: dividing by 1/8 is multiplying by 8."""
    if temperature == 1:
        return "1"
    return f"{_written(temperature)} (x · {1 / temperature:g})" if temperature < 1 else f"{_written(temperature)} (x / {temperature:g})"  # fmt: skip
