"""Two states side by side: A and B on one scale, B − A beside them, and which cell a click means."""

from __future__ import annotations

from dataclasses import replace

from attention.errors import AttentionError
from attention.formula.cell import Cell
from attention.formula.trace import Trace
from attention.numbers.compare import Difference, Place, compare
from attention.pictures.difference import difference_map
from attention.pictures.heatmap import heatmap_json
from attention.pictures.layout import Spec


def of_b(step: str) -> str:
    """What the map of B is called, which must not be taken for that of A."""
    return f"{step} of B"


def compared_maps(
    a: Trace, b: Trace, cell: Cell, other: Place, colors: str = "fixed", fit: bool = False
) -> tuple[list[Spec], Difference | None, str]:
    """The maps of A, of B and of B − A, the difference, and instead of the last two a sentence where there is none.

    Args:
        a: where the chosen `cell` is.
        b: the other state, of which a layer and a head are compared with those of the cell.
        cell: whose step is drawn; its row and its column are marked.
        other: the layer and head of B.
        colors: of probabilities, as for `heatmap_json`.
        fit: whether B − A has colours up to its own largest number; otherwise up to that of all layers.

    Raises:
        MissingError: A has no such step, layer or head.
    """
    step, layers = cell.step, (a.layer(cell.layer), b.layer(other.layer))
    if not layers[1].has(step):
        there = ", ".join(one.name for one in layers[1].steps)
        return (
            only_a(a, cell, colors),
            None,
            f"B has no {step}, so there is no difference; it has {there}: choose one of these.",
        )
    spans = [span for layer in layers if (span := layer.ends(step))]
    span = (min(low for low, _ in spans), max(high for _, high in spans)) if spans else None
    first = _called(heatmap_json(a, step, cell.layer, cell.head, cell, colors, span), "A", step)
    try:
        difference = compare(a, b, step, Place(cell.layer, cell.head), other)
    except AttentionError as error:
        second = heatmap_json(b, step, other.layer, other.head, None, colors, span)
        return [first, _called(second, "B", of_b(step))], None, str(error)
    second = heatmap_json(b, step, other.layer, other.head, cell_of_b(difference, cell, other), colors, span)
    maps = [first, _called(second, "B", of_b(step))]
    return _level([*maps, difference_map(a, b, difference, cell, other, fit)]), difference, ""


def only_a(a: Trace, cell: Cell, colors: str = "fixed") -> list[Spec]:
    """The map of A alone, where there is no other."""
    return [_called(heatmap_json(a, cell.step, cell.layer, cell.head, cell, colors), "A", cell.step)]


def cell_of_b(difference: Difference, cell: Cell, other: Place) -> Cell | None:
    """The cell of B that is the same as one of A; None where it has no partner. Of several pieces it is the first."""
    row = difference.rows.groups[difference.rows.place("a", cell.row)]
    column = difference.columns.groups[difference.columns.place("a", cell.column)]
    if not (row.partners and column.partners):
        return None
    return Cell(other.layer, cell.step, other.head, row.b[0], column.b[0])


def clicked(difference: Difference | None, cell: Cell, name: str, row: int, column: int) -> Cell | None:
    """The cell of A that a click on a map means, by its name; None where A has none there."""
    if difference is None or name == cell.step:
        return replace(cell, row=row, column=column) if name == cell.step else None
    if name == of_b(cell.step):
        row, column = difference.rows.place("b", row), difference.columns.place("b", column)
    groups = difference.rows.groups[row], difference.columns.groups[column]
    if any(one.a[0] == one.a[1] for one in groups):
        return None
    return replace(cell, row=groups[0].a[0], column=groups[1].a[0])


def _level(maps: list[Spec]) -> list[Spec]:
    """Maps with the same room around them, so that their rows lie level."""
    for name, sides in (("margin", ("l", "t", "b")), ("title", ("standoff",))):
        rooms = [one["layout"]["margin"] if name == "margin" else one["layout"]["xaxis"]["title"] for one in maps]
        for room in rooms:
            room.update({side: max(one[side] for one in rooms) for side in sides})
    return maps


def _called(spec: Spec, state: str, name: str) -> Spec:
    """A map with the state it belongs to in its heading. It does without the step's symbol: that of the weights is A."""
    layout, meta = spec["layout"], spec["layout"]["meta"]
    step = meta["step"]
    layout["title"]["text"] = f"<b>{state}</b>  {step}"
    meta["alt"] = meta["alt"].replace(f"Heatmap of {step}", f"Heatmap of {step} in {state}", 1)
    meta["step"], meta["file"] = name, [f"{step}-{state}", *meta["file"][1:]]
    return spec
