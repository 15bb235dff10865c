"""What every map is drawn with: the figure itself, tokens on its axes, outlines, notes, the alt text."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from attention.formula.facts import Facts, ends
from attention.formula.layer import Layer
from attention.formula.steps import MAP_AXES, Step
from attention.formula.trace import Trace
from attention.pictures import scales
from attention.pictures.contract import Meta
from attention.printed import shown
from attention.tokens import label

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

HIDDEN = "#9a9da6"
ALLOWED = "#2a9d8f"
CHOSEN = "#ff3ec9"  # in neither scale

NO_TEMPLATE = {"data": {"scatter": [{"type": "scatter"}]}}  # Plotly's "none"; no entry at all means its own colours
Spec = dict[str, Any]
"""A figure as Plotly's JSON, {"data": …, "layout": …}, with arrays in it."""

LABELS_UP_TO = 32  # tokens along an axis; beyond, every n-th
LONGEST_LABEL = 12  # characters
HEIGHT = 400  # pixels

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

    @property
    def place(self) -> tuple[slice, slice]:
        """The part of the map it covers, for indexing an array [row column]."""
        return np.s_[self.y : self.y + self.rows, self.x : self.x + self.columns]


def figure_of(
    trace: Trace,
    step: Step,
    layer: int,
    matrix: NDArray[Any],
    hidden: NDArray[Any] | None,
    panels: list[Panel],
    colors: str,
    heat: dict[str, Any] | None = None,
    whole: Tensor | None = None,
    **layout: Any,
) -> Spec:
    """A map of `matrix` [row column] with titles, colours, hover and alt text, and the `hidden` cells on their ground.

    What is in `heat` is added to the heatmap, and what is in `layout` to the layout. `whole` is the tensor of a `step` that is
    none of the layer's, such as a parameter.
    """
    finite = np.isfinite(matrix)
    span = trace.layer(layer).ends(step.name) if whole is None else ends(whole)
    low, high = scales.range_of(step, span, colors)
    shape = " × ".join(map(str, (trace.layer(layer).shape(step.name) if whole is None else whole.shape)[-2:]))
    where = f"L{layer}" + (
        f" H{panels[0].head}"
        if len(panels) == 1 and step.per_head
        else f", {len(panels)} heads"
        if step.per_head
        else ""
    )
    formula = trace.layer(layer).formula_of(step)
    facts = [formula, where, shape]
    if panels[0].block > 1:
        facts.append(f"each cell the largest of {panels[0].block} × {panels[0].block}")
    mask = trace.layer(layer).mask
    blind = int((~mask.any(dim=1)).sum()) if mask is not None and hidden is not None else 0
    if blind:
        facts.append(f"{blind} {'query sees' if blind == 1 else 'queries see'} no key")

    rows, columns = matrix.shape
    many = len(panels) > 1
    own: dict[str, Any] = {}  # which head a place belongs to; one panel says it in words
    if many:
        own["customdata"] = heads_of = np.zeros((rows, columns), dtype=np.uint16)
        for panel in panels:
            heads_of[panel.place] = panel.head
    head = f" H{'%{customdata}' if many else panels[0].head}" if step.per_head else ""
    hover = f"{step.name} L{layer}{head}<br>{_short(step.row_axis)} %{{y}}<br>{_short(step.column_axis)} %{{x}}<br>"
    painted, beside = scales.painted(step, low, high, colors, many)
    heatmap: dict[str, Any] = {
        "type": "heatmap",
        "z": matrix if finite.all() else np.where(finite, matrix, np.nan).astype(matrix.dtype),
        **own,
        **painted,
        "hovertemplate": hover + "<b>%{z:.9g}</b><extra></extra>",
        "hoverongaps": False,  # between the panels there is nothing to tell; hidden cells have a trace of their own
        **(heat or {}),
    }
    data = [heatmap]
    below = ground(hover, "0" if step.kind == "probability" else "−∞")
    if hidden is not None and hidden.any():
        data.append({**below, "z": np.where(hidden, np.float32(1), np.float32(np.nan)), **own})
    data += beside
    told = scales.said(step, low, high, colors)
    sums = trace.layer(layer).facts(step.name) if whole is None and step.kind == "probability" else None
    heads = "-heads" if many else f"-H{panels[0].head}" if step.per_head else ""
    meta: Meta = {
        "alt": _alt(step, formula, sums, where, shape, blind, span, told),
        "step": step.name,
        "layer": layer,
        "panels": [asdict(panel) for panel in panels],
        "axes": [_short(step.row_axis), _short(step.column_axis)],
        "file": [step.name, f"L{layer}{heads}"],
    }
    if step.axes == MAP_AXES:
        meta["ground"] = below
    heading = f"<b>{step.symbol}</b>  {step.name}"
    laid = laid_out(
        trace.layer(layer), (step.row_axis, step.column_axis), panels, heading, facts, meta, (rows, columns)
    )
    laid["margin"] |= layout.pop("margin", {})
    if step.kind == "probability" and (words := scales.WORDS[colors]):
        bar = beside[0]["marker"]["colorbar"] if beside else heatmap["colorbar"]
        at = {"x": 1 - bar["len"], "xref": "paper", "xanchor": "right", "xshift": -6}
        at |= {"y": 1, "yref": "paper", "yanchor": "bottom", "yshift": bar["ypad"] + 7}
        layout["annotations"] = [*layout.get("annotations", []), note(words, name="colors", **at)]
    return {"data": data, "layout": laid | layout}


