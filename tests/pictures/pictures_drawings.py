"""The figures of the trunk, each from small numbers."""

from __future__ import annotations

from dataclasses import replace

from drawings import make_picture_trace, make_trace, numbers

from attention import Cell, metrics
from attention.explanation.derived import NORMS
from attention.formula.steps import Factor, find_step
from attention.pictures import charts, heatmap, mosaic, steps_view
from attention.pictures.drawing import Drawn, build_map
from attention.pictures.heads_over_picture import heads_over_picture_json
from attention.pictures.marks import Panel, axis, draw, frame
from attention.pictures.over_picture import MapLine, over_picture_json

TRACE, PICTURE = make_trace(), make_picture_trace()
CHANGED = replace(TRACE, changes=("head 0 of layer 1 without weights",))
LONG = make_trace(tuple(f"token{i}" for i in range(40)), layers=1, heads=1)
CELL = Cell(1, "weights", 2, 3, 1)
QUERY_CELL = Cell(1, "query", 2, 3, 1)
ORDER = [(1, 2), (0, 0), (1, 0), (0, 2), (0, 1), (1, 1)]
METRICS = metrics.of(TRACE)


def _map() -> object:
    numbers_of_head = TRACE.layers[0].matrix("output").numpy()
    return build_map(Drawn(TRACE, find_step("output"), 0, [Panel(0, 0, 0, 4, 4)]), numbers_of_head, None)


def _chart() -> object:
    return draw(frame("a chart", "of nothing", "A chart.", axis("x"), axis("y")))


DRAWINGS = {
    "heads_over_picture_json": lambda: heads_over_picture_json(MapLine.of(PICTURE, "weights", 1, 2)),
    "heads_over_picture_json, sorted": lambda: heads_over_picture_json(MapLine.of(PICTURE, "masked_scores", 1, key=2), colors="fitted", order=mosaic.HeadOrder(dict.fromkeys([(1, 2), (0, 1), (1, 0), (0, 0), (0, 2), (1, 1)], 0.5), "entropy"), cells=40),
    "heads_over_picture_json, one layer": lambda: heads_over_picture_json(MapLine.of(PICTURE, "weights", 1, query=2), all_layers=False, colors="log"),
    "build_map": _map,
    "heatmap_json": lambda: heatmap.heatmap_json(TRACE, "weights", 1, 2, CELL),
    "heatmap_json, stretched": lambda: heatmap.heatmap_json(CHANGED, "weights", 1, 2, QUERY_CELL, "stretched"),
    "heatmap_json, log": lambda: heatmap.heatmap_json(TRACE, "weights", 0, 0, None, "log"),
    "drawn_map_json": lambda: heatmap.drawn_map_json(Drawn.of_head(TRACE, "masked_scores", 1, 0, "fixed", (-1, 1)), CELL),
    "heatmap_json, long": lambda: heatmap.heatmap_json(LONG, "weights"),
    "with_chosen_cell": lambda: heatmap.with_chosen_cell(heatmap.mask_map_json(TRACE), 1, 2),
    "mask_map_json": lambda: heatmap.mask_map_json(TRACE, 1, CELL),
    "derived_map_json": lambda: heatmap.derived_map_json(TRACE, NORMS, CELL),
    "averaging_json": lambda: heatmap.averaging_json(TRACE, "a loop"),
    "heads_json": lambda: mosaic.heads_json(TRACE, "weights", 1, CELL, "stretched"),
    "heads_json, in blocks": lambda: mosaic.heads_json(LONG, "scores", cells=100),
    "layers_json": lambda: mosaic.layers_json(TRACE, "weights", CELL),
    "layers_json, sorted": lambda: mosaic.layers_json(
        TRACE, "scores", CELL, cells=50, order=mosaic.HeadOrder({head: i / 7 for i, head in enumerate(ORDER)}, "entropy")
    ),
    "lab_maps": lambda: steps_view.lab_maps(TRACE, CELL, "overview", "fixed"),
    "lab_maps, derived": lambda: steps_view.lab_maps(TRACE, CELL, "norms", "fixed"),
    "maps_over_picture": lambda: steps_view.maps_over_picture(TRACE, CELL, "fixed"),
    "factor_maps": lambda: steps_view.factor_maps(TRACE, replace(CELL, step="scores")),
    "factor_maps, output": lambda: steps_view.factor_maps(TRACE, Cell(1, "output", 0, 2, 1)),
    "factor_map": lambda: steps_view.factor_map(TRACE, Factor(("query",), row="row"), "query", CELL),
    "head_scatter_json": lambda: charts.head_scatter_json(METRICS, "layer", "entropy", (1, 2)),
    "head_scatter_json, two metrics": lambda: charts.head_scatter_json(METRICS, "entropy", "self", (0, 1)),
    "draw": _chart,
    "head_map_json": lambda: charts.head_map_json(numbers(2, 3), charts.HeadQuantity("Heads", "change", "the change"), (1, 2)),
    "head_map_json, with errors": lambda: charts.head_map_json(
        numbers(2, 3, low=0), charts.HeadQuantity("Heads", "mean", "the mean", "prompts"), (0, 0), numbers(2, 3, low=0), is_signed=False
    ),
    "over_picture_json": lambda: over_picture_json(MapLine.of(PICTURE, "weights", 1, 2, query=0), chosen=3),
    "over_picture_json, column": lambda: over_picture_json(MapLine.of(PICTURE, "masked_scores", 1, 2, key=1), colors="fitted", opacity=0.3, chosen=5, exact=False),
    "over_picture_json, derived": lambda: over_picture_json(MapLine.of(PICTURE, NORMS, 0, 0, query=4), colors="log"),
}  # fmt: skip
