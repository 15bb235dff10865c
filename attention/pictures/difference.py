"""B − A as a map: about 0, the same colours for all layers, and hatches where a row or a column has no partner."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np

from attention.formula.cell import Cell
from attention.formula.layer import Layer
from attention.formula.trace import Trace
from attention.numbers import changes
from attention.numbers.compare import Difference, Place
from attention.numbers.limit import limit
from attention.pictures import scales
from attention.pictures.contract import Meta
from attention.pictures.drawing import GROUND, HIDDEN, place
from attention.pictures.hatches import NO_PARTNER, hatches
from attention.pictures.heatmap import marks, numbers_in_cells, placed
from attention.pictures.layout import Panel, Spec, axis_title, laid_out, short
from attention.printed import shown


def b_less_a(step: str) -> str:
    """What the map of B − A is called."""
    return f"{step}, B − A"


def difference_map(a: Trace, b: Trace, difference: Difference, cell: Cell, other: Place, fit: bool = False) -> Spec:
    """B − A as a map: 0 is white, cells that are hidden lie on their ground, and rows and columns without a partner are hatched."""
    step, at = difference.step, Place(cell.layer, cell.head)
    largest, of_all, _ = (difference.largest, False, at) if fit else limit(a, b, step.name, at, other)
    high = largest if largest > difference.rounding else 1.0
    matrix = difference.matrix.numpy()
    rows, columns = matrix.shape
    row, column = (
        alignment.place("a", one) for alignment, one in ((difference.rows, cell.row), (difference.columns, cell.column))
    )
    lone = [
        [i for i, one in enumerate(axis.groups) if not one.partners] for axis in (difference.rows, difference.columns)
    ]

    layers = a.layer(cell.layer), b.layer(other.layer)
    where = [
        f"{place(layer, one.layer)}{f' H{one.head}' if step.per_head else ''}"
        for layer, one in zip(layers, (at, other), strict=True)
    ]
    facts = [" → ".join(dict.fromkeys(where)), f"{rows} × {columns}"]
    facts += [difference.said] if difference.said else []  # what changes with every turn would have all drawn anew
    facts += [f"{_some(lone[0], 'row')} and {_some(lone[1], 'column')} without a partner"] if any(lone) else []
    facts += [] if of_all or fit or len(a.layers) == 1 else ["colours of this layer"]
    alt = (
        f"Heatmap of {step.name}, B − A, {', '.join(facts)}, largest {shown(difference.largest)}: {axis_title(step.row_axis)} by {axis_title(step.column_axis)}, "
        f"colours from {shown(-high)} to {shown(high)}, 0 in white."
    )
    panel = Panel(cell.head, 0, 0, rows, columns)
    meta: Meta = {
        "alt": alt,
        "step": b_less_a(step.name),
        "layer": cell.layer,
        "panels": [asdict(panel) | {"layer": cell.layer}],
        "axes": [short(step.row_axis), short(step.column_axis)],
        "file": [f"{step.name}-B-minus-A", f"L{cell.layer}-H{cell.head}"],
    }
    heading = f"<b>B − A</b>  {step.name}"
    named = _Named(difference, *layers)
    layout = laid_out(named.layer, (step.row_axis, step.column_axis), [panel], heading, facts, meta, (rows, columns))
    named.write(layout)
    layout["shapes"] = [*hatches(lone[0], lone[1], rows, columns), *marks(rows, columns, row, column)]
    return placed({"data": _data(difference, matrix, lone, high), "layout": layout}, row, column)


def _some(those: list[int], what: str) -> str:
    return f"{len(those)} {what}{'s' * (len(those) != 1)}"


def _data(difference: Difference, matrix: Any, lone: list[list[int]], high: float) -> list[dict[str, Any]]:
    step = difference.step
    hover = f"{step.name}, B − A<br>{short(step.row_axis)} %{{y}}<br>{short(step.column_axis)} %{{x}}<br>"
    painted, _ = scales.painted(replace(step, kind="signed"), -high, high, "fixed")
    heat = {
        "type": "heatmap",
        "z": matrix,
        **painted,
        "colorscale": scales.DIFFERENCE,
        "hovertemplate": hover + "<b>%{z:.9g}</b><extra></extra>",
        "hoverongaps": False,
        **numbers_in_cells(*matrix.shape),
    }
    data = [heat]
    gaps = np.isnan(matrix)
    if gaps.any():
        apart = np.zeros_like(gaps)
        apart[lone[0], :] = apart[:, lone[1]] = True
        covered = np.zeros_like(gaps) if difference.hidden is None else difference.hidden.numpy() & ~apart
        # What several pieces are in the other state has no number where these cannot be put together.
        for said, cells, color in (
            ("hidden by the mask", covered, HIDDEN),
            ("no partner", gaps & ~covered, NO_PARTNER),
        ):
            ground = {
                **GROUND,
                "colorscale": [[0, color], [1, color]],
                "hovertemplate": f"{hover}<b>{said}</b><extra></extra>",
            }
            data += [{**ground, "z": np.where(cells, np.float32(1), np.float32(np.nan))}] if cells.any() else []
    return data


class _Named:
    """What the places of both states are called on an axis: by a layer that has the tokens of both, and with the places of each."""

    def __init__(self, difference: Difference, a: Layer, b: Layer) -> None:
        step = difference.step
        self._texts: dict[str, dict[str, str]] = {}
        tokens: dict[str, tuple[str, ...]] = {}
        for side, axis, alignment in (
            ("y", step.row_axis, difference.rows),
            ("x", step.column_axis, difference.columns),
        ):
            ours, theirs = a.labels_of(axis), b.labels_of(axis)
            if ours is None or theirs is None:
                continue
            tokens[axis] = changes.names(alignment, ours, theirs)
            if not alignment.plain:
                said = changes.places(alignment, ours, theirs)
                self._texts[f"{side}axis"] = {str(i): text for i, text in enumerate(said)}
        queries, keys = (tokens.get(axis, ()) for axis in ("query_pos", "key_pos"))
        self.layer = Layer(tokens=queries or keys, key_tokens=keys or queries)

    def write(self, layout: dict[str, Any]) -> None:
        """Says of each place where it stands in A and in B, where that is not the same."""
        for axis, names in self._texts.items():
            layout[axis]["labelalias"] = names
