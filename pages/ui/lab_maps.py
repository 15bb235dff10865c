"""What the Lab shows of a state: the overview of some steps, the chosen step beside what makes it, or the weights beside what they bring."""

from __future__ import annotations

from attention import Cell, Layer, Trace
from attention.formula.names import WEIGHTS
from attention.numbers import norms
from attention.numbers.norms import NORMS
from attention.pictures import factors, heatmap
from attention.pictures.layout import Spec
from attention.pictures.read_off import reading_json
from attention.pictures.view import overview


def shows_norms(layer: Layer, cell: Cell, view: str) -> bool:
    """Whether the weights are shown beside the lengths of what they bring."""
    return view == "norms" and cell.step == WEIGHTS and norms.has(layer)


def lab_maps(trace: Trace, cell: Cell, view: str, colors: str) -> list[Spec]:
    """The maps that the Lab draws side by side.

    Raises:
        AttentionError: the trace has no such cell, or there are no such colours.
    """
    layer = trace.layers[cell.layer]
    at_once = overview(tuple(step.name for step in layer.steps))
    if view == "overview" and cell.step in at_once:
        return [heatmap.heatmap_json(trace, step, cell.layer, cell.head, cell, colors) for step in at_once]
    if shows_norms(layer, cell, view):
        weights = heatmap.heatmap_json(trace, WEIGHTS, cell.layer, cell.head, cell, colors)
        return [weights, reading_json(trace, NORMS, cell, colors)]
    return factors.factor_maps(trace, cell, colors)
