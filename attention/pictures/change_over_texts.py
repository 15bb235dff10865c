"""What differs between two results over many texts: a map of the change of each head, and both means against each other."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.pictures.ablation_maps import head_map_json
from attention.pictures.layout import CHOSEN_COLOR, Spec
from attention.pictures.metric_charts import POINT_COLOR, empty_chart, set_axes
from attention.printed import format_number

if TYPE_CHECKING:
    from attention.corpus.result_difference import HeadChanges


def change_map_json(changes: HeadChanges, names: tuple[str, str], chosen: tuple[int, int]) -> Spec:
    """Returns the map [layer head] of the change of the mean from the first to the second result, 0 in white; its standard error under the pointer."""
    shape = tuple(1 + max(head[side] for head in changes.heads) for side in (0, 1))
    numbers, errors = np.full(shape, np.nan), np.full(shape, np.nan)
    for head, change, error in zip(changes.heads, changes.change, changes.error, strict=True):
        numbers[head], errors[head] = change, error
    metric, first, second = map(html.escape, (changes.metric, *names))
    return head_map_json(
        numbers, f"Change of {metric}", "change", f"{second} minus {first}, difference of the means over the texts", chosen, errors, "heads-change", error="standard error"
    )  # fmt: skip


def change_scatter_json(changes: HeadChanges, names: tuple[str, str], chosen: tuple[int, int]) -> Spec:
    """Returns a point for each head: its mean in the first result (x) and in the second (y); heads on the line have not changed."""
    metric, first, second = map(html.escape, (changes.metric, *names))
    x, y = changes.first, changes.second
    top = 1.06 * (float(np.nanmax(np.abs(np.stack([x, y])), initial=0.0)) or 1.0)
    low = -top if np.nanmin(np.stack([x, y]), initial=0.0) < 0 else -0.03 * top
    heads = [f"L{layer} H{head}" for layer, head in changes.heads]
    defined = np.isfinite(changes.change)
    alt = f"Scatter chart of the heads: mean of {metric} in {first} and in {second}"
    if defined.any():
        most = int(np.nanargmax(np.abs(changes.change)))
        alt += f"; largest change: {heads[most]}, from {format_number(x[most])} to {format_number(y[most])}"
    figure = empty_chart(
        f"{metric} in both", "a point for each head; heads on the line have not changed", f"{alt}.", height=380
    )
    line = {"type": "scatter", "mode": "lines", "x": [low, top], "y": [low, top], "line": {"color": "#9a9da6", "width": 2, "dash": "dot"}, "hoverinfo": "skip", "showlegend": False}  # fmt: skip
    points: dict[str, Any] = {
        "type": "scatter", "mode": "markers", "x": x, "y": y, "text": heads, "showlegend": False, "cliponaxis": False,
        "marker": {"size": 9, "color": POINT_COLOR, "line": {"width": 0.5, "color": "rgba(128,128,140,0.8)"}},
        "hovertemplate": f"%{{text}}<br>{first} <b>%{{x:.4g}}</b><br>{second} <b>%{{y:.4g}}</b><extra></extra>",
    }  # fmt: skip
    figure["data"] = [line, points]
    if chosen in changes.heads and defined[changes.heads.index(chosen)]:
        at = [changes.heads.index(chosen)]
        ring = {"size": 15, "color": "rgba(0,0,0,0)", "line": {"width": 3, "color": CHOSEN_COLOR}}
        figure["data"].append({**points, "x": x[at], "y": y[at], "marker": ring, "hoverinfo": "skip"})
    figure["layout"] |= {"hovermode": "closest", "uirevision": f"both {metric}"}
    set_axes(figure, first, second, {"range": [low, top]}, {"range": [low, top]})
    return figure
