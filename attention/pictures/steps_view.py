"""What the Lab draws: the strip of steps, the maps under it, a row or column over a picture, and the line of the chosen cell.

The maps are an overview, the chosen step beside its factors, or the weights beside what is derived from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attention.base.errors import AttentionError
from attention.base.tokens import any_patch, pair_spans
from attention.explanation import tables
from attention.explanation.derived import DerivedMap, DerivedView, derived_views
from attention.explanation.explanation import Explanation, explain
from attention.formula.names import HEAD_OUTPUT, SCORES, WEIGHTS, Cell
from attention.formula.positions import paired_column
from attention.formula.steps import MAP_AXES, Factor, Step, declared, find_step, is_step
from attention.pictures import scales
from attention.pictures.drawing import Drawn, build_map, why_hidden
from attention.pictures.heatmap import (
    cell_outlines,
    derived_map_json,
    drawn_map_json,
    heatmap_json,
    mask_map_json,
    with_chosen_cell,
)
from attention.pictures.layout import HEIGHT, short_axis_name
from attention.pictures.marks import Panel, Spec
from attention.pictures.message_contract import Line, StepTab
from attention.pictures.over_picture import MapLine, over_picture_json
from attention.pictures.view import FACTORS, OVERVIEW, PAIR, STEP, has_pair, overview_steps, position_values
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class OverPicture:
    """What is drawn over a picture, the row of the chosen query or the column of the chosen key or feature, in colours of an opacity from 0 to 1."""

    reads: Literal["row", "column"] = "row"
    opacity: float = scales.OPACITY


def lab_maps(
    trace: Trace, cell: Cell, view: str, colors: str, over: OverPicture = OverPicture(), pair: str = PAIR.default
) -> list[Spec]:
    """The figures that the Lab draws side by side: a picture where the tokens are patches of one, and the maps.

    With a `pair` other than the default, maps of a pair of texts begin with the queries of one text and the keys of the other.

    Raises:
        AttentionError: the trace does not have the cell, or the colours do not exist.
    """
    try:
        shown = derived_view(trace, cell, view)
    except AttentionError:
        shown = None
    derived = shown[1] if shown else None
    layer = trace.layer(cell.layer)
    steps = overview_steps(tuple(step.name for step in layer.steps), layer.keeps_maps)
    if view == OVERVIEW and cell.step in steps:
        maps = [heatmap_json(trace, step, cell.layer, cell.head, cell, colors) for step in steps]
    elif derived is not None:
        weights = heatmap_json(trace, WEIGHTS, cell.layer, cell.head, cell, colors)
        maps = [weights, derived_map_json(trace, derived, cell, colors)]
    else:
        maps = factor_maps(trace, cell, colors)
    if pair != PAIR.default and has_pair(layer):
        queries, keys = pair.upper().split("-")
        row_axis, column_axis = map(short_axis_name, MAP_AXES[-2:])
        spans = {row_axis: pair_spans(layer.tokens)[queries], column_axis: pair_spans(layer.key_tokens)[keys]}
        maps = [_within(figure, spans, pair) for figure in maps]
    return [*maps_over_picture(trace, cell, colors, over, derived), *maps]


def _within(figure: Spec, spans: Mapping[str, slice], pair: str) -> Spec:
    """The figure, zoomed to these spans of its queries and keys."""
    layout = figure["layout"]
    row_axis, column_axis = layout["meta"]["axes"]
    if row := spans.get(row_axis):
        layout["yaxis"]["range"] = [row.stop - 0.5, row.start - 0.5]
    if column := spans.get(column_axis):
        layout["xaxis"]["range"] = [column.start - 0.5, column.stop - 0.5]
    if row and column:
        sums = figure["data"][0]["z"][:, column].sum(axis=1)
        for each in layout.get("annotations", ()):
            if each.get("yref") != "paper":  # beside a row
                each.update({"y": row.start - 0.5} if each["text"] == "Σ" else {"text": f"{sums[each['y']]:.2f}"})
    layout["uirevision"] += f" {pair}"
    layout["title"]["subtitle"]["text"] += f" · texts {pair.upper().replace('-', ' → ')}"
    return figure


def maps_over_picture(
    trace: Trace, cell: Cell, colors: str, over: OverPicture = OverPicture(), derived: DerivedMap | None = None
) -> list[Spec]:
    """The row or the column of the chosen cell, or of a `derived` map at this cell, over the picture; empty where neither has patches.

    Where only one of them has patches, as the features of a query have none, it is this one. Fixed colours reach up to the largest
    patch: one of many patches rarely has a weight near 1.

    Raises:
        AttentionError: the trace does not have the cell, or the colours do not exist.
    """
    layer, step = trace.layer(cell.layer), find_step(cell.step)
    axes = {"row": step.column_axis, "column": step.row_axis}
    with_patches = [name for name, axis in axes.items() if any_patch(layer.labels_of(axis))]
    if not with_patches:
        return []
    reads = over.reads if over.reads in with_patches else with_patches[0]
    query, key, chosen = (cell.row, None, cell.column) if reads == "row" else (None, cell.column, cell.row)
    scale = scales.FITTED if colors == "stretched" else colors
    line = MapLine.of(trace, derived or cell.step, cell.layer, cell.head, query, key)
    figure = over_picture_json(line, scale, over.opacity, chosen, exact=False)
    figure["layout"]["height"] = HEIGHT  # level with the maps beside it
    return [figure]


def factor_maps(trace: Trace, cell: Cell, colors: str = "fixed") -> list[Spec]:
    """Returns the maps of the factors of the chosen cell's step, in the order of the formula, and last that of the step itself.

    In each factor, the row, column or cells that produce the chosen number are outlined.

    Raises:
        MissingError: the trace has no such layer, step or head.
    """
    layer = trace.layer(cell.layer)
    step = find_step(cell.step)
    factors = layer.factors(step)
    spans = factor_spans(layer, step)
    maps = [factor_map(trace, factor, name, cell, colors, spans.get(name)) for factor, name in factors]
    result = heatmap_json(trace, cell.step, cell.layer, cell.head, cell, colors)
    if maps:
        title = result["layout"]["title"]
        title["text"] = f"= {title['text']}"
    return [*maps, result]


def factor_spans(layer: Layer, step: Step) -> dict[str, tuple[float, float] | None]:
    """The numbers that the colours of a step's factors cover: Q and K of the scores share one scale; other factors have their own."""
    names = [name for _, name in layer.factors(step) if step.name == SCORES and is_step(name)]
    span = scales.joined_span([scales.drawn_span(layer, name) for name in names])
    return dict.fromkeys(names, span)


