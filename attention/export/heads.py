"""Heads that are changed inside their model, as lines of plain torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from attention.formula.names import QUERY, SCORES
from attention.formula.steps import HEAD_AXES, MAP_AXES, declared

if TYPE_CHECKING:
    from attention.formula.layer import Layer

_GIVEN = (QUERY, SCORES, "bias", "sinks", "patched_weights")


def others(layer: Layer, lines_of: Callable[[Layer], list[str]]) -> list[str]:
    """Lines that put the maps of heads with another formula in their places; `lines_of` a layer make its maps of its scores."""
    assert layer.formula is not None
    names = [step.name for step in layer.steps if step.axes == MAP_AXES and step.name not in (*layer.holds, SCORES)]
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


def _alone(layer: Layer, head: int) -> Layer:
    """A layer of that head alone, with its formula; a bias is that of all heads, whatever made it."""
    assert layer.formula is not None
    found, formula = {}, layer.formula.of(head)
    if formula.bias:
        formula = replace(formula, bias="given")
    for name, tensor in layer.recorded.items():
        axes = declared(name).axes
        at = next((i for i, axis in enumerate(axes) if axis in HEAD_AXES), None)
        own = 0 if at is None else head // (layer.n_heads // tensor.shape[at])
        found[name] = tensor if at is None else tensor.narrow(at, own, 1)
    if formula.bias:
        found["bias"] = layer["bias"][head : head + 1]
    if "mask" in found and formula.mask is not None and formula.mask != layer.formula.mask:
        del found["mask"]
    return replace(layer, recorded=found, formula=formula, own=None)
