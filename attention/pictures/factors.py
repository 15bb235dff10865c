"""The chosen step beside its factors: factors on the left, the result on the right, with the parts of the chosen cell outlined."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.core.cell import Cell
from attention.core.layer import Layer
from attention.core.names import HEAD_OUTPUT, WEIGHTS
from attention.core.positions import paired_column
from attention.core.steps import MAP_AXES, Factor, Step, declared, find_step, is_step
from attention.core.trace import Trace
from attention.pictures.drawing import build_map
from attention.pictures.heatmap import cell_outlines, heatmap_json, mask_map_json, numbers_in_cells, with_chosen_cell
from attention.pictures.layout import Panel, Spec

if TYPE_CHECKING:
    from torch import Tensor


def factor_maps(trace: Trace, cell: Cell, colors: str = "fixed") -> list[Spec]:
    """Returns the maps of the factors of the chosen cell's step, in the order of the formula, and last that of the step itself.

    In each factor, the row, column or cells that produce the chosen number are outlined.

    Raises:
        MissingError: the trace has no such layer, step or head.
    """
    layer = trace.layer(cell.layer)
    step = find_step(cell.step)
    maps = [factor_map(trace, factor, name, cell, colors) for factor, name in layer.factors(step)]
    result = heatmap_json(trace, cell.step, cell.layer, cell.head, cell, colors)
    if maps:
        title = result["layout"]["title"]
        title["text"] = f"= {title['text']}"
    return [*maps, result]


def cell_of_click(trace: Trace, chosen: Cell, name: str, row: int, column: int) -> Cell:
    """Returns the cell that a click on a map chooses, while the factors of `chosen` are shown.

    On a step, it is the clicked cell. Parameters and the mask are not computed: a click there chooses the cell of the
    chosen step that uses this position.
    """
    layer = trace.layer(chosen.layer)
    if name == _all_heads_name(HEAD_OUTPUT):
        width = layer.shape(HEAD_OUTPUT)[-1]
        return Cell(chosen.layer, HEAD_OUTPUT, column // width, row, column % width)
    if is_step(name):
        return Cell(chosen.layer, name, chosen.head, row, column)
    position = {"row": chosen.row, "column": chosen.column}
    for factor, factor_name in layer.factors(find_step(chosen.step)):
        if name in (factor_name, _all_heads_name(factor_name)):
            position |= {side: index for side, index in ((factor.row, row), (factor.column, column)) if side}
    return Cell(chosen.layer, chosen.step, chosen.head, position["row"], position["column"])


def _all_heads_name(name: str) -> str:
    """Returns the name of the map of all heads side by side."""
    return f"{name} of all heads"


def factor_map(trace: Trace, factor: Factor, name: str, cell: Cell, colors: str = "fixed") -> Spec:
    """Returns the map of one factor of a cell's step, with the row, column or cells that produce the number outlined."""
    layer = cell.layer
    sides = {"row": cell.row, "column": cell.column, "pair": cell.column, "": None}
    row, column = sides[factor.row], sides[factor.column]
    if name == "mask":
        return mask_map_json(trace, layer, Cell(layer, WEIGHTS, cell.head, cell.row, cell.column))
    step, tensor = _declared(trace.layer(layer), name, factor)
    matrix = tensor if factor.concatenated else trace.layer(layer).matrix(name, cell.head)
    rows, columns = matrix.shape
    if is_step(name) and not factor.concatenated:
        spec = heatmap_json(trace, name, layer, cell.head, None, colors)
    else:
        panel = Panel(cell.head, 0, 0, rows, columns)
        heat = numbers_in_cells(rows, columns)
        spec = build_map(trace, step, layer, matrix.numpy(), None, [panel], colors, heat, tensor)
    pair = [paired_column(cell.column, columns)] if factor.column == "pair" else []
    spec["layout"]["shapes"] = cell_outlines(rows, columns, row, column, *pair)
    spec["layout"]["meta"]["file"] = spec["layout"]["meta"]["file"][:2]
    return with_chosen_cell(spec, row, column)


def _declared(layer: Layer, name: str, factor: Factor) -> tuple[Step, Tensor]:
    """Returns a factor as the step that it is drawn as, and its tensor, [row_axis column_axis] or [head row_axis column_axis]."""
    declaration = declared(name)
    step = (
        declaration
        if isinstance(declaration, Step)
        else Step(name, declaration.symbol, declaration.symbol, declaration.axes, declaration.meaning, "signed")
    )
    if not factor.concatenated:
        return step, layer[name] if layer.materialize_all_heads or step.axes != MAP_AXES else layer.matrix(name)
    tensor = layer[name]
    if step.row_axis == "query_pos":  # concat(Z): the columns of all heads side by side
        axes, tensor, symbol = ("query_pos", "head · d_v"), tensor.transpose(0, 1).flatten(1), f"concat({step.symbol})"
    else:
        axes, tensor, symbol = ("head · d_v", step.column_axis), tensor.flatten(0, 1), step.symbol
    return Step(_all_heads_name(name), symbol, symbol, axes, layer.formula_of(step), "signed"), tensor