def ground(hover: str, number: str) -> dict[str, Any]:
    """A heatmap without its cells for those that the mask hides, whose `number` is told when they are pointed at."""
    return {
        "type": "heatmap",
        "colorscale": [[0, HIDDEN], [1, HIDDEN]],
        "showscale": False,
        "hoverongaps": False,
        "hovertemplate": f"{hover}<b>{number}</b>, hidden by the mask<extra></extra>",
    }


def hidden_cells(trace: Trace, step: Step, layer: int) -> NDArray[np.bool_] | None:
    """Which cells the mask hides [query_pos key_pos]; None for the steps before it and after it."""
    mask = trace.layer(layer).mask
    if mask is None or step.how not in ("hidden", "shared out", "drawn"):
        return None
    hidden: NDArray[np.bool_] = np.logical_not(mask.numpy())
    return hidden


def drawn(spec: Spec) -> go.Figure:
    """Plotly's object of a figure; it copies everything, so a page sends the JSON itself.

    Plotly's check of every key takes ten times as long as all the rest; a test does it instead.
    """
    return go.Figure(spec, _validate=False)


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
    rows, columns = shape
    plain: dict[str, Any] = {
        "showgrid": False,
        "zeroline": False,
        "showline": False,
        "ticks": "",
        "tickmode": "array",
        "ticklabeloverflow": "allow",
        "hoverformat": "d",
    }
    row_axis, column_axis = axes
    spans_x = {(panel.x, panel.columns, panel.block) for panel in panels}
    spans_y = {(panel.y, panel.rows, panel.block) for panel in panels}
    upright = column_axis in AXIS_TITLES and (_upright(layer) or len(spans_x) > 1)
    x_title = {"text": _title(column_axis), "standoff": _room(layer) - 6 if upright else 8}
    across = _labelled(layer, column_axis, spans_x)
    return {
        "title": {
            "text": heading, "font": {"size": 15}, "x": 0, "xref": "container", "pad": {"l": 6, "b": 46},
            "y": 1, "yref": "paper", "yanchor": "bottom", "subtitle": {"text": " · ".join(facts), "font": {"size": 11}},
        },
        "template": NO_TEMPLATE,
        "font": {"size": 11},
        "height": HEIGHT,
        "margin": _margin(layer),
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "uirevision": f"{meta['step']} {rows} {columns}",  # zoom survives a knob, not another shape
        "meta": meta,
        "xaxis": {**plain, **across, "title": x_title, "range": [-0.5, columns - 0.5], "tickangle": -90 if upright else 0},
        "yaxis": {**plain, **_labelled(layer, row_axis, spans_y), "title": {"text": _title(row_axis)}, "range": [rows - 0.5, -0.5]},
    }  # fmt: skip


def outline(x: int, y: int, columns: int, rows: int, width: int) -> dict[str, Any]:
    """A frame in the colour of the chosen cell around some cells of a map, `width` pixels wide, as a Plotly shape.

    A map gets its shapes and notes at once: Plotly's `add_shape` copies those there are, each time.
    """
    line = {"color": CHOSEN, "width": width}
    return {"type": "rect", "x0": x - 0.5, "x1": x + columns - 0.5, "y0": y - 0.5, "y1": y + rows - 0.5, "line": line}


def note(text: str, **place: Any) -> dict[str, Any]:
    """A few words on a map, as a Plotly annotation."""
    return {"text": text, "showarrow": False, "font": {"size": 11}, **place}


def _labelled(layer: Layer, axis: str, spans: set[tuple[int, int, int]]) -> dict[str, Any]:
    """Ticks on whole numbers with tokens as their texts, and what the hover says for every place, drawn tick or not."""
    return _ticks(layer.labels_of(axis), tuple(sorted(spans)))


def names_of(layer: Layer, axis: str) -> dict[str, str]:
    """What the hover says for every position of an axis."""
    names: dict[str, str] = _ticks(layer.labels_of(axis), ((0, layer.sizes[axis], 1),))["labelalias"]
    return names


@lru_cache(maxsize=16)
def _ticks(tokens: tuple[str, ...] | None, spans: tuple[tuple[int, int, int], ...]) -> dict[str, Any]:
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
                    str(position) if tokens is None else numbered + label(tokens[position], LONGEST_LABEL)
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
    longest = min(LONGEST_LABEL, max(len(max(tokens, key=len)) for tokens in (layer.tokens, layer.key_tokens)))
    most = max(len(layer.tokens), len(layer.key_tokens))
    return round(6 * max(3, longest)) + (6 * (len(str(most - 1)) + 1) if most > LABELS_UP_TO else 0)


def _title(axis: str) -> str:
    return AXIS_TITLES.get(axis, f"column of {axis}")


def _short(axis: str) -> str:
    return axis.removesuffix("_pos")


def _alt(
    step: Step,
    formula: str,
    facts: Facts | None,
    where: str,
    shape: str,
    blind: int,
    span: tuple[float, float] | None,
    colors: str,
) -> str:
    """A sentence that says what the map shows, for who cannot see it."""
    numbers = f"numbers from {shown(span[0])} to {shown(span[1])}" if span else "every number hidden"
    sums = (
        f", {blind} {'row sees' if blind == 1 else 'rows see'} no key"
        if blind
        else ", every row sums to 1"
        if facts is not None
        and facts.least is not None
        and facts.most is not None
        and 0.999 < facts.least <= facts.most < 1.001
        and not facts.empty
        else ""
    )
    return (
        f"Heatmap of {step.name} ({step.symbol} = {formula}), {where}, {shape}: {_title(step.row_axis)} by {_title(step.column_axis)}, "
        f"{numbers}{sums}{', ' if colors else ''}{colors}."
    )
