"""The small maps of "why we scale", in one figure with one colour scale."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.core.names import WEIGHTS
from attention.core.steps import find_step
from attention.lessons.scaling import DIVISORS
from attention.pictures import scales
from attention.pictures.drawing import make_hidden_trace
from attention.pictures.layout import PLAIN_AXIS, Spec, panel_label, panel_ticks
from attention.pictures.metric_charts import empty_chart
from attention.pictures.mosaic import filled_canvas, tile_panels
from attention.tokens import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attention.lessons.scaling import Scaling

_HEIGHT = 118  # pixels of each small map


def scaling_maps(lesson: Scaling) -> Spec:
    """The weights for five initializations (down) and three divisors (across), in one figure with one scale; each map shows its entropy."""
    n_inits, n_divisors, rows, columns = lesson.weights.shape
    gutters = max(1, round(rows * 0.22)), max(1, round(columns * 0.08))
    panels = tile_panels(n_inits * n_divisors, n_divisors, rows, columns, gutters)
    weights, hidden = (filled_canvas(panels, np.float32(np.nan)) for _ in range(2))
    for panel, matrix in zip(panels, lesson.weights.reshape(-1, rows, columns), strict=True):
        weights[panel.area], hidden[panel.area] = matrix, np.where(lesson.visible, np.nan, 1)
    figure = empty_chart(
        "weights of head 0",
        f"H: mean entropy of a row, from 0 to ln {columns} = {math.log(columns):.2f}",
        "Heatmap of the weights of head 0 (query (attends from) by key (attends to)) for five random initializations and three divisors. "
        "Mean entropy of a row: "
        + "; ".join(
            f"{init}: " + ", ".join(f"{lesson.entropy[i, j]:.2f} divided by {d}" for j, d in enumerate(DIVISORS))
            for i, init in enumerate(lesson.inits)
        )
        + ".",
    )
    hover = "%{y}<br>%{x}<br>"
    heat, _ = scales.color_keys(find_step(WEIGHTS), 0, 1, "fixed")
    heat["colorbar"] |= {"len": 0.4, "y": 0, "yanchor": "top", "ypad": 10}
    template = f"{hover}<b>%{{z:.9g}}</b><extra></extra>"
    figure["data"].append({"type": "heatmap", "z": weights, **heat, "hoverongaps": False, "hovertemplate": template})
    if not lesson.visible.all():
        figure["data"].append(make_hidden_trace(hover, "0") | {"z": hidden})
    notes = [
        panel_label(f"H {entropy:.2f}", panel) for panel, entropy in zip(panels, lesson.entropy.flatten(), strict=True)
    ]
    across, down = panels[:n_divisors], panels[::n_divisors]
    x = _axis(
        [(panel.x, columns, f"÷ {d}") for panel, d in zip(across, DIVISORS, strict=True)], lesson.key_tokens, "key"
    )
    y = _axis([(panel.y, rows, init) for panel, init in zip(down, lesson.inits, strict=True)], lesson.tokens, "query")
    y["ticktext"] = [init.replace(" ", "<br>") for init in lesson.inits]
    x |= {"range": [-0.5, weights.shape[1] - 0.5], "side": "top", "ticklabelstandoff": 18}
    y |= {"range": [weights.shape[0] - 0.5, -0.5]}
    height, margin = 140 + _HEIGHT * n_inits, {"l": 70, "r": 12, "t": 104, "b": 40}
    figure["layout"]["title"]["y"] = 1 - 30 / height
    figure["layout"] |= {"xaxis": x, "yaxis": y, "height": height, "margin": margin, "annotations": notes}
    return figure


def _axis(spans: Sequence[tuple[int, int, str]], tokens: tuple[str, ...], title: str) -> dict[str, Any]:
    """The axis of the panels: a tick in the middle of each, and the hover label of every position."""
    aliases = {
        str(start + index): f"{title} {index} {label(tokens[index], 40)} · {name}"
        for start, size, name in spans
        for index in range(size)
    }
    return {**PLAIN_AXIS, **panel_ticks(spans), "labelalias": aliases, "tickfont": {"size": 13}}