def cell_of_click(trace: Trace, chosen: Cell, name: str, row: int, column: int) -> Cell:
    """Returns the cell that a click on a map chooses, while the factors of `chosen` are shown.

    On a step, it is the clicked cell, and on a map derived from the weights that of the weights. Parameters and the mask are
    not computed: a click there chooses the cell of the chosen step that uses this position.
    """
    layer = trace.layer(chosen.layer)
    if name == _all_heads_name(HEAD_OUTPUT):
        width = layer.shape(HEAD_OUTPUT)[-1]
        return Cell(chosen.layer, HEAD_OUTPUT, column // width, row, column % width)
    if any(name in view.maps for view in derived_views().values()):
        name = WEIGHTS
    if is_step(name):
        return Cell(chosen.layer, name, chosen.head, row, column)
    position = {"row": chosen.row, "column": chosen.column}
    for factor, factor_name in layer.factors(find_step(chosen.step)):
        if name in (factor_name, _all_heads_name(factor_name)):
            position |= {side: index for side, index in ((factor.row, row), (factor.column, column)) if side}
    return Cell(chosen.layer, chosen.step, chosen.head, position["row"], position["column"])


def _all_heads_name(name: str) -> str:
    return f"{name} of all heads"


def factor_map(
    trace: Trace, factor: Factor, name: str, cell: Cell, colors: str = "fixed", span: tuple[float, float] | None = None
) -> Spec:
    """Returns the map of one factor of a cell's step, with the row, column or cells that produce the number outlined."""
    layer = cell.layer
    sides = {"row": cell.row, "column": cell.column, "pair": cell.column, "": None}
    row, column = sides[factor.row], sides[factor.column]
    if name == "mask":
        return mask_map_json(trace, layer, Cell(layer, WEIGHTS, cell.head, cell.row, cell.column))
    step, tensor = _declared(trace.layer(layer), name, factor)
    matrix = tensor if factor.concatenated else trace.layer(layer).matrix(name, cell.head)
    rows, columns = matrix.shape
    pair = [paired_column(cell.column, columns)] if factor.column == "pair" else []
    outlines = cell_outlines(rows, columns, row, column, *pair)
    if is_step(name) and not factor.concatenated:
        spec = drawn_map_json(Drawn.of_head(trace, name, layer, cell.head, colors, span))
        spec["layout"]["shapes"] = outlines
    else:
        drawn = Drawn(trace, step, layer, [Panel(cell.head, 0, 0, rows, columns)], colors, tensor)
        spec = build_map(drawn, matrix.numpy(), None, *outlines, numbers=True)
    spec["layout"]["meta"]["file"] = spec["layout"]["meta"]["file"][:2]
    return with_chosen_cell(spec, row, column)


def _declared(layer: Layer, name: str, factor: Factor) -> tuple[Step, Tensor]:
    """Returns a factor as the step that it is drawn as, and its tensor, [row_axis column_axis] or [head row_axis column_axis]."""
    step = declared(name)
    if not isinstance(step, Step):
        step = Step(name, step.symbol, step.symbol, step.axes, step.meaning, "signed")
    if not factor.concatenated:
        return step, layer[name] if layer.materialize_all_heads or step.axes != MAP_AXES else layer.matrix(name)
    tensor = layer[name]
    if step.row_axis == "query_pos":  # concat(Z): the columns of all heads side by side
        axes, tensor, symbol = ("query_pos", "head · d_v"), tensor.transpose(0, 1).flatten(1), f"concat({step.symbol})"
    else:
        axes, tensor, symbol = ("head · d_v", step.column_axis), tensor.flatten(0, 1), step.symbol
    return Step(_all_heads_name(name), symbol, symbol, axes, layer.formula_of(step), "signed"), tensor


def available_views(trace: Trace, layer: Layer) -> tuple[str, ...]:
    """The derived views that a layer has, by their names in links; computes nothing."""
    return tuple(name for name, view in derived_views().items() if view.is_available(trace, layer))


def derived_view(trace: Trace, cell: Cell, view: str) -> tuple[DerivedView, DerivedMap] | None:
    """The derived view that the Lab shows, and its map; None if it shows another view.

    Raises:
        AttentionError: this model has no such view, for the reason in the sentence.
    """
    if cell.step != WEIGHTS or view not in available_views(trace, trace.layers[cell.layer]):
        return None
    shown = derived_views()[view]
    return shown, shown.find(trace, cell)


def step_strip(
    layer: Layer, chosen: str, view: str, overview: tuple[str, ...], derived: Sequence[str] = (), head: int = 0
) -> list[StepTab]:
    """Returns a tab for each step of a layer with its symbol and shape; the sums of a map that is not kept are of one `head`.

    Before them stands a tab for the `overview` of the most important steps, if there is one; after them one for each `derived` view.
    """
    is_overview = view == OVERVIEW and chosen in overview
    is_derived = view in derived and chosen == WEIGHTS
    tabs: list[StepTab] = []
    if overview:
        symbols = " ".join(step.symbol for step in layer.steps if step.name in overview)
        step = next((name for name in (chosen, STEP.default) if name in overview), overview[0])
        tabs.append({
            "name": "overview", "symbol": symbols, "shape": "overview", "help": "side by side",
            "chosen": is_overview, "view": OVERVIEW, "step": step,
        })  # fmt: skip
    for step in layer.steps:
        tab: StepTab = {
            "name": step.name, "symbol": step.symbol, "shape": "×".join(map(str, layer.shape(step.name))),
            "help": f"{step.symbol} = {layer.formula_of(step)}, [{' '.join(step.axes)}]",
            "chosen": step.name == chosen and not is_overview and not is_derived,
        }  # fmt: skip
        if step.kind == "probability":
            tab["sums"] = tables.row_sums(layer.stats(step.name, None if layer.keeps_maps else head))
        tabs.append({**tab, "view": FACTORS} if overview else tab)
    for name in derived:  # no steps of the formula, therefore last
        shown = derived_views()[name]
        tabs.append({
            "name": shown.maps[0], "symbol": shown.symbol, "shape": shown.shape, "help": shown.help,
            "chosen": is_derived and view == name, "view": name, "step": WEIGHTS,
        })  # fmt: skip
    return tabs


def cell_line(trace: Trace, cell: Cell, explanation: Explanation | None = None) -> Line:
    """Returns one cell in one line: its position, the number, its arithmetic, and the cells that it was computed from.

    Pass an `explanation` for a number at the same position that does not belong to the cell's step.
    """
    hidden = "" if explanation else why_hidden(trace, cell)
    explanation = explanation or explain(trace, cell.step, cell.layer, cell.head, cell.row, cell.column)
    rows, columns = trace.layer(cell.layer).shape(cell.step)[-2:]
    names = tables.cell_names(trace.layer(cell.layer), cell)
    sides = zip(position_values(cell).items(), names, (rows, columns), strict=True)
    return {
        "step": explanation.cell.step,
        "steps": [step.name for step in trace.layer(cell.layer).steps],
        "sides": [{"name": key, "axis": axis, "token": token, "value": position, "high": size - 1} for (key, position), (axis, token), size in sides],
        "shown": f"{explanation.displayed_value}, hidden" if hidden else explanation.displayed_value,
        "sign": "by" if hidden else explanation.sign, "short": hidden or explanation.short,
        "from": [_source_link(source, cell) for source in explanation.came_from],
    }  # fmt: skip


def _source_link(source: Cell, cell: Cell) -> dict[str, Any]:
    """Returns the label and the knobs of a cell that another was computed from; steps shared by all heads keep the chosen head."""
    of_head, from_head = (find_step(step).per_head for step in (source.step, cell.step))
    name = f"{source.step} [{source.row}, {source.column}]"
    return {
        "knobs": {"view": FACTORS, "step": source.step, **({"head": source.head} if of_head else {}), **position_values(source)},
        "label": f"{name} of head {source.head}" if of_head and not from_head else name,
    }  # fmt: skip
