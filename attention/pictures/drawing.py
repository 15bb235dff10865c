"""What every map is drawn with: its colours, its hidden cells, its hover, the alt text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.formula.facts import Facts, ends
from attention.formula.layer import Layer
from attention.formula.steps import MAP_AXES, Step
from attention.formula.trace import Trace
from attention.pictures import scales
from attention.pictures.contract import Meta
from attention.pictures.layout import Panel, Spec, axis_title, laid_out, note, short
from attention.printed import shown

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

LONGEST_NAME = 14  # characters of a layer's name beside its number
HIDDEN = "#9a9da6"
ALLOWED = "#2a9d8f"


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
    span: tuple[float, float] | None = None,
    **layout: Any,
) -> Spec:
    """A map of `matrix` [row column] with titles, colours, hover and alt text, and the `hidden` cells on their ground.

    What is in `heat` is added to the heatmap, and what is in `layout` to the layout. `whole` is the tensor of a `step` that is
    none of the layer's, such as a parameter; `span` what the colours run over, where that is more than its own numbers.
    """
    finite, its = np.isfinite(matrix), trace.layer(layer)
    own_span = its.ends(step.name) if whole is None else ends(whole)
    low, high = scales.range_of(step, span or own_span, colors)
    shape = " × ".join(map(str, (its.shape(step.name) if whole is None else whole.shape)[-2:]))
    where = f"{place(its, layer)}{_heads(its, step, panels)}"
    own = its.of(panels[0].head) if len(panels) == 1 else its
    formula = own.formula_of(step)
    facts = [formula, where, shape]
    if panels[0].block > 1:
        facts.append(f"each cell the largest of {panels[0].block} × {panels[0].block}")
    if trace.changes:
        facts.append("model changed")
    mask = own.mask
    blind = int((~mask.any(dim=1)).sum()) if mask is not None and hidden is not None else 0
    facts += seeing_none(blind)

    rows, columns = matrix.shape
    many = len(panels) > 1
    belongs: dict[str, Any] = {}  # which head a place belongs to; one panel says it in words
    if many:
        belongs["customdata"] = heads_of = np.zeros((rows, columns), dtype=np.uint16)
        for panel in panels:
            heads_of[panel.place] = panel.head
    head = f" H{'%{customdata}' if many else panels[0].head}" if step.per_head else ""
    hover = f"{step.name} L{layer}{head}<br>{short(step.row_axis)} %{{y}}<br>{short(step.column_axis)} %{{x}}<br>"
    painted, beside = scales.painted(step, low, high, colors, many)
    heatmap: dict[str, Any] = {
        "type": "heatmap",
        "z": matrix if finite.all() else np.where(finite, matrix, np.nan).astype(matrix.dtype),
        **belongs,
        **painted,
        "hovertemplate": hover + "<b>%{z:.9g}</b><extra></extra>",
        "hoverongaps": False,  # between the panels there is nothing to tell; hidden cells have a trace of their own
        **(heat or {}),
    }
    data = [heatmap]
    below = ground(hover, "0" if step.kind == "probability" else "−∞")
    if hidden is not None and hidden.any():
        data.append({**below, "z": np.where(hidden, np.float32(1), np.float32(np.nan)), **belongs})
    data += beside
    told = scales.said(step, low, high, colors)
    sums = its.facts(step.name) if whole is None and step.kind == "probability" else None
    heads = "-heads" if many else f"-H{panels[0].head}" if step.per_head else ""
    meta: Meta = {
        "alt": _alt(step, formula, sums, where, shape, blind, own_span, told),
        "step": step.name,
        "layer": layer,
        "panels": [asdict(panel) | {"layer": layer} for panel in panels],
        "axes": [short(step.row_axis), short(step.column_axis)],
        "file": [step.name, f"L{layer}{heads}"],
    }
    if step.axes == MAP_AXES:
        meta["ground"] = below
    heading = f"<b>{step.symbol}</b>  {step.name}"
    laid = laid_out(its, (step.row_axis, step.column_axis), panels, heading, facts, meta, (rows, columns))
    laid["margin"] |= layout.pop("margin", {})
    if step.kind == "probability" and (words := scales.WORDS[colors]):
        bar = beside[0]["marker"]["colorbar"] if beside else heatmap["colorbar"]
        at = {"x": 1 - bar["len"], "xref": "paper", "xanchor": "right", "xshift": -6}
        at |= {"y": 1, "yref": "paper", "yanchor": "bottom", "yshift": bar["ypad"] + 7}
        layout["annotations"] = [*layout.get("annotations", []), note(words, name="colors", **at)]
    return {"data": data, "layout": laid | layout}


GROUND = {"type": "heatmap", "colorscale": [[0, HIDDEN], [1, HIDDEN]], "showscale": False, "hoverongaps": False}
"""A heatmap without its cells, for those that the mask hides."""


def ground(hover: str, number: str) -> dict[str, Any]:
    """The ground of cells whose `number` is told when they are pointed at."""
    return {**GROUND, "hovertemplate": f"{hover}<b>{number}</b>, hidden by the mask<extra></extra>"}


def hidden_cells(trace: Trace, step: Step, layer: int, head: int | None = None) -> NDArray[np.bool_] | None:
    """Which cells a head's mask hides [query_pos key_pos], without one those hidden in all; None for the steps before and after it."""
    if not step.masked:
        return None
    there = trace.layer(layer)
    alike = there.formula is None or not there.formula.heads
    heads = [head or 0] if alike or head is not None else range(there.n_heads)
    masks = [there.of(one).mask for one in heads]
    known = [np.logical_not(mask.numpy()) for mask in masks if mask is not None]
    hidden: NDArray[np.bool_] | None = np.logical_and.reduce(known) if known and len(known) == len(masks) else None
    return hidden


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
    said = [axis_title(step.row_axis) + " by " + axis_title(step.column_axis), numbers_said(span)]
    said += seeing_none(blind, "row sees", "rows see")
    if not blind and facts is not None and 0.999 < (facts.least or 0) <= (facts.most or 0) < 1.001 and not facts.empty:
        said.append("every row sums to 1")
    said += filter(None, [colors])
    return f"Heatmap of {step.name} ({step.symbol} = {formula}), {where}, {shape}: {', '.join(said)}."


def numbers_said(span: tuple[float, float] | None) -> str:
    """Which numbers a map has, from the smallest to the largest."""
    return f"numbers from {shown(span[0])} to {shown(span[1])}" if span else "every number hidden"


def seeing_none(count: int, one: str = "query sees", many: str = "queries see") -> list[str]:
    """What is said of so many queries that see no key; nothing of none."""
    return [f"{count} {one if count == 1 else many} no key"] * bool(count)


def place(layer: Layer, number: int) -> str:
    """What a layer is called on a map: "L3", "L7 cross 1"."""
    return f"L{number}" if layer.name in ("", f"layer {number}") else f"L{number} {escape(layer.name[:LONGEST_NAME])}"


def _heads(layer: Layer, step: Step, panels: Sequence[Panel]) -> str:
    """The heads of a map; of keys and values that several heads of queries share, which these are."""
    if not step.per_head:
        return ""
    if len(panels) > 1:
        return f", {len(panels)} heads"
    head, group = panels[0].head, layer.n_heads // layer.sizes.get(step.axes[0], layer.n_heads)
    if group == 1:
        return f" H{head}"
    first = head // group * group
    return f" key head {head // group}, shared by H{first} to H{first + group - 1}"
