"""Maps derived from the weights: several heads aggregated, or the norms of what each query receives."""

from __future__ import annotations

from attention.explanation.derived import DerivedMap
from attention.formula.names import Cell
from attention.pictures.drawing import build_map, hidden_cells
from attention.pictures.heatmap import cell_outlines, numbers_in_cells, with_chosen_cell
from attention.pictures.layout import Panel, Spec
from attention.trace.trace import Trace

_SMALLEST_PRINTED = 0.05  # of a map's largest number; smaller ones would all be printed as 0.00


def derived_map_json(trace: Trace, reading: DerivedMap, cell: Cell, colors: str = "fixed") -> Spec:
    """Returns the map of a derived quantity for the cell's layer (and its head, where each head has its own), with the cell outlined.

    An unbounded quantity, such as a norm, uses a colour range up to its largest value.

    Raises:
        AttentionError: the layer lacks a step that it is derived from.
        ConfigError: `colors` is not one of `COLORS`.
    """
    matrix = reading.matrix(trace, cell.layer, cell.head)
    rows, columns = matrix.shape
    hidden = hidden_cells(trace, reading.step, cell.layer)
    map_colors = "stretched" if reading.per_head and colors == "fixed" else colors
    is_readable = float(matrix.abs().max()) >= _SMALLEST_PRINTED
    figure = build_map(
        trace, reading.step, cell.layer, matrix.numpy(), hidden, [Panel(cell.head, 0, 0, rows, columns)], map_colors,
        heat=numbers_in_cells(rows, columns) if is_readable else None, tensor=matrix,
    )  # fmt: skip
    layout = figure["layout"]
    if "hidden_trace" in layout["meta"]:
        del layout["meta"]["hidden_trace"]  # the page does not recompute derived maps
    row, column = cell.row, cell.column
    in_range = row < rows and column < columns
    layout["shapes"] = cell_outlines(rows, columns, row if in_range else None, column if in_range else None)
    return with_chosen_cell(figure, row if in_range else None, column if in_range else None)
