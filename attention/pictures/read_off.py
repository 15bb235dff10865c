"""A reading of the weights as a map: several heads as one, or the lengths of what a query gets."""

from __future__ import annotations

from attention.formula.cell import Cell
from attention.formula.trace import Trace
from attention.numbers.readings import Reading
from attention.pictures.drawing import figure_of, hidden_cells
from attention.pictures.heatmap import marks, numbers_in_cells, placed
from attention.pictures.layout import Panel, Spec


def reading_json(trace: Trace, reading: Reading, cell: Cell, colors: str = "fixed") -> Spec:
    """The map of a reading of the cell's layer and, where each head has its own, of its head; the cell is outlined.

    What has no largest number, as a length has none, is stretched to the largest there is.

    Raises:
        AttentionError: the layer lacks what it reads.
        ConfigError: there are no such colours.
    """
    matrix = reading.matrix(trace, cell.layer, cell.head)
    rows, columns = matrix.shape
    covered = hidden_cells(trace, reading.step, cell.layer)
    own = "stretched" if reading.per_head and colors == "fixed" else colors
    figure = figure_of(
        trace, reading.step, cell.layer, matrix.numpy(), covered, [Panel(cell.head, 0, 0, rows, columns)], own,
        heat=numbers_in_cells(rows, columns), whole=matrix,
    )  # fmt: skip
    layout = figure["layout"]
    if "ground" in layout["meta"]:
        del layout["meta"]["ground"]  # the page makes no reading, whatever a hand turns
    row, column = cell.row, cell.column
    here = row < rows and column < columns
    layout["shapes"] = marks(rows, columns, row if here else None, column if here else None)
    return placed(figure, row if here else None, column if here else None)
