"""Heads with a formula of their own inside a model, as lines of plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attention.core.names import QUERY, SCORES
from attention.core.steps import HEAD_AXES, MAP_AXES, declared

if TYPE_CHECKING:
    from attention.core.layer import Layer

_INPUTS = (QUERY, SCORES, "bias", "sinks", "patched_weights")


def head_lines(layer: Layer, lines_of: Callable[[Layer], list[str]]) -> list[str]:
    """The lines that replace the maps of heads with a different formula; `lines_of` writes a layer's maps from its scores."""
    assert layer.formula is not None
    names = [step.name for step in layer.steps if step.axes == MAP_AXES and step.name not in (*layer.available, SCORES)]
    if not layer.formula.heads or not names:
        return []
    all_names = ", ".join(names)
    comma = "," * (len(names) == 1)
    lines = [f"{all_names}{comma} = (step.clone() for step in ({all_names},))  # some heads have another formula"]
    inputs = [name for name in _INPUTS if layer.has(name)]
    for head, _ in layer.formula.heads:
        head_layer = _single(layer, head)
        index = f"[{head} : {head + 1}]"
        lines += [
            "",
            f"def head_{head}({', '.join(inputs)}):  # the formula of this head",
            *(f"    {line}" for line in lines_of(head_layer)),
            f"    return {all_names}{comma}",
            "",
            f"{', '.join(name + index for name in names)}{comma} = head_{head}({', '.join(name + index for name in inputs)})",
        ]
    return lines


def _single(layer: Layer, head: int) -> Layer:
    """A layer of this head alone, with its formula; the bias is taken as computed for all heads."""
    assert layer.formula is not None
    tensors, formula = {}, layer.formula.for_head(head)
    if formula.bias:
        formula = replace(formula, bias="given")
    for name, tensor in layer.recorded.items():
        axes = declared(name).axes
        head_axis = next((i for i, axis in enumerate(axes) if axis in HEAD_AXES), None)
        index = 0 if head_axis is None else head // (layer.n_heads // tensor.shape[head_axis])
        tensors[name] = tensor if head_axis is None else tensor.narrow(head_axis, index, 1)
    if formula.bias:
        tensors["bias"] = layer["bias"][head : head + 1]
    if "mask" in tensors and formula.mask is not None and formula.mask != layer.formula.mask:
        del tensors["mask"]
    return replace(layer, recorded=tensors, formula=formula, base_formula=None)
