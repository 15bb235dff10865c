"""Heads that are changed inside their model, as lines of plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attention.formula.steps import HEAD_AXES, MAP_AXES, declared

if TYPE_CHECKING:
    from attention.formula.formula import Formula
    from attention.formula.layer import Layer

_GIVEN = ("query", "scores", "bias", "sinks", "taken_weights")


def others(layer: Layer, lines_of: Callable[[Layer], list[str]]) -> list[str]:
    """Lines that put the maps of heads with another formula in their places; `lines_of` a layer make its maps of its scores."""
    assert layer.formula is not None
    names = [step.name for step in layer.steps if step.axes == MAP_AXES and step.name not in (*layer.holds, "scores")]
    if not layer.formula.heads or not names:
        return []
    all_names = ", ".join(names)
    comma = "," * (len(names) == 1)
    lines = [f"{all_names}{comma} = (one.clone() for one in ({all_names},))  # some heads have others"]
    there = [name for name in _GIVEN if layer.has(name)]
    for head, _ in layer.formula.heads:
        one = _alone(layer, head)
        at = f"[{head} : {head + 1}]"
        lines += [
            "",
            f"def head_{head}({', '.join(there)}):  # its own formula",
            *(f"    {line}" for line in lines_of(one)),
            f"    return {all_names}{comma}",
            "",
            f"{', '.join(name + at for name in names)}{comma} = head_{head}({', '.join(name + at for name in there)})",
        ]
    return lines


def cells(formula: Formula, step: str) -> list[str]:
    """Lines that set single cells of the scores, as they enter the softmax, or of the weights."""
    kind = {"masked_scores": "scores", "weights": "weights"}.get(step)
    there = [cell for cell in formula.by_hand.cells if cell.step == kind]
    lines = [f"{step} = {step}.clone()"] if there else []
    for query in dict.fromkeys(cell.query for cell in there):
        of_row = {cell.key: cell.value for cell in there if cell.query == query}
        if kind == "weights" and any(cell.rescaled for cell in there if cell.query == query):
            lines += [
                f"rest = {step}[:, {query}].clone()  # the rest of this row is rescaled",
                f"rest[:, {list(of_row)}] = 0",
                f"left = ({step}[:, {query}].sum(-1, keepdim=True) - {sum(of_row.values())!r}).clamp_min(0)",
                f"{step}[:, {query}] *= left / rest.sum(-1, keepdim=True).clamp_min(1e-30)",
            ]
        lines += [f"{step}[:, {query}, {key}] = {value!r}  # set by hand" for key, value in of_row.items()]
    return lines


def kept(layer: Layer) -> list[str]:
    """Lines that make what goes on of the heads' outputs."""
    assert layer.formula is not None
    lines = ["kept_output = head_output.clone()  # [head query_pos d_v]"]
    for head in range(layer.n_heads):
        hand = layer.formula.of(head).by_hand
        z = f"taken_output[{head}]" if hand.takes("head_output") else f"head_output[{head}]"
        said = z
        if hand.silence:
            said = f"{1 - hand.strength!r} * {z}"
            said += f" + {hand.strength!r} * {z}.mean(dim=0)" if hand.silence == "mean" else "  # silenced"
        lines += [f"kept_output[{head}] = {said}"] if hand.keeps else []
    return lines


def _alone(layer: Layer, head: int) -> Layer:
    """A layer of that head alone, with its formula."""
    assert layer.formula is not None
    found = {}
    for name, tensor in layer.recorded.items():
        axis = declared(name).axes[0]
        at = head // (layer.n_heads // len(tensor)) if axis in HEAD_AXES else 0
        found[name] = tensor[at : at + 1] if axis in HEAD_AXES else tensor
    formula = layer.formula.of(head)
    if "mask" in found and formula.mask is not None and formula.mask != layer.formula.mask:
        del found["mask"]
    return replace(layer, recorded=found, formula=formula, own=None)
