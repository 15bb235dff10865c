"""Two states side by side: A and B on one scale, and B − A beside them, as maps or over the pictures; and the cell of a click.

The colours of B − A are symmetric around 0, with one range for all layers; rows and columns without a partner are hatched.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

import numpy as np

from attention.base.errors import AttentionError
from attention.base.printed import format_number
from attention.comparison.comparison import Difference, HeadIndex, color_limit, compare
from attention.explanation.alignment import consecutive_ranges, position_labels, position_names
from attention.formula.names import QUERY, Cell
from attention.formula.steps import Step
from attention.pictures import scales
from attention.pictures.drawing import Drawn, layer_label, numbers_in_cells
from attention.pictures.heatmap import cell_outlines, drawn_map_json, heatmap_json, with_chosen_cell
from attention.pictures.layout import axis_title, map_layout, short_axis_name
from attention.pictures.look import LIGHT
from attention.pictures.marks import HIDDEN_COLOR, Mark, Panel, Spec, cells, draw, ground, rule
from attention.pictures.message_contract import NO_TOKEN, Meta
from attention.pictures.steps_view import OverPicture, maps_over_picture
from attention.trace.layer import Layer
from attention.trace.trace import Trace

_UNMATCHED_COLOR, _HATCH_COLOR = (
    LIGHT["line"],
    LIGHT["edge"],
)  # the background of unmatched cells, and the lines over it
_MAX_HATCH_LINES = 240  # per map: more would be slow to draw
_LINES_PER_MAP = 28  # of a hatch that covers the whole map


def comparison_maps(
    a: Trace, b: Trace, cell: Cell, other: HeadIndex, colors: str = "fixed", fit: bool = False
) -> tuple[list[Spec], Difference | None, str]:
    """Returns the maps of A, B and B − A, the difference, and a message where there is no difference.

    Args:
        a: the trace of the chosen `cell`.
        b: the trace that it is compared with.
        cell: the cell whose step is drawn; its row and its column are outlined.
        other: the layer and head of B.
        colors: the colour range of probabilities, as for `heatmap_json`.
        fit: whether the colours of B − A reach up to its own largest number instead of that of all layers.

    Raises:
        MissingError: A has no such step, layer or head.
    """
    step, layers = cell.step, (a.layer(cell.layer), b.layer(other.layer))
    if not layers[1].has(step):
        available = ", ".join(step.name for step in layers[1].steps)
        reason = f"B has no {step}, so there is no difference; it has {available}: choose one of these."
        return map_of_a(a, cell, colors), None, reason
    heads = cell.head, other.head
    span = scales.joined_span([scales.drawn_span(layer, step, head) for layer, head in zip(layers, heads, strict=True)])
    first = _titled(drawn_map_json(Drawn.of_head(a, step, cell.layer, cell.head, colors, span), cell), "A", step)
    of_b = Drawn.of_head(b, step, other.layer, other.head, colors, span)
    try:
        difference = compare(a, b, step, HeadIndex(cell.layer, cell.head), other)
    except AttentionError as error:
        return [first, _titled(drawn_map_json(of_b), "B", _b_map_name(step))], None, str(error)
    second = drawn_map_json(of_b, aligned_cell_of_b(difference, cell))
    maps = [first, _titled(second, "B", _b_map_name(step))]
    return _align_margins([*maps, _difference_map(difference, cell, fit)]), difference, ""


def difference_maps(difference: Difference) -> list[Spec]:
    """Returns the maps of A, B and B − A of a difference, at its largest change."""
    a, b, at, other = difference.traces
    row, column = 0, 0
    for change in difference.largest_changes(1):
        rows, columns = difference.rows.groups[change.row].a, difference.columns.groups[change.column].a
        if rows and columns:
            row, column = rows[0], columns[0]
    return comparison_maps(a, b, Cell(at.layer, difference.step.name, at.head, row, column), other)[0]


def map_of_a(a: Trace, cell: Cell, colors: str = "fixed") -> list[Spec]:
    """Returns only the map of A, where there is no other state."""
    return [_titled(heatmap_json(a, cell.step, cell.layer, cell.head, cell, colors), "A", cell.step)]


def cell_of_click(difference: Difference | None, cell: Cell, name: str, row: int, column: int) -> Cell | None:
    """Returns the cell of A at a click on the map called `name`; None where A has no such cell."""
    if difference is None or name == cell.step:
        return replace(cell, row=row, column=column) if name == cell.step else None
    if name == _b_map_name(cell.step):
        row, column = difference.rows.group_index("b", row), difference.columns.group_index("b", column)
    groups = difference.rows.groups[row], difference.columns.groups[column]
    if any(group.a[0] == group.a[1] for group in groups):
        return None
    return replace(cell, row=groups[0].a[0], column=groups[1].a[0])


def aligned_cell_of_b(difference: Difference, cell: Cell) -> Cell | None:
    """Returns the cell of B that is aligned with a cell of A, the first of several pieces; None where it has no partner."""
    row = difference.rows.groups[difference.rows.group_index("a", cell.row)]
    column = difference.columns.groups[difference.columns.group_index("a", cell.column)]
    if not (row.has_partners and column.has_partners):
        return None
    other = difference.traces.other
    return Cell(other.layer, cell.step, other.head, row.b[0], column.b[0])


def compared_pictures(
    a: Trace, b: Trace, cell: Cell, difference: Difference | None, colors: str, over: OverPicture
) -> list[Spec]:
    """Returns the picture of A and, where the chosen cell has a partner, those of B and of B − A; empty where A has no patches there.

    Args:
        a: the trace of the chosen `cell`.
        b: the trace that it is compared with.
        cell: the cell whose row or column is drawn.
        difference: B − A; None if there is none.
        colors: the colour range of probabilities, as on Explore.
        over: how they are drawn.

    Raises:
        MissingError: A has no such step, layer or head.
    """
    figures = maps_over_picture(a, cell, colors, over)
    partner = aligned_cell_of_b(difference, cell) if difference else None
    states = [("A", cell.step)]
    if figures and difference is not None and partner is not None:
        change = _changed_picture(maps_over_picture(a, cell, colors, over)[0], difference, cell)
        of_b = maps_over_picture(b, partner, colors, over)
        _share_colors(difference.step, [*figures, *of_b])
        figures += [*of_b, change]
        states += [("B", _b_map_name(cell.step))] * len(of_b) + [("B − A", _difference_name(cell.step))]
    for figure, (state, name) in zip(figures, states, strict=bool(figures)):
        layout, meta = figure["layout"], figure["layout"]["meta"]
        noun = layout["title"]["text"].rpartition(" ")[2]
        layout["title"]["text"] = f"<b>{state}</b>  {cell.step} over the {noun}"
        meta["alt"], meta["step"] = f"{state}: {meta['alt']}", name
        meta["file"] = [f"{cell.step}-{state.replace(' − ', '-minus-')}", *meta["file"][1:]]
    return figures


def _difference_map(difference: Difference, cell: Cell, fit: bool) -> Spec:
    """Returns B − A as a map: hidden cells have a neutral background, and rows and columns without a partner are hatched."""
    step, (a, b, at, other) = difference.step, difference.traces
    largest, shared_range, _ = (difference.largest, False, at) if fit else color_limit(a, b, step.name, at, other)
    high = largest if largest > difference.tolerance else 1.0
    matrix = difference.matrix.numpy()
    rows, columns = matrix.shape
    row, column = difference.rows.group_index("a", cell.row), difference.columns.group_index("a", cell.column)
    axes = difference.rows, difference.columns
    unmatched = [[i for i, group in enumerate(axis.groups) if not group.has_partners] for axis in axes]
    layers = a.layer(cell.layer), b.layer(other.layer)
    where = [
        f"{layer_label(layer, place.layer)}{f' H{place.head}' if step.per_head else ''}"
        for layer, place in zip(layers, (at, other), strict=True)
    ]
    facts = [" → ".join(dict.fromkeys(where)), f"{rows} × {columns}"]
    # Nothing that changes while a knob moves, or the whole map would be drawn again.
    facts += [difference.identity_words] if difference.identity_words else []
    if any(unmatched):
        facts.append(f"{_count(unmatched[0], 'row')} and {_count(unmatched[1], 'column')} without a partner")
    facts += [] if shared_range or fit or len(a.layers) == 1 else ["colours of this layer"]
    alt = (
        f"Heatmap of {step.name}, B − A, {', '.join(facts)}, largest {format_number(difference.largest)}: {axis_title(step.row_axis)} by {axis_title(step.column_axis)}, "
        f"colours from {format_number(-high)} to {format_number(high)}."
    )
    panel = Panel(cell.head, 0, 0, rows, columns)
    meta: Meta = {
        "alt": alt,
        "step": _difference_name(step.name),
        "layer": cell.layer,
        "panels": [asdict(panel) | {"layer": cell.layer}],
        "axes": [short_axis_name(step.row_axis), short_axis_name(step.column_axis)],
        "file": [f"{step.name}-B-minus-A", f"L{cell.layer}-H{cell.head}"],
    }
    heading = f"<b>B − A</b>  {step.name}"
    layer, labels = _axis_labels(difference)
    layout = map_layout(layer, (step.row_axis, step.column_axis), heading, facts, meta, (rows, columns))
    for axis, names in labels.items():
        layout[axis]["labelalias"] = names
    marks = [*_hatch(unmatched[0], unmatched[1], (rows, columns)), *cell_outlines(rows, columns, row, column)]
    return with_chosen_cell(draw(layout, *_difference_cells(difference, matrix, unmatched, high), *marks), row, column)


def _difference_cells(difference: Difference, matrix: Any, unmatched: list[list[int]], high: float) -> list[Mark]:
    step = difference.step
    hover = f"{step.name}, B − A<br>{short_axis_name(step.row_axis)} %{{y}}<br>{short_axis_name(step.column_axis)} %{{x}}<br>"
    color_keys, _ = scales.color_keys(replace(step, kind="signed"), -high, high, "fixed")
    drawn = [cells(matrix, f"{hover}<b>%{{z:.9g}}</b>", color_keys, **numbers_in_cells(matrix.shape))]
    gaps = np.isnan(matrix)
    if gaps.any():
        unmatched_cells = np.zeros_like(gaps)
        unmatched_cells[unmatched[0], :] = unmatched_cells[:, unmatched[1]] = True
        hidden = np.zeros_like(gaps) if difference.hidden is None else difference.hidden.numpy() & ~unmatched_cells
        # A token that is several pieces in the other state has no number where these cannot be merged.
        reasons = ("hidden by the mask", hidden, HIDDEN_COLOR), ("no partner", gaps & ~hidden, _UNMATCHED_COLOR)
        drawn += [ground(where, f"{hover}<b>{reason}</b>", color) for reason, where, color in reasons if where.any()]
    return drawn


def _count(indices: list[int], noun: str) -> str:
    return f"{len(indices)} {noun}{'s' * (len(indices) != 1)}"


def _axis_labels(difference: Difference) -> tuple[Layer, dict[str, dict[str, str]]]:
    """A layer with the tokens of both states; and for each axis where these differ, its labels with the positions in A and in B."""
    tokens: dict[str, tuple[str, ...]] = {}
    labels: dict[str, dict[str, str]] = {}
    for side, axis in zip("yx", difference.axes, strict=True):
        if axis.a is None or axis.b is None:
            continue
        tokens[axis.name] = position_names(axis.alignment, axis.a, axis.b)
        if not axis.alignment.is_identity:
            labels[f"{side}axis"] = {
                str(i): text for i, text in enumerate(position_labels(axis.alignment, axis.a, axis.b))
            }
    queries, keys = (tokens.get(axis, ()) for axis in ("query_pos", "key_pos"))
    return Layer(tokens=queries or keys, key_tokens=keys or queries), labels


def _hatch(unmatched_rows: list[int], unmatched_columns: list[int], shape: tuple[int, int]) -> list[Mark]:
    """Returns the lines of hatches over the unmatched rows and columns of a map [rows columns]; where two hatches cross, their lines coincide."""
    rows, columns = shape
    bands = [(-0.5, columns - 0.5, low - 0.5, high - 0.5) for low, high in consecutive_ranges(unmatched_rows)]
    bands += [(low - 0.5, high - 0.5, -0.5, rows - 0.5) for low, high in consecutive_ranges(unmatched_columns)]
    if not bands:
        return []
    spacing = max(
        (rows + columns) / 2 / _LINES_PER_MAP, sum(x1 - x0 + y1 - y0 for x0, x1, y0, y1 in bands) / _MAX_HATCH_LINES
    )
    return [line for band in bands for line in _lines_in_box(*band, spacing)][:_MAX_HATCH_LINES]


def _lines_in_box(x0: float, x1: float, y0: float, y1: float, apart: float) -> Iterator[Mark]:
    """The lines x + y = a multiple of `apart`, as much of each as lies in a box."""
    first, last = int(np.ceil((x0 + y0) / apart)), int(np.floor((x1 + y1) / apart))
    for total in (number * apart for number in range(first, last + 1)):
        left, right = max(x0, total - y1), min(x1, total - y0)
        if left < right:
            yield rule((left, right), (total - left, total - right), _HATCH_COLOR)


def _align_margins(maps: list[Spec]) -> list[Spec]:
    """Returns maps with equal margins, so that their rows are level."""
    for part, sides in (("margin", ("l", "t", "b")), ("title", ("standoff",))):
        margins = [spec["layout"]["margin"] if part == "margin" else spec["layout"]["xaxis"]["title"] for spec in maps]
        for margin in margins:
            margin.update({side: max(spec[side] for spec in margins) for side in sides})
    return maps


def _titled(spec: Spec, state: str, name: str) -> Spec:
    """Returns a map with its state in the title, without the step's symbol, because that of the weights is A."""
    layout, meta = spec["layout"], spec["layout"]["meta"]
    step = meta["step"]
    layout["title"]["text"] = f"<b>{state}</b>  {step}"
    meta["alt"] = meta["alt"].replace(f"Heatmap of {step}", f"Heatmap of {step} in {state}", 1)
    meta["step"], meta["file"] = name, [f"{step}-{state}", *meta["file"][1:]]
    return spec


