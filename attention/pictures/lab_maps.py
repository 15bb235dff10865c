"""The maps of the Lab: an overview of some steps, the chosen step next to its factors, or the weights next to what is derived from them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from attention import Cell, Layer, Trace
from attention.analysis import norms
from attention.analysis.derived_maps import DerivedMap
from attention.analysis.norms import NORMS
from attention.circuits import question, writes_map
from attention.core.names import VALUE, WEIGHTS
from attention.core.stats import finite_range
from attention.core.steps import find_step
from attention.errors import AttentionError, SizeError
from attention.pictures import factors, heatmap
from attention.pictures.derived_heatmap import derived_map_json
from attention.pictures.layout import HEIGHT, Spec
from attention.pictures.over_picture import FITTED, OPACITY, matrix_over_picture_json, over_picture_json
from attention.pictures.view import overview_steps
from attention.tokens import any_patch

MAX_SECONDS = 2.0
"""The longest that a derived view may take; the page Circuits computes longer ones on request."""


@dataclass(frozen=True)
class DerivedView:
    """A view of the Lab that shows the weights next to a map derived from them.

    Attributes:
        derived: the map.
        caution: what it does not say.
    """

    derived: DerivedMap
    caution: str


def available_views(trace: Trace, layer: Layer) -> tuple[str, ...]:
    """The derived views that a layer has, by their names in links; computes nothing."""
    views = ("norms",) if norms.is_available(layer) else ()
    predicts = trace.vectors is not None or any(not prediction.fills_mask for prediction in trace.predictions)
    has_sum = trace.model_run is not None and not trace.pictures  # as `models.linearize`
    if has_sum and predicts and layer.has(VALUE) and layer.has(WEIGHTS):
        return (*views, "writes")
    return views


def derived_view(trace: Trace, cell: Cell, view: str) -> DerivedView | None:
    """The derived view that the Lab shows; None if it shows another view.

    Raises:
        AttentionError: this model has no such view, for the reason in the sentence.
    """
    if cell.step != WEIGHTS or view not in available_views(trace, trace.layers[cell.layer]):
        return None
    if view == "norms":
        return DerivedView(NORMS, norms.CAUTION)
    if (seconds := question.estimate_seconds(trace)) > MAX_SECONDS:
        raise SizeError(
            f"What each cell adds to a logit takes at most {MAX_SECONDS:.0f} s here; for this text it would take about {seconds:.0f} s: "
            "open the page Circuits, which asks before it begins."
        )
    derived = writes_map.writes_map(question.find_readout(trace))
    _ = derived.matrix(trace, cell.layer, cell.head)  # raises
    return DerivedView(derived, writes_map.CAVEAT)


@dataclass(frozen=True)
class OverPicture:
    """How a row or a column is drawn over a picture.

    Attributes:
        reads: "row": of the chosen query; "column": of the chosen key or feature.
        opacity: of the colours, from 0 to 1.
    """

    reads: Literal["row", "column"] = "row"
    opacity: float = OPACITY


def lab_maps(trace: Trace, cell: Cell, view: str, colors: str, over: OverPicture = OverPicture()) -> list[Spec]:
    """The figures that the Lab draws side by side: a picture where the tokens are patches of one, and the maps.

    Raises:
        AttentionError: the trace does not have the cell, or the colours do not exist.
    """
    try:
        shown = derived_view(trace, cell, view)
    except AttentionError:
        shown = None
    derived = shown.derived if shown else None
    return [*maps_over_picture(trace, cell, colors, over, derived), *_maps(trace, cell, view, colors, derived)]


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
    scale = FITTED if colors == "fixed" else colors
    place = (cell.layer, cell.head, query, key, scale, over.opacity, chosen, False)
    if derived is None:
        figure = over_picture_json(trace, cell.step, *place)
    else:
        matrix = derived.matrix(trace, cell.layer, cell.head)
        figure = matrix_over_picture_json(trace, derived.step, matrix, finite_range(matrix), *place)
    figure["layout"]["height"] = HEIGHT  # level with the maps beside it
    return [figure]


def _maps(trace: Trace, cell: Cell, view: str, colors: str, derived: DerivedMap | None) -> list[Spec]:
    """The maps without a picture."""
    layer = trace.layers[cell.layer]
    steps = overview_steps(tuple(step.name for step in layer.steps))
    if view == "overview" and cell.step in steps:
        return [heatmap.heatmap_json(trace, step, cell.layer, cell.head, cell, colors) for step in steps]
    if derived is not None:
        weights = heatmap.heatmap_json(trace, WEIGHTS, cell.layer, cell.head, cell, colors)
        return [weights, derived_map_json(trace, derived, cell, colors)]
    return factors.factor_maps(trace, cell, colors)
