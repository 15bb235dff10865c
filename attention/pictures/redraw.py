"""Transform a finished figure: into a Plotly figure, without its outlines, or enlarged."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import plotly.graph_objects as go

from attention.pictures.layout import CHOSEN_COLOR, Spec


def to_plotly(spec: Spec) -> go.Figure:
    """Returns a specification as a Plotly figure, which copies everything; pages send the JSON itself.

    Validating every key takes ten times as long as everything else; a test does it instead.
    """
    return go.Figure(spec, _validate=False)


P = ParamSpec("P")


def plotly_variant(make: Callable[P, Spec]) -> Callable[P, go.Figure]:
    """Returns a function that returns a Plotly figure where `make` returns its JSON, with the same arguments."""
    return wraps(make)(lambda *args, **kwargs: to_plotly(make(*args, **kwargs)))


def without_outlines(figure: go.Figure) -> go.Figure:
    """Returns the figure without the outlines of the chosen cell, its row and its column."""
    layout = figure.layout.to_plotly_json()
    layout["shapes"] = [shape for shape in layout.get("shapes", ()) if shape["line"].get("color") != CHOSEN_COLOR]
    if "file" in layout["meta"]:
        layout["meta"] = {**layout["meta"], "file": layout["meta"]["file"][:2]}  # without the chosen cell
    return to_plotly({"data": figure.data, "layout": layout})


_PIXEL_KEYS = ("size", "standoff", "thickness", "xshift", "yshift", "ypad")
_PIXEL_OBJECTS = ("margin", "pad")  # every number in these is in pixels


def enlarge(spec: Spec, by: float) -> Spec:
    """Returns a figure for a projector: letters and the space that they need are `by` times as large."""

    def scale(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {name: scale(inner, key if key in _PIXEL_OBJECTS else name) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [scale(inner, key) for inner in value]
        return value * by if key in (*_PIXEL_KEYS, *_PIXEL_OBJECTS) and isinstance(value, int | float) else value

    height = spec["layout"].get("height")
    layout = scale({name: part for name, part in spec["layout"].items() if name != "meta"})
    layout |= {"meta": spec["layout"]["meta"]} | ({"height": round(height * (1 + by) / 2)} if height else {})
    return {
        "data": [
            {**trace, **scale({name: trace[name] for name in ("textfont", "colorbar", "marker") if name in trace})}
            for trace in spec["data"]
        ],
        "layout": layout,
    }
