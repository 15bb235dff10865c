"""All heads of all layers in one map: a row for each layer and a column for each head, or all of them by a metric."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict
from functools import reduce
from typing import Any

import numpy as np

from attention.errors import MissingError
from attention.formula.cell import Cell
from attention.formula.facts import Facts
from attention.formula.steps import Step, find_step
from attention.formula.trace import Trace
from attention.pictures import scales
from attention.pictures.contract import Meta
from attention.pictures.drawing import GROUND, hidden_cells, numbers_said, place
from attention.pictures.layout import AXIS_TITLES, Panel, Spec, framed, middles, named, names_of, outline
from attention.pictures.mosaic import MOSAIC_CELLS, Paper, known, made_one_by_one, small

Order = Sequence[tuple[int, int]]
"""Heads as layer and head, the first of them first."""

CELLS_A_SECOND = 40_000_000  # weights that are made and drawn as blocks; measured on one thread
_WIDE, _HIGH = 900, 1500  # pixels that a map mostly has, and that it takes at most
_PANEL = (40, 130)  # pixels, the least and the most of a panel's height


def layers_json(
    trace: Trace,
    step: str,
    chosen: Cell | None = None,
    colors: str = "fixed",
    cells: int = MOSAIC_CELLS,
    order: Order = (),
    by: str = "",
) -> Spec:
    """Every head of every layer that has a step, in one map with gutters and one colour scale.

    Without an `order` each layer is a row, and the heads stand below their numbers. Layers may have other tokens and other
    numbers of heads. Above `cells` numbers each cell shows the one of largest size in a block, and the title says so.

    Args:
        trace: the trace.
        step: whose matrices.
        chosen: its head is outlined.
        colors: as for a single map.
        cells: how many numbers are drawn.
        order: all heads in another order, row by row; `by` says what they are sorted by.
        by: the words for it.

    Raises:
        MissingError: no layer has the step.
        ConfigError: there are no such colours.
    """
    found = find_step(step)
    there = [i for i, layer in enumerate(trace.layers) if layer.has(step)]
    if not there:
        raise MissingError(f"no layer of this source has {step}: choose another step.")
    heads = {i: trace.layers[i].n_heads if found.per_head else 1 for i in there}
    shapes = {i: trace.layers[i].shape(step)[-2:] for i in there}
    block = _block(trace, step, cells)
    rows, columns = (-(-max(sides) // block) for sides in zip(*shapes.values(), strict=True))
    order = [one for one in order if one[0] in heads and one[1] < heads[one[0]]]
    across = max(*heads.values(), math.ceil(math.sqrt(1.2 * len(order))))
    wide = columns + max(1, columns // 10)
    high = rows + max(1, math.ceil(rows * 0.3) if order else rows // 10)
    places = {one: divmod(at, across) for at, one in enumerate(order)} or {
        (layer, head): (at, head) for at, layer in enumerate(there) for head in range(heads[layer])
    }
    down = max(row for row, _ in places.values()) + 1
    panels = []
    for (i, head), (row, column) in sorted(places.items()):
        sides = [-(-side // block) for side in shapes[i]]
        panels.append(Panel(head, column * wide, row * high, sides[0], sides[1], block, i))
    paper = Paper(panels)
    drawn = {i: small(trace.layers[i], step, block) for i in there}
    covered = {i: hidden_cells(trace, found, i) for i in there}
    for panel in panels:
        paper.put(panel, drawn[panel.layer], covered[panel.layer])
    facts = reduce(Facts.and_, (one.facts for one in drawn.values()))
    size = f"{len(there)} {'layer' if len(there) == 1 else 'layers'}, {len(panels)} heads"
    sized = " × ".join(map(str, shapes[there[0]])) if len(set(shapes.values())) == 1 else "of several sizes"
    told = [trace.layers[there[0]].formula_of(found), size, sized]
    told += [f"each cell the largest of {block} × {block}"] * (block > 1)
    told += [f"sorted by {by}, the largest first"] * bool(order)
    low, high_end = scales.range_of(found, facts.ends, colors)
    painted, beside = scales.painted(found, low, high_end, colors, many=True)
    same = len({(trace.layers[i].tokens, trace.layers[i].key_tokens, shapes[i]) for i in there}) == 1
    axes = found.row_axis, found.column_axis
    names = [names_of(trace.layers[there[0]], axis) if same else {} for axis in axes]
    meta: Meta = {
        "alt": _alt(found, told, facts, scales.said(found, low, high_end, colors)),
        "step": step,
        "panels": [asdict(panel) for panel in panels],
        "axes": [axis.removesuffix("_pos") for axis in axes],
        "file": [step, "all-heads"],
        "at": paper.at.astype(np.min_scalar_type(max(1, block * block - 1))),
        "rows": {"labelalias": names[0]},
        "columns": {"labelalias": names[1]},
        "wide": _WIDE // 2 if order else _WIDE,  # names need room between the rows
    }
    layout = framed(paper.numbers.shape, f"<b>{found.symbol}</b>  {step}", told, meta)
    layout |= {"margin": {"l": 48, "r": 12, "t": 96, "b": 12}, "uirevision": f"all heads of {layout['uirevision']}"}
    layout["xaxis"] |= {**middles(()), "side": "top"}
    layout["yaxis"] |= middles(())
    layout["height"] = round(130 + down * min(_HIGH / down, _pixels(across, rows, columns)) * high / rows)
    layout["shapes"] = [
        outline(panel.x, panel.y, panel.columns, panel.rows, 3)
        for panel in panels
        if chosen is not None and (panel.layer, panel.head) == (chosen.layer, chosen.head)
    ]
    if order:
        more = {"borderpad": 0, "font": {"size": 10 if across > 8 else 11}}
        layout["annotations"] = [named(f"L{panel.layer} H{panel.head}", panel, **more) for panel in panels]
        layout["margin"]["l"] = 12
    else:
        layout["xaxis"] |= middles([(column * wide, columns, f"H{column}") for column in range(across)])
        layout["yaxis"] |= middles([(at * high, rows, place(trace.layers[i], i)) for at, i in enumerate(there)])
        layout["margin"]["l"] = 16 + 7 * max(len(text) for text in layout["yaxis"]["ticktext"])
    return {"data": [*_cells(paper, painted), *beside], "layout": layout}


def _cells(paper: Paper, painted: dict[str, Any]) -> list[dict[str, Any]]:
    """The numbers as they are `painted`, and the ground of those that are hidden; the page says which cell of which head one is."""
    finite = np.isfinite(paper.numbers)
    numbers = np.where(finite, paper.numbers, np.nan).astype(paper.numbers.dtype)
    cells = {"type": "heatmap", "z": numbers, **painted, "hoverongaps": False, "hoverinfo": "none"}
    hidden = np.where(paper.hidden, np.float32(1), np.float32(np.nan))
    return [cells, {**GROUND, "z": hidden, "hoverinfo": "none"}] if paper.hidden.any() else [cells]


def seconds(trace: Trace, step: str, cells: int = MOSAIC_CELLS) -> float:
    """About how long `layers_json` takes on one thread, counted before; what is kept takes none."""
    block = _block(trace, step, cells)
    new = (one for one in trace.layers if one.has(step) and made_one_by_one(one, step) and not known(one, step, block))
    return sum(math.prod(layer.shape(step)) for layer in new) / CELLS_A_SECOND


def _block(trace: Trace, step: str, cells: int) -> int:
    """How many rows and columns one cell stands for, so that there are no more than so many `cells`."""
    numbers = 0
    for layer in trace.layers:
        if layer.has(step):
            heads = layer.n_heads if find_step(step).per_head else 1
            numbers += heads * math.prod(layer.shape(step)[-2:])
    return math.ceil(math.sqrt(max(1.0, numbers / cells)))


def _pixels(across: int, rows: int, columns: int) -> float:
    """The height of a panel, so that its cells are about squares."""
    least, most = _PANEL
    return min(most, max(least, _WIDE / across * min(2.0, max(0.5, rows / columns))))


def _alt(step: Step, facts: Sequence[str], numbers: Facts, colors: str) -> str:
    """A sentence that says what the map shows, for who cannot see it."""
    axes = (AXIS_TITLES.get(axis, axis) for axis in (step.row_axis, step.column_axis))
    said = ", ".join(filter(None, [numbers_said(numbers.ends), colors]))
    return f"Heatmaps of {step.name} ({step.symbol} = {', '.join(facts)}): each {' by '.join(axes)}, {said}."
