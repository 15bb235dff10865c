"""B − A as a map: symmetric around 0, one colour range for all layers, hatches for rows and columns without a partner."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from attention.analysis.compare import summary
from attention.analysis.compare.color_range import color_limit
from attention.analysis.compare.comparison import Difference, HeadIndex
from attention.core.cell import Cell
from attention.core.layer import Layer
from attention.core.trace import Trace
from attention.pictures import scales
from attention.pictures.drawing import HIDDEN_COLOR, HIDDEN_TRACE, layer_label
from attention.pictures.hatches import UNMATCHED_COLOR, hatch_lines
from attention.pictures.heatmap import cell_outlines, numbers_in_cells, with_chosen_cell
from attention.pictures.layout import Panel, Spec, axis_title, map_layout, short_axis_name
from attention.pictures.message_contract import Meta
from attention.printed import format_number


def difference_name(step: str) -> str:
    """Returns the name of the map of B − A."""
    return f"{step}, B − A"


def difference_map(a: Trace, b: Trace, difference: Difference, cell: Cell, other: HeadIndex, fit: bool = False) -> Spec:
    """Returns B − A as a map: 0 is white, hidden cells have a neutral background, and rows and columns without a partner are hatched."""
    step, place_of_a = difference.step, HeadIndex(cell.layer, cell.head)
    largest, shared_range, _ = (
        (difference.largest, False, place_of_a) if fit else color_limit(a, b, step.name, place_of_a, other)
    )
    high = largest if largest > difference.tolerance else 1.0
    matrix = difference.matrix.numpy()
    rows, columns = matrix.shape
    row, column = (
        alignment.group_index("a", index)
        for alignment, index in ((difference.rows, cell.row), (difference.columns, cell.column))
    )
    unmatched = [
        [i for i, group in enumerate(axis.groups) if not group.has_partners]
        for axis in (difference.rows, difference.columns)
    ]

    layers = a.layer(cell.layer), b.layer(other.layer)
    where = [
        f"{layer_label(layer, place.layer)}{f' H{place.head}' if step.per_head else ''}"
        for layer, place in zip(layers, (place_of_a, other), strict=True)
    ]
    facts = [" → ".join(dict.fromkeys(where)), f"{rows} × {columns}"]
    # Nothing that changes while a knob moves, or the whole map would be drawn again.
    facts += [difference.identity_words] if difference.identity_words else []
    if any(unmatched):
        facts.append(f"{_count(unmatched[0], 'row')} and {_count(unmatched[1], 'column')} without a partner")
    facts += [] if shared_range or fit or len(a.layers) == 1 else ["colours of this layer"]
    alt = (
        f"Heatmap of {step.name}, B − A, {', '.join(facts)}, largest {format_number(difference.largest)}: {axis_title(step.row_axis)} by {axis_title(step.column_axis)}, "
        f"colours from {format_number(-high)} to {format_number(high)}, 0 in white."
    )
    panel = Panel(cell.head, 0, 0, rows, columns)
    meta: Meta = {
        "alt": alt,
        "step": difference_name(step.name),
        "layer": cell.layer,
        "panels": [asdict(panel) | {"layer": cell.layer}],
        "axes": [short_axis_name(step.row_axis), short_axis_name(step.column_axis)],
        "file": [f"{step.name}-B-minus-A", f"L{cell.layer}-H{cell.head}"],
    }
    heading = f"<b>B − A</b>  {step.name}"
    labels = _AxisLabels(difference, *layers)
    layout = map_layout(labels.layer, (step.row_axis, step.column_axis), [panel], heading, facts, meta, (rows, columns))
    labels.write(layout)
    layout["shapes"] = [
        *hatch_lines(unmatched[0], unmatched[1], rows, columns),
        *cell_outlines(rows, columns, row, column),
    ]
    return with_chosen_cell({"data": _data(difference, matrix, unmatched, high), "layout": layout}, row, column)


def _count(indices: list[int], noun: str) -> str:
    return f"{len(indices)} {noun}{'s' * (len(indices) != 1)}"


def _data(difference: Difference, matrix: Any, unmatched: list[list[int]], high: float) -> list[dict[str, Any]]:
    step = difference.step
    hover = f"{step.name}, B − A<br>{short_axis_name(step.row_axis)} %{{y}}<br>{short_axis_name(step.column_axis)} %{{x}}<br>"
    color_keys, _ = scales.color_keys(replace(step, kind="signed"), -high, high, "fixed")
    heat = {
        "type": "heatmap",
        "z": matrix,
        **color_keys,
        "colorscale": scales.DIFFERENCE,
        "hovertemplate": hover + "<b>%{z:.9g}</b><extra></extra>",
        "hoverongaps": False,
        **numbers_in_cells(*matrix.shape),
    }
    data = [heat]
    gaps = np.isnan(matrix)
    if gaps.any():
        unmatched_cells = np.zeros_like(gaps)
        unmatched_cells[unmatched[0], :] = unmatched_cells[:, unmatched[1]] = True
        hidden = np.zeros_like(gaps) if difference.hidden is None else difference.hidden.numpy() & ~unmatched_cells
        # A token that is several pieces in the other state has no number where these cannot be merged.
        for reason, cells, color in (
            ("hidden by the mask", hidden, HIDDEN_COLOR),
            ("no partner", gaps & ~hidden, UNMATCHED_COLOR),
        ):
            background = {
                **HIDDEN_TRACE,
                "colorscale": [[0, color], [1, color]],
                "hovertemplate": f"{hover}<b>{reason}</b><extra></extra>",
            }
            data += [{**background, "z": np.where(cells, np.float32(1), np.float32(np.nan))}] if cells.any() else []
    return data


class _AxisLabels:
    """The labels of an axis for both states: a layer with the tokens of both, and texts with the positions of each."""

    def __init__(self, difference: Difference, a: Layer, b: Layer) -> None:
        step = difference.step
        self._texts: dict[str, dict[str, str]] = {}
        tokens: dict[str, tuple[str, ...]] = {}
        for side, axis, alignment in (
            ("y", step.row_axis, difference.rows),
            ("x", step.column_axis, difference.columns),
        ):
            a_labels, b_labels = a.labels_of(axis), b.labels_of(axis)
            if a_labels is None or b_labels is None:
                continue
            tokens[axis] = summary.position_names(alignment, a_labels, b_labels)
            if not alignment.is_identity:
                texts = summary.position_labels(alignment, a_labels, b_labels)
                self._texts[f"{side}axis"] = {str(i): text for i, text in enumerate(texts)}
        queries, keys = (tokens.get(axis, ()) for axis in ("query_pos", "key_pos"))
        self.layer = Layer(tokens=queries or keys, key_tokens=keys or queries)

    def write(self, layout: dict[str, Any]) -> None:
        """Writes the positions in A and in B into the labels of each axis where they differ."""
        for axis, names in self._texts.items():
            layout[axis]["labelalias"] = names