def _share_colors(step: Step, figures: Sequence[Spec]) -> None:
    """Gives pictures one colour scale, up to the largest of their ends; a logarithmic one is the same already."""
    heats = [figure["data"][0] for figure in figures]
    low, high = min(heat["zmin"] for heat in heats), max(heat["zmax"] for heat in heats)
    for heat in heats:
        if "colorbar" in heat:
            heat.update(scales.color_keys(step, low, high, "stretched")[0])


def _changed_picture(figure: Spec, difference: Difference, cell: Cell) -> Spec:
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
    hover = heat["hovertemplate"].replace(cell.step, _difference_name(cell.step), 1)
    own_keys = {"z": z, "colorscale": scales.SIGNED, "meta": {"colors": scales.FITTED}, "hovertemplate": hover}
    change = heat | keys | own_keys
    change.pop("showscale", None)
    subtitle = layout["title"]["subtitle"]
    subtitle["text"] = " · ".join(fact for fact in subtitle["text"].split(" · ") if " on the " not in fact)
    meta["alt"] = meta["alt"].replace(cell.step, _difference_name(cell.step), 1)
    meta["grid"] = grid | {"positions": groups, "at": own}
    return {"data": [change], "layout": layout}


def _b_map_name(step: str) -> str:
    return f"{step} of B"


def _difference_name(step: str) -> str:
    return f"{step}, B − A"
