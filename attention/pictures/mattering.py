"""Which heads matter, as pictures: a map of layers and heads, and what each head changes before and after others are silenced."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.errors import ConfigError
from attention.pictures import scales
from attention.pictures.charts import INK, axes, chart
from attention.pictures.layout import CHOSEN, Panel, Spec, outline
from attention.printed import shown

if TYPE_CHECKING:
    from attention.numbers.mattering import Matters

_ROW = 13  # pixels of a layer
_LEAST, _MOST = 300, 560  # of a map


def map_json(matters: Matters, chosen: tuple[int, int], direct: bool = False) -> Spec:
    """What silencing each head changes, [layer head], or with `direct` what each writes straight into the logit; 0 is white, both ends are alike."""
    numbers = matters.direct if direct else matters.change
    layers, heads = numbers.shape
    limit = float(np.nanmax(np.abs(numbers), initial=0.0)) or 1.0
    title, name = ("Direct effect", "direct effect") if direct else ("Without each head", "change")
    what = "what each head adds straight to the logit" if direct else f"change of the {matters.what}"
    most = matters.sorted()[0] if not direct else _largest(numbers)
    alt = f"Heatmap of {what}, layer by head, from −{shown(limit)} to {shown(limit)}; largest: L{most[0]} H{most[1]} with {shown(float(numbers[most]))}."
    figure = chart(title, what, alt, height=min(_MOST, max(_LEAST, 130 + _ROW * layers)))
    bar = {"thickness": 8, "outlinewidth": 0, "tickfont": {"size": 10}, "tickvals": [-limit, 0, limit], "ticktext": [f"−{shown(limit)}", "0", shown(limit)]}  # fmt: skip
    heat = {
        "type": "heatmap", "z": numbers, "zmin": -limit, "zmax": limit, "colorscale": scales.SIGNED, "colorbar": bar, "xgap": 1, "ygap": 1,
        "hoverongaps": False, "hovertemplate": f"L%{{y}} H%{{x}}<br>{name} <b>%{{z:.4g}}</b><extra></extra>",
    }  # fmt: skip
    figure["data"] = [heat]
    panel = asdict(Panel(0, 0, 0, layers, heads))
    figure["layout"]["meta"] |= {"step": "matters", "panels": [panel], "axes": ["layer", "head"], "file": ["heads-that-matter", name.split()[0]]}  # fmt: skip
    figure["layout"]["shapes"] = [{**outline(chosen[1], chosen[0], 1, 1, 3), "line": {"width": 3, "color": CHOSEN}}]
    figure["layout"]["uirevision"] = f"matters {name}"
    axes(
        figure, "head", "layer",
        {"range": [-0.5, heads - 0.5], "dtick": 1 if heads <= 16 else 4, "showgrid": False},
        {"range": [layers - 0.5, -0.5], "dtick": 1 if layers <= 16 else 5, "showgrid": False},
    )  # fmt: skip
    return figure


def scatter_json(before: Matters, after: Matters, chosen: tuple[int, int]) -> Spec:
    """What silencing each head changes, across, and what it changes in the model that is changed by `after.changes`, up; on the line nothing is different.

    Raises:
        ConfigError: they are of different models.
    """
    if before.n_heads != after.n_heads:
        raise ConfigError("Heads are compared with the same heads; these are of two models: choose one.")
    names = [f"L{layer} H{head}" for layer, head in before.heads]
    x, y = (np.array([one.change[head] for head in before.heads]) for one in (before, after))
    limit = 1.06 * (max(before.limit, after.limit) or 1.0)
    grown = int(np.abs(y - x).argmax())
    told = f"change of the {before.what}; on the line nothing is different"
    alt = f"Scatter chart of the heads: what each changes in the model as it was, and with {after.changed}. Farthest from the line: {names[grown]}, {shown(float(x[grown]))} and {shown(float(y[grown]))}."
    figure = chart("Which heads step in", told, alt, height=380)
    line = {"type": "scatter", "mode": "lines", "x": [-limit, limit], "y": [-limit, limit], "line": {"color": "#9a9da6", "width": 2, "dash": "dot"}, "hoverinfo": "skip", "showlegend": False}  # fmt: skip
    points: dict[str, Any] = {
        "type": "scatter", "mode": "markers", "x": x, "y": y, "text": names, "showlegend": False, "cliponaxis": False,
        "marker": {"size": 9, "color": INK, "line": {"width": 0.5, "color": "rgba(128,128,140,0.8)"}},
        "hovertemplate": "%{text}<br>as it was <b>%{x:.4g}</b><br>changed <b>%{y:.4g}</b><extra></extra>",
    }  # fmt: skip
    at = before.heads.index(chosen) if chosen in before.heads else None
    ring = {"size": 15, "color": "rgba(0,0,0,0)", "line": {"width": 3, "color": CHOSEN}}
    own = [] if at is None else [{**points, "x": x[[at]], "y": y[[at]], "marker": ring, "hoverinfo": "skip"}]
    figure["data"], figure["layout"]["hovermode"] = [line, points, *own], "closest"
    axes(figure, "change in the model as it was", f"change with {after.changed}", {"range": [-limit, limit]}, {"range": [-limit, limit]})  # fmt: skip
    return figure


def _largest(numbers: Any) -> tuple[int, int]:
    place = int(np.nanargmax(np.abs(numbers))) if not np.isnan(numbers).all() else 0
    return place // numbers.shape[1], place % numbers.shape[1]
