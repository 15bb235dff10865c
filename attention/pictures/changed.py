"""A figure that is drawn already, as another needs it: as Plotly's object, without its outlines, larger."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import plotly.graph_objects as go

from attention.pictures.layout import CHOSEN, Spec


def drawn(spec: Spec) -> go.Figure:
    """Plotly's object of a figure; it copies everything, so a page sends the JSON itself.

    Plotly's check of every key takes ten times as long as all the rest; a test does it instead.
    """
    return go.Figure(spec, _validate=False)


P = ParamSpec("P")


def as_figure(make: Callable[P, Spec]) -> Callable[P, go.Figure]:
    """What makes Plotly's object where `make` gives its JSON, of the same arguments."""
    return wraps(make)(lambda *given, **named: drawn(make(*given, **named)))


def unmarked(figure: go.Figure) -> go.Figure:
    """The figure without the outlines of the chosen cell, its row and its column."""
    layout = figure.layout.to_plotly_json()
    layout["shapes"] = [shape for shape in layout.get("shapes", ()) if shape["line"].get("color") != CHOSEN]
    if "file" in layout["meta"]:
        layout["meta"] = {**layout["meta"], "file": layout["meta"]["file"][:2]}  # its name need not say which cell
    return drawn({"data": figure.data, "layout": layout})


_IN_PIXELS = ("size", "standoff", "thickness", "xshift", "yshift", "ypad")
_ROOMS = ("margin", "pad")  # in which every number is one of pixels


def enlarged(spec: Spec, by: float) -> Spec:
    """A figure for the last row of a class: letters, and the room that they take, `by` times as large."""

    def larger(value: Any, inside: str = "") -> Any:
        if isinstance(value, dict):
            return {name: larger(inner, inside if inside in _ROOMS else name) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [larger(inner, inside) for inner in value]
        return value * by if inside in (*_IN_PIXELS, *_ROOMS) and isinstance(value, int | float) else value

    height = spec["layout"].get("height")
    layout = larger({name: part for name, part in spec["layout"].items() if name != "meta"})
    layout |= {"meta": spec["layout"]["meta"]} | ({"height": round(height * (1 + by) / 2)} if height else {})
    return {
        "data": [
            {**trace, **larger({name: trace[name] for name in ("textfont", "colorbar", "marker") if name in trace})}
            for trace in spec["data"]
        ],
        "layout": layout,
    }
