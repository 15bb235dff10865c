"""The layout of a map: the tokens on its axes, its title and margins."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from attention.base.tokens import Generated, PairToken, label, place_label, shows_several_pictures
from attention.pictures.look import TYPE
from attention.pictures.marks import CLEAR, NO_TEMPLATE
from attention.pictures.message_contract import Meta
from attention.trace.layer import Layer

_MAX_LABELS = 32  # tokens along an axis; above this, every n-th
_MAX_LABEL_LENGTH = 12  # characters
HEIGHT = 400  # pixels

PLAIN_AXIS = {
    "showgrid": False, "zeroline": False, "showline": False, "ticks": "", "tickmode": "array", "tickangle": 0,
    "ticklabeloverflow": "allow", "hoverformat": "d",
}  # fmt: skip
"""An axis without lines; titles and ticks are added for each map."""

AXIS_TITLES = {"query_pos": "query (attends from)", "key_pos": "key (attends to)"}


def map_layout(
    layer: Layer,
    axes: tuple[str, str],
    heading: str,
    facts: list[str],
    meta: Meta,
    shape: tuple[int, ...],
) -> dict[str, Any]:
    """Returns the layout of a map of `shape` cells and `axes` (row, column): title, tokens, margins, and the metadata for the page, which has its panels."""
    row_axis, column_axis = axes
    spans_x = {(panel["x"], panel["columns"], panel["block"]) for panel in meta["panels"]}
    spans_y = {(panel["y"], panel["rows"], panel["block"]) for panel in meta["panels"]}
    vertical = column_axis in AXIS_TITLES and (_needs_vertical_labels(layer) or len(spans_x) > 1)
    layout = base_layout(shape, heading, facts, meta) | {"height": HEIGHT, "margin": _margin(layer)}
    layout["xaxis"] |= _axis_labels(layer, column_axis, spans_x) | {"tickangle": -90 if vertical else 0}
    standoff = _label_pixels(layer) - 6 if vertical else 8
    layout["xaxis"]["title"] = {"text": axis_title(column_axis), "standoff": standoff}
    layout["yaxis"] |= _axis_labels(layer, row_axis, spans_y) | {"title": {"text": axis_title(row_axis)}}
    return layout


def base_layout(shape: tuple[int, ...], heading: str, facts: Sequence[str], meta: Meta) -> dict[str, Any]:
    """Returns the common layout of all maps: title, fonts, axes without lines, the ranges of `shape` [row column]."""
    rows, columns = shape
    return {
        "title": {
            "text": heading, "font": {"size": TYPE["text"]}, "x": 0, "xref": "container", "pad": {"l": 6, "b": 46},
            "y": 1, "yref": "paper", "yanchor": "bottom", "subtitle": {"text": " · ".join(facts), "font": {"size": TYPE["axis"]}},
        },
        "template": NO_TEMPLATE,
        "font": {"size": TYPE["axis"]},
        **CLEAR,
        "uirevision": f"{meta['step']} {rows} {columns}",  # the zoom survives a changed knob, not another shape
        "meta": meta,
        "xaxis": {**PLAIN_AXIS, "range": [-0.5, columns - 0.5]},
        "yaxis": {**PLAIN_AXIS, "range": [rows - 0.5, -0.5]},
    }  # fmt: skip


def panel_ticks(spans: Sequence[tuple[int, int, str]]) -> dict[str, Any]:
    """Returns a tick at the middle of each panel along an axis; `spans` has the start, the size and the label of each."""
    centers = [start + (size - 1) / 2 for start, size, _ in spans]
    return {"tickvals": centers, "ticktext": [text for _, _, text in spans]}


def _axis_labels(layer: Layer, axis: str, spans: set[tuple[int, int, int]]) -> dict[str, Any]:
    """Returns ticks with tokens as texts, and a hover label for every position, with or without a tick."""
    tokens = layer.labels_of(axis)
    marks = (getattr(token, "of", "▸" * isinstance(token, Generated)) for token in tokens or ())
    return _ticks(tokens, tuple(sorted(spans)), tuple(marks))


def hover_labels(layer: Layer, axis: str) -> dict[str, str]:
    """Returns the hover label of every position of an axis."""
    names: dict[str, str] = _axis_labels(layer, axis, {(0, layer.sizes[axis], 1)})["labelalias"]
    return names


@lru_cache(maxsize=16)
def _ticks(
    tokens: tuple[str, ...] | None, spans: tuple[tuple[int, int, int], ...], _: tuple[str, ...]
) -> dict[str, Any]:
    # The last argument distinguishes equal tokens that a model generated, or that are of another text of a pair.
    ticks: dict[int, str] = {}
    names: dict[str, str] = {}
    for start, size, block in spans:
        if size > _MAX_LABELS and len(spans) > 1:
            stride = size  # small multiples of many tokens: only the first position of each
        elif tokens and size <= _MAX_LABELS:
            stride = 1
        else:
            stride = math.ceil(size / (16 if tokens else 8))
        for i in range(size):
            position = i * block
            name = str(position) if block == 1 else f"{position}…{position + block - 1}"
            names[str(start + i)] = name if tokens is None else f"{name} {label(tokens[position], 40)}"
            if i % stride == 0:
                prefix = f"{position} " if stride * block > 1 else ""
                ticks[start + i] = (
                    str(position) if tokens is None else prefix + label(tokens[position], _MAX_LABEL_LENGTH)
                )
    return {"tickvals": list(ticks), "ticktext": list(ticks.values()), "labelalias": names}


def _needs_vertical_labels(layer: Layer) -> bool:
    """Whether the key tokens are too long to stand side by side under a map."""
    return sum(_width(token) + 2 for token in layer.key_tokens) > 36


def _width(token: str) -> int:
    """About how many characters the label of a token has."""
    return len(token) + 3 * isinstance(token, PairToken)


def _margin(layer: Layer) -> dict[str, int]:
    """Returns the margins for titles and tokens, equal for every step of a layer, so that maps side by side line up."""
    below = 28 + (_label_pixels(layer) if _needs_vertical_labels(layer) else 16)
    return {"l": 32 + _label_pixels(layer), "r": 18, "t": 78, "b": below}


def _label_pixels(layer: Layer) -> int:
    """Returns the width in pixels of the longest tick label."""
    axes = layer.tokens, layer.key_tokens
    longest = min(_MAX_LABEL_LENGTH, max(len(label(max(tokens, key=_width), escape=False)) for tokens in axes))
    longest_side = max(map(len, axes))
    return round(6 * max(4, longest)) + (6 * (len(str(longest_side - 1)) + 1) if longest_side > _MAX_LABELS else 0)


def axis_title(axis: str) -> str:
    """Returns the title of an axis."""
    return AXIS_TITLES.get(axis, f"column of {axis}")


def axis_noun(axis: str) -> str:
    """Returns what one position of an axis is: query, key, column of d_k."""
    return axis_title(axis).split(" (")[0]


def position_name(axis: str, position: int, tokens: Sequence[str] | None) -> str:
    """Returns a position of an axis in words, with its token if the axis has `tokens`: "query 3 dog"; a patch of several pictures is named with its own."""
    name = f"{axis_noun(axis)} {position}"
    words = place_label(tokens[position], shows_several_pictures(tokens)) if tokens else ""
    return (
        words if words.startswith(name) else f"{name} {words}".strip()
    )  # an object query has the position in its name


def short_axis_name(axis: str) -> str:
    """Returns the short name of an axis for hover texts: query, key, d_k."""
    return axis.removesuffix("_pos")
