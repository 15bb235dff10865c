"""Where everything stands on a map: its panels, the tokens on its axes, its heading, outlines and notes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from attention.formula.layer import Layer
from attention.pictures.contract import Meta
from attention.tokens import Generated, label

CHOSEN = "#ff3ec9"  # in neither scale

NO_TEMPLATE = {"data": {"scatter": [{"type": "scatter"}]}}  # Plotly's "none"; no entry at all means its own colours

Spec = dict[str, Any]
"""A figure as Plotly's JSON, {"data": …, "layout": …}, with arrays in it."""

LABELS_UP_TO = 32  # tokens along an axis; beyond, every n-th
LONGEST_LABEL = 12  # characters
HEIGHT = 400  # pixels

PLAIN = {
    "showgrid": False, "zeroline": False, "showline": False, "ticks": "", "tickmode": "array", "tickangle": 0,
    "ticklabeloverflow": "allow", "hoverformat": "d",
}  # fmt: skip
"""An axis without lines; what stands beside it is said for each map."""

AXIS_TITLES = {"query_pos": "query (attends from)", "key_pos": "key (attends to)"}


@dataclass(frozen=True)
class Panel:
    """Where one head's matrix lies in a map: its corner, its size, and how many numbers a cell's side stands for."""

    head: int
    x: int
    y: int
    rows: int
    columns: int
    block: int = 1
    layer: int = 0

    @property
    def place(self) -> tuple[slice, slice]:
        """The part of the map it covers, for indexing an array [row column]."""
        return np.s_[self.y : self.y + self.rows, self.x : self.x + self.columns]


def laid_out(
    layer: Layer,
    axes: tuple[str, str],
    panels: list[Panel],
    heading: str,
    facts: list[str],
    meta: Meta,
    shape: tuple[int, int],
) -> dict[str, Any]:
    """The layout of a map of `shape` cells and `axes` (row, column): heading, tokens, room, and what a page must know."""
    row_axis, column_axis = axes
    spans_x = {(panel.x, panel.columns, panel.block) for panel in panels}
    spans_y = {(panel.y, panel.rows, panel.block) for panel in panels}
    upright = column_axis in AXIS_TITLES and (_upright(layer) or len(spans_x) > 1)
    laid = framed(shape, heading, facts, meta) | {"height": HEIGHT, "margin": _margin(layer)}
    laid["xaxis"] |= _labelled(layer, column_axis, spans_x) | {"tickangle": -90 if upright else 0}
    laid["xaxis"]["title"] = {"text": axis_title(column_axis), "standoff": _room(layer) - 6 if upright else 8}
    laid["yaxis"] |= _labelled(layer, row_axis, spans_y) | {"title": {"text": axis_title(row_axis)}}
    return laid


def framed(shape: tuple[int, ...], heading: str, facts: Sequence[str], meta: Meta) -> dict[str, Any]:
    """What the layouts of all maps have: heading, letters, no lines, as many cells as `shape` [row column] says."""
    rows, columns = shape
    return {
        "title": {
            "text": heading, "font": {"size": 15}, "x": 0, "xref": "container", "pad": {"l": 6, "b": 46},
            "y": 1, "yref": "paper", "yanchor": "bottom", "subtitle": {"text": " · ".join(facts), "font": {"size": 11}},
        },
        "template": NO_TEMPLATE,
        "font": {"size": 11},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "uirevision": f"{meta['step']} {rows} {columns}",  # zoom survives a knob, not another shape
        "meta": meta,
        "xaxis": {**PLAIN, "range": [-0.5, columns - 0.5]},
        "yaxis": {**PLAIN, "range": [rows - 0.5, -0.5]},
    }  # fmt: skip


def middles(spans: Sequence[tuple[int, int, str]]) -> dict[str, Any]:
    """A tick in the middle of each panel along an axis: where it begins, its size, its name."""
    at = [start + (size - 1) / 2 for start, size, _ in spans]
    return {"tickvals": at, "ticktext": [text for _, _, text in spans]}


