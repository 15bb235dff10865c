"""A row or a column of A, of B and of B − A over the pictures: A and B on one scale."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from attention.analysis.compare.comparison import Difference, HeadIndex
from attention.core.cell import Cell
from attention.core.names import QUERY
from attention.core.steps import Step
from attention.core.trace import Trace
from attention.pictures import scales
from attention.pictures.difference import difference_name
from attention.pictures.lab_maps import OverPicture, maps_over_picture
from attention.pictures.layout import Spec
from attention.pictures.over_picture import FITTED
from attention.pictures.side_by_side import aligned_cell_of_b, b_map_name
from attention.pictures.token_grid import NO_TOKEN


def compared_pictures(
    a: Trace,
    b: Trace,
    cell: Cell,
    other: HeadIndex,
    difference: Difference | None,
    colors: str,
    over: OverPicture,
) -> list[Spec]:
    """Returns the picture of A and, where the chosen cell has a partner, those of B and of B − A; empty where A has no patches there.

    Args:
        a: the trace of the chosen `cell`.
        b: the trace that it is compared with.
        cell: the cell whose row or column is drawn.
        other: the layer and head of B.
        difference: B − A; None if there is none.
        colors: the colour range of probabilities, as on the page Lab.
        over: how they are drawn.

    Raises:
        MissingError: A has no such step, layer or head.
    """
    figures = maps_over_picture(a, cell, colors, over)
    partner = aligned_cell_of_b(difference, cell, other) if difference else None
    states = [("A", cell.step)]
    if figures and difference is not None and partner is not None:
        change = _change(maps_over_picture(a, cell, colors, over)[0], difference, cell)
        of_b = maps_over_picture(b, partner, colors, over)
        _share_colors(difference.step, [*figures, *of_b])
        figures += [*of_b, change]
        states += [("B", b_map_name(cell.step))] * len(of_b) + [("B − A", difference_name(cell.step))]
    for figure, (state, name) in zip(figures, states, strict=bool(figures)):
        layout, meta = figure["layout"], figure["layout"]["meta"]
        layout["title"]["text"] = f"<b>{state}</b>  {cell.step} over the picture"
        meta["alt"], meta["step"] = f"{state}: {meta['alt']}", name
        meta["file"] = [f"{cell.step}-{state.replace(' − ', '-minus-')}", *meta["file"][1:]]
    return figures


def _share_colors(step: Step, figures: Sequence[Spec]) -> None:
    """Gives pictures one colour scale, up to the largest of their ends; a logarithmic one is the same already."""
    heats = [figure["data"][0] for figure in figures]
    low, high = min(heat["zmin"] for heat in heats), max(heat["zmax"] for heat in heats)
    for heat in heats:
        if "colorbar" in heat:
            heat.update(scales.color_keys(step, low, high, "stretched")[0])


def _change(figure: Spec, difference: Difference, cell: Cell) -> Spec:
    """Returns the picture of A with the numbers of B − A; a click chooses a cell of the map of B − A."""
    layout, heat = figure["layout"], figure["data"][0]
    meta, grid = layout["meta"], layout["meta"]["grid"]
    is_row = grid["reads"] == QUERY
    fixed, drawn = (difference.rows, difference.columns) if is_row else (difference.columns, difference.rows)
    own = fixed.group_index("a", cell.row if is_row else cell.column)
    matrix = difference.matrix.numpy()
    numbers = matrix[own] if is_row else matrix[:, own]
    places, is_token = grid["positions"], grid["positions"] != NO_TOKEN
    group_of = np.repeat(np.arange(len(drawn.groups)), [group.a[1] - group.a[0] for group in drawn.groups])
    groups = np.where(is_token, group_of[places], NO_TOKEN).astype(np.int32)
    z = np.where(is_token, numbers[groups], np.float32(np.nan))
    largest = float(np.nan_to_num(np.abs(z[grid["top"] :])).max())
    high = largest if largest > difference.tolerance else 1.0
    keys, _ = scales.color_keys(replace(difference.step, kind="signed"), -high, high, "fixed")
    hover = heat["hovertemplate"].replace(cell.step, difference_name(cell.step), 1)
    change = heat | keys | {"z": z, "colorscale": scales.DIFFERENCE, "meta": {"colors": FITTED}, "hovertemplate": hover}
    change.pop("showscale", None)
    subtitle = layout["title"]["subtitle"]
    subtitle["text"] = " · ".join(fact for fact in subtitle["text"].split(" · ") if " on the picture" not in fact)
    meta["alt"] = meta["alt"].replace(cell.step, difference_name(cell.step), 1)
    meta["grid"] = grid | {"positions": groups, "at": own}
    return {"data": [change], "layout": layout}
