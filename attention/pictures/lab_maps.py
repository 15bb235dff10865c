"""The maps of the Lab: an overview of some steps, the chosen step next to its factors, or the weights next to their weighted values."""

from __future__ import annotations

from attention import Cell, Layer, Trace
from attention.analysis import norms
from attention.analysis.norms import NORMS
from attention.core.names import WEIGHTS
from attention.pictures import factors, heatmap
from attention.pictures.derived_heatmap import derived_map_json
from attention.pictures.layout import Spec
from attention.pictures.view import overview_steps


def shows_norms(layer: Layer, cell: Cell, view: str) -> bool:
    """Whether the Lab shows the weights next to the norms of the weighted values."""
    return view == "norms" and cell.step == WEIGHTS and norms.is_available(layer)


def lab_maps(trace: Trace, cell: Cell, view: str, colors: str) -> list[Spec]:
    """The maps that the Lab draws side by side.

    Raises:
        AttentionError: the trace does not have the cell, or the colours do not exist.
    """
    layer = trace.layers[cell.layer]
    steps = overview_steps(tuple(step.name for step in layer.steps))
    if view == "overview" and cell.step in steps:
        return [heatmap.heatmap_json(trace, step, cell.layer, cell.head, cell, colors) for step in steps]
    if shows_norms(layer, cell, view):
        weights = heatmap.heatmap_json(trace, WEIGHTS, cell.layer, cell.head, cell, colors)
        return [weights, derived_map_json(trace, NORMS, cell, colors)]
    return factors.factor_maps(trace, cell, colors)