def outline(x: int, y: int, columns: int, rows: int, width: int) -> dict[str, Any]:
    """A frame in the colour of the chosen cell around some cells of a map, `width` pixels wide, as a Plotly shape.

    A map gets its shapes and notes at once: Plotly's `add_shape` copies those there are, each time.
    """
    line = {"color": CHOSEN, "width": width}
    return {"type": "rect", "x0": x - 0.5, "x1": x + columns - 0.5, "y0": y - 0.5, "y1": y + rows - 0.5, "line": line}


def note(text: str, **place: Any) -> dict[str, Any]:
    """A few words on a map, as a Plotly annotation."""
    return {"text": text, "showarrow": False, "font": {"size": 11}, **place}


def named(text: str, panel: Panel, **more: Any) -> dict[str, Any]:
    """A few words above a panel, where it begins."""
    return note(text, x=panel.x - 0.5, y=panel.y - 0.5, xanchor="left", yanchor="bottom", **more)


def _labelled(layer: Layer, axis: str, spans: set[tuple[int, int, int]]) -> dict[str, Any]:
    """Ticks on whole numbers with tokens as their texts, and what the hover says for every place, drawn tick or not."""
    tokens = layer.labels_of(axis)
    return _ticks(tokens, tuple(sorted(spans)), sum(isinstance(token, Generated) for token in tokens or ()))


def names_of(layer: Layer, axis: str) -> dict[str, str]:
    """What the hover says for every position of an axis."""
    names: dict[str, str] = _labelled(layer, axis, {(0, layer.sizes[axis], 1)})["labelalias"]
    return names


@lru_cache(maxsize=16)
def _ticks(tokens: tuple[str, ...] | None, spans: tuple[tuple[int, int, int], ...], _: int = 0) -> dict[str, Any]:
    # Of the same tokens a model may have said some itself: how many decides which is meant.
    ticks: dict[int, str] = {}
    names: dict[str, str] = {}
    for start, size, block in spans:
        if size > LABELS_UP_TO and len(spans) > 1:
            stride = size  # small multiples of many tokens: only where each begins
        elif tokens and size <= LABELS_UP_TO:
            stride = 1
        else:
            stride = math.ceil(size / (16 if tokens else 8))
        for i in range(size):
            position = i * block
            name = str(position) if block == 1 else f"{position}…{position + block - 1}"
            names[str(start + i)] = name if tokens is None else f"{name} {label(tokens[position], 40)}"
            if i % stride == 0:
                numbered = f"{position} " if stride * block > 1 else ""
                ticks[start + i] = (
                    f"{position}" if tokens is None else numbered + label(tokens[position], LONGEST_LABEL)
                )
    return {"tickvals": list(ticks), "ticktext": list(ticks.values()), "labelalias": names}


def _upright(layer: Layer) -> bool:
    """Whether the key tokens are too long together to stand side by side under a map."""
    return sum(len(token) + 2 for token in layer.key_tokens) > 36


def _margin(layer: Layer) -> dict[str, int]:
    """Room for titles and tokens, the same for every step of a layer, so that maps side by side line up."""
    return {"l": 32 + _room(layer), "r": 12, "t": 78, "b": 28 + (_room(layer) if _upright(layer) else 16)}


def _room(layer: Layer) -> int:
    """The pixels that the longest token takes as a tick."""
    longest = min(
        LONGEST_LABEL,
        max(len(label(max(tokens, key=len), escape=False)) for tokens in (layer.tokens, layer.key_tokens)),
    )
    most = max(len(layer.tokens), len(layer.key_tokens))
    return round(6 * max(4, longest)) + (6 * (len(str(most - 1)) + 1) if most > LABELS_UP_TO else 0)


def axis_title(axis: str) -> str:
    """What stands beside an axis."""
    return AXIS_TITLES.get(axis, f"column of {axis}")


def short(axis: str) -> str:
    """The name of an axis as the hover says it: query, key, d_k."""
    return axis.removesuffix("_pos")
