"""Two states side by side: A and B on one scale, B − A beside them, and the cell of a click."""

from __future__ import annotations

from dataclasses import replace

from attention.analysis.compare.comparison import Difference, HeadIndex, compare
from attention.core.cell import Cell
from attention.core.trace import Trace
from attention.errors import AttentionError
from attention.pictures.difference import difference_map
from attention.pictures.heatmap import heatmap_json
from attention.pictures.layout import Spec


def b_map_name(step: str) -> str:
    """Returns the name of the map of B, distinct from that of A."""
    return f"{step} of B"


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
        return (
            map_of_a(a, cell, colors),
            None,
            f"B has no {step}, so there is no difference; it has {available}: choose one of these.",
        )
    spans = [span for layer in layers if (span := layer.finite_range(step))]
    span = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
    first = _titled(heatmap_json(a, step, cell.layer, cell.head, cell, colors, span), "A", step)
    try:
        difference = compare(a, b, step, HeadIndex(cell.layer, cell.head), other)
    except AttentionError as error:
        second = heatmap_json(b, step, other.layer, other.head, None, colors, span)
        return [first, _titled(second, "B", b_map_name(step))], None, str(error)
    second = heatmap_json(b, step, other.layer, other.head, aligned_cell_of_b(difference, cell, other), colors, span)
    maps = [first, _titled(second, "B", b_map_name(step))]
    return _align_margins([*maps, difference_map(a, b, difference, cell, other, fit)]), difference, ""


def map_of_a(a: Trace, cell: Cell, colors: str = "fixed") -> list[Spec]:
    """Returns only the map of A, where there is no other state."""
    return [_titled(heatmap_json(a, cell.step, cell.layer, cell.head, cell, colors), "A", cell.step)]


def aligned_cell_of_b(difference: Difference, cell: Cell, other: HeadIndex) -> Cell | None:
    """Returns the cell of B that is aligned with a cell of A, the first of several pieces; None where it has no partner."""
    row = difference.rows.groups[difference.rows.group_index("a", cell.row)]
    column = difference.columns.groups[difference.columns.group_index("a", cell.column)]
    if not (row.has_partners and column.has_partners):
        return None
    return Cell(other.layer, cell.step, other.head, row.b[0], column.b[0])


def cell_of_click(difference: Difference | None, cell: Cell, name: str, row: int, column: int) -> Cell | None:
    """Returns the cell of A at a click on the map called `name`; None where A has no such cell."""
    if difference is None or name == cell.step:
        return replace(cell, row=row, column=column) if name == cell.step else None
    if name == b_map_name(cell.step):
        row, column = difference.rows.group_index("b", row), difference.columns.group_index("b", column)
    groups = difference.rows.groups[row], difference.columns.groups[column]
    if any(group.a[0] == group.a[1] for group in groups):
        return None
    return replace(cell, row=groups[0].a[0], column=groups[1].a[0])


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
