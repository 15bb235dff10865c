"""The metrics of all heads as points: one against another, or against the layer."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from attention.numbers.metrics import NAMES, Table, find
from attention.pictures import scales
from attention.pictures.contract import Meta
from attention.pictures.layout import CHOSEN, NO_TEMPLATE, Spec

LAYER = "layer"
"""What stands across where a metric is drawn against the number of the layer."""

AXES = (LAYER, *NAMES)
INK = "#3d8bc9"  # readable on white and on black
GRID = "rgba(128,128,140,0.28)"
_SPREAD = 0.6  # of a layer's room, over which its heads lie side by side


def heads_of(table: Table, across: str, up: str, chosen: tuple[int, int] | None = None) -> Spec:
    """Every head as a point: a metric `up`, and another one or the layer `across`; heads for which one is not defined are left out.

    Against the layer a line shows what uniform attention would give. The `chosen` head is marked.

    Raises:
        MissingError: there is no such metric.
    """
    ys = table.column(find(up).name)
    layers, heads = (np.array([one[i] for one in table.heads]) for i in range(2))
    xs = _beside(layers, heads, table.n_heads) if across == LAYER else table.column(find(across).name)
    there = ~(np.isnan(xs) | np.isnan(ys))
    names = [f"L{layer} H{head}" for layer, head in table.heads]
    marker: dict[str, Any] = {"size": 9, "color": INK, "line": {"width": 0.5, "color": "rgba(128,128,140,0.8)"}}
    data: list[dict[str, Any]] = []
    if len(table.n_heads) > 1 and across != LAYER:
        marker["color"], beside = _by_layer(layers[there], len(table.n_heads))
        data.append(beside)
    hover = f"%{{text}}<br>{up} <b>%{{y:.4g}}</b>" + (f"<br>{across} <b>%{{x:.4g}}</b>" if across != LAYER else "")
    points = {
        "type": "scatter", "mode": "markers", "x": xs[there], "y": ys[there], "text": [name for name, is_there in zip(names, there, strict=True) if is_there],
        "marker": marker, "hovertemplate": f"{hover}<extra></extra>", "showlegend": False, "cliponaxis": False,
    }  # fmt: skip
    if across == LAYER:
        data.append(_uniform(table, up))
    data.append(points)
    own = None if chosen not in table.heads else table.heads.index(chosen)
    if own is not None and there[own]:
        ring = {"size": 15, "color": "rgba(0,0,0,0)", "line": {"width": 3, "color": CHOSEN}}
        data.append({
            "type": "scatter", "mode": "markers", "x": xs[[own]], "y": ys[[own]], "marker": ring, "hoverinfo": "skip", "showlegend": False, "cliponaxis": False,
        })  # fmt: skip
    left_out = int((~there).sum())
    told = f"on this text: a point for each of {int(there.sum())} heads" + (f", {left_out} without a number" if left_out else "")  # fmt: skip
    told += "; the line is uniform attention" if across == LAYER and not np.isnan(table.uniform[:, NAMES.index(up)]).all() else ""  # fmt: skip
    drawn = [xs[there], ys[there]]
    if across == LAYER:
        drawn[1] = np.append(drawn[1], table.uniform[:, NAMES.index(up)])
    ends = (float(np.nanmax(drawn[0], initial=0)), float(np.nanmax(drawn[1], initial=0)))
    figure = chart(
        f"{up} and {across}",
        told,
        f"Scatter chart of the heads, {up} against {across}, {told}. {_extremes(names, ys, there, up)}".rstrip(),
        height=360,
    )
    figure["data"], figure["layout"]["hovermode"] = data, "closest"
    x = _layers(len(table.n_heads)) if across == LAYER else {"range": _room(ends[0])}
    axes(figure, across, up, x, {"range": _room(ends[1])})
    return figure


def _layers(count: int) -> dict[str, Any]:
    """What an axis has that runs over the numbers of so many layers."""
    ticks = list(range(0, count, max(1, math.ceil(count / 16))))
    return {"range": [-0.5, count - 0.5], "tickvals": ticks, "ticktext": [f"L{i}" for i in ticks], "showgrid": False}


def _beside(layers: Any, heads: Any, n_heads: tuple[int, ...]) -> Any:
    """The layer of each head, the heads of one layer a little apart."""
    many = np.array([n_heads[layer] for layer in layers])
    return layers + _SPREAD * ((heads + 0.5) / many - 0.5)


def _by_layer(layers: Any, many: int) -> tuple[list[str], dict[str, Any]]:
    """The colour of each point by its layer, and a trace without points that has the bar of these colours."""
    colors = scales.mixed(layers / (many - 1))
    ticks = sorted({0, (many - 1) // 2, many - 1})
    bar = {
        "thickness": 8, "outlinewidth": 0, "tickfont": {"size": 10}, "tickvals": ticks, "ticktext": [f"L{i}" for i in ticks],
        "orientation": "h", "len": 0.3, "x": 1, "xanchor": "right", "xpad": 0, "y": 1, "yanchor": "bottom", "ypad": 4,
    }  # fmt: skip
    marker = {"cmin": 0, "cmax": many - 1, "colorscale": scales.PROBABILITY, "showscale": True, "colorbar": bar}
    return colors, {
        "type": "scatter", "mode": "markers", "x": [None], "y": [None], "hoverinfo": "skip", "showlegend": False, "marker": marker,
    }  # fmt: skip


def _uniform(table: Table, up: str) -> dict[str, Any]:
    """A short line for each layer, where all heads would lie if no query had a preference."""
    numbers = table.uniform[:, NAMES.index(up)]
    xs, ys = [], []
    for layer, number in enumerate(numbers):
        if not math.isnan(number):
            xs += [layer - 0.45, layer + 0.45, None]
            ys += [float(number), float(number), None]
    return {
        "type": "scatter", "mode": "lines", "x": xs or [None], "y": ys or [None], "line": {"color": "#9a9da6", "width": 2, "dash": "dot"},
        "hovertemplate": "uniform attention<br><b>%{y:.4g}</b><extra></extra>", "showlegend": False,
    }  # fmt: skip


def _extremes(names: list[str], ys: Any, there: Any, up: str) -> str:
    """Which heads lie highest and lowest, in words."""
    if not there.any():
        return ""
    most, least = int(np.where(there, ys, -math.inf).argmax()), int(np.where(there, ys, math.inf).argmin())
    return f"Highest {up}: {names[most]} with {ys[most]:.4g}; lowest: {names[least]} with {ys[least]:.4g}."


def _room(most: float) -> list[float]:
    """From 0 to what is a little more than the largest number, with all of a point in it."""
    top = 1.0 if 0.5 < most <= 1 else most or 1.0
    return [-0.04 * top, 1.06 * top]


def chart(title: str, facts: str, alt: str, height: int = 340) -> Spec:
    """An empty chart with our title, ground and margins; colours stand on either theme, and a click does nothing."""
    meta: Meta = {"alt": f"{alt} The table has the numbers.", "step": "", "panels": []}
    layout = {
        "title": {
            "text": f"<b>{title}</b>", "font": {"size": 15}, "x": 0, "xref": "container", "pad": {"l": 6},
            "y": 1 - 30 / height, "yref": "container", "yanchor": "bottom", "subtitle": {"text": facts, "font": {"size": 11}},
        },
        "template": NO_TEMPLATE, "font": {"size": 11}, "height": height, "margin": {"l": 58, "r": 16, "t": 70, "b": 44},
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "uirevision": title, "meta": meta,
    }  # fmt: skip
    return {"data": [], "layout": layout}


def axes(figure: Spec, x_title: str, y_title: str, x: Spec | None = None, y: Spec | None = None) -> None:
    """Gives a chart axes with these titles, and with what `x` and `y` have of their own."""
    plain = {"gridcolor": GRID, "zeroline": False, "showline": False, "ticks": ""}
    for axis, title, own in (("xaxis", x_title, x), ("yaxis", y_title, y)):
        figure["layout"][axis] = {**plain, "title": {"text": title, "standoff": 8}, **(own or {})}
