"""Figures of a sweep over heads: a map of layers and heads, and a scatter chart of head effects before and after other heads are ablated."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.errors import ConfigError
from attention.pictures import scales
from attention.pictures.layout import CHOSEN_COLOR, Panel, Spec, outline
from attention.pictures.metric_charts import POINT_COLOR, empty_chart, set_axes
from attention.printed import format_number

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attention.analysis.head_importance import HeadSweep

_ROW_HEIGHT = 13  # pixels of a layer
_MIN_HEIGHT, _MAX_HEIGHT = 300, 560  # pixels of a map


def head_effect_map_json(sweep: HeadSweep, chosen: tuple[int, int], number: str = "change") -> Spec:
    """Returns a map [layer head] of one number of a sweep; 0 is white and the range symmetric.

    Args:
        sweep: the sweep.
        chosen: the outlined head, as (layer, head).
        number: "change", "estimate" (of the change, by attribution patching), or "direct" (effect on the logit).
    """
    numbers = {"change": sweep.change, "estimate": sweep.estimate, "direct": sweep.direct}[number]
    title, quantity, description = {
        "change": (sweep.title, "change", f"change of the {sweep.quantity}"),
        "estimate": ("Estimated by attribution patching", "estimate", f"estimated change of the {sweep.quantity}"),
        "direct": ("Direct effect", "direct effect", "what each head adds directly to the logit"),
    }[number]
    return head_map_json(numbers, title, quantity, description, chosen)


def head_map_json(
    numbers: NDArray[np.float64],
    title: str,
    quantity: str,
    description: str,
    chosen: tuple[int, int],
    spread: NDArray[np.float64] | None = None,
    name: str = "heads-that-matter",
    is_signed: bool = True,
    error: str = "standard deviation",
) -> Spec:
    """Returns a map [layer head] of numbers; 0 is white, and the range of numbers with a sign symmetric.

    Args:
        numbers: [layer head]; NaN where there is none.
        title: of the map.
        quantity: the number in one or two words.
        description: the number in a few words, for the subtitle and the alt text.
        chosen: the outlined head, as (layer, head).
        spread: the standard deviation of each number, shown with it under the pointer.
        name: the beginning of the name of the file.
        is_signed: whether numbers may be negative.
        error: what `spread` is.
    """
    layers, heads = numbers.shape
    limit = float(np.nanmax(np.abs(numbers), initial=0.0)) or 1.0
    largest_head, low = _largest(numbers), f"−{format_number(limit)}" if is_signed else "0"
    alt = f"Heatmap of {description}, layer by head, from {low} to {format_number(limit)}; largest: L{largest_head[0]} H{largest_head[1]} with {format_number(float(numbers[largest_head]))}."
    figure = empty_chart(title, description, alt, height=min(_MAX_HEIGHT, max(_MIN_HEIGHT, 130 + _ROW_HEIGHT * layers)))
    bar = {"thickness": 8, "outlinewidth": 0, "tickfont": {"size": 10}, "tickvals": [-limit, 0, limit], "ticktext": [low, "0", format_number(limit)]}  # fmt: skip
    more = "" if spread is None else f"<br>{error} <b>%{{customdata:.4g}}</b>"
    heat: dict[str, Any] = {
        "type": "heatmap", "z": numbers, "zmin": -limit * is_signed, "zmax": limit, "colorscale": scales.SIGNED if is_signed else scales.POSITIVE, "colorbar": bar, "xgap": 1, "ygap": 1,
        "hoverongaps": False, "hovertemplate": f"L%{{y}} H%{{x}}<br>{quantity} <b>%{{z:.4g}}</b>{more}<extra></extra>",
    }  # fmt: skip
    if spread is not None:
        heat["customdata"] = spread
    figure["data"] = [heat]
    panel = asdict(Panel(0, 0, 0, layers, heads))
    figure["layout"]["meta"] |= {"step": "matters", "panels": [panel], "axes": ["layer", "head"], "file": [name, quantity.split(maxsplit=1)[0]]}  # fmt: skip
    figure["layout"]["shapes"] = [
        {**outline(chosen[1], chosen[0], 1, 1, 3), "line": {"width": 3, "color": CHOSEN_COLOR}}
    ]
    figure["layout"]["uirevision"] = f"{name} {quantity}"
    set_axes(
        figure, "head", "layer",
        {"range": [-0.5, heads - 0.5], "dtick": 1 if heads <= 16 else 4, "showgrid": False},
        {"range": [layers - 0.5, -0.5], "dtick": 1 if layers <= 16 else 5, "showgrid": False},
    )  # fmt: skip
    return figure


def head_effect_scatter_json(before: HeadSweep, after: HeadSweep, chosen: tuple[int, int]) -> Spec:
    """Returns a scatter chart of the heads: the change when each is ablated (x), and the same in the model with `after.changes` (y); unaffected heads lie on the diagonal.

    Raises:
        ConfigError: the two sweeps belong to models with different heads.
    """
    if before.n_heads != after.n_heads:
        raise ConfigError(
            "Both sweeps must cover the same heads; got sweeps of two different models: choose one model."
        )
    names = [f"L{layer} H{head}" for layer, head in before.heads]
    x, y = (np.array([sweep.change[head] for head in before.heads]) for sweep in (before, after))
    limit = 1.06 * (max(before.limit, after.limit) or 1.0)
    farthest = int(np.abs(y - x).argmax())
    subtitle = f"change of the {before.quantity}; heads on the line are unaffected"
    alt = f"Scatter chart of the heads: the change when each is ablated, in the original model and with {after.interventions_words}. Farthest from the line: {names[farthest]}, {format_number(float(x[farthest]))} and {format_number(float(y[farthest]))}."
    figure = empty_chart("Which heads step in", subtitle, alt, height=380)
    line = {"type": "scatter", "mode": "lines", "x": [-limit, limit], "y": [-limit, limit], "line": {"color": "#9a9da6", "width": 2, "dash": "dot"}, "hoverinfo": "skip", "showlegend": False}  # fmt: skip
    points: dict[str, Any] = {
        "type": "scatter", "mode": "markers", "x": x, "y": y, "text": names, "showlegend": False, "cliponaxis": False,
        "marker": {"size": 9, "color": POINT_COLOR, "line": {"width": 0.5, "color": "rgba(128,128,140,0.8)"}},
        "hovertemplate": "%{text}<br>original <b>%{x:.4g}</b><br>changed <b>%{y:.4g}</b><extra></extra>",
    }  # fmt: skip
    chosen_index = before.heads.index(chosen) if chosen in before.heads else None
    ring = {"size": 15, "color": "rgba(0,0,0,0)", "line": {"width": 3, "color": CHOSEN_COLOR}}
    chosen_point = (
        []
        if chosen_index is None
        else [{**points, "x": x[[chosen_index]], "y": y[[chosen_index]], "marker": ring, "hoverinfo": "skip"}]
    )
    figure["data"], figure["layout"]["hovermode"] = [line, points, *chosen_point], "closest"
    set_axes(figure, "change in the original model", f"change with {after.interventions_words}", {"range": [-limit, limit]}, {"range": [-limit, limit]})  # fmt: skip
    return figure


def _largest(numbers: Any) -> tuple[int, int]:
    index = int(np.nanargmax(np.abs(numbers))) if not np.isnan(numbers).all() else 0
    return index // numbers.shape[1], index % numbers.shape[1]
