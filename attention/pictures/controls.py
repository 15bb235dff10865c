"""Describe a knob as a control above the maps, which figure/hand.js draws."""

from __future__ import annotations

from typing import Any

from attention.formula import turned_knobs, what_if
from attention.formula.knobs import Knob
from attention.formula.layer import Layer
from attention.formula.ranges import Choice, Integer, Range, Real, Switch, to_text
from attention.pictures.contract import Control


def describe_control(knob: Knob, within: Range, value: Any, layer: Layer | None) -> Control:
    """Returns the description of a control, with the keys of its kind."""
    description: Control = {
        "kind": "switch", "name": knob.key, "label": knob.label, "help": knob.help, "value": to_text(value),
    }  # fmt: skip
    if knob.applies_with[0]:
        description["when"] = dict([knob.applies_with])
    match within:
        case Choice():
            description |= {"kind": "choice", "options": [to_text(option) for option in within.options]}
            if names := _option_names(within, layer):
                description["option_names"] = names
        case Integer() | Real():
            description |= {
                "kind": "whole" if isinstance(within, Integer) else "slider",
                "low": within.low,
                "high": within.high,
            }
            if knob.suggestions:
                description["presets"] = knob.suggestions
        case Switch():
            pass
        case _:
            raise TypeError(within)
    return description


def _option_names(within: Choice, layer: Layer | None) -> dict[str, str]:
    """Returns the labels of options that differ from their values, such as layer names or the source's own mask."""
    if within.names:
        return dict(zip(map(to_text, within.options), within.names, strict=True))
    if layer is None or what_if.SOURCE_MASK not in within.options:
        return {}
    return {what_if.SOURCE_MASK: f"{what_if.SOURCE_MASK} ({turned_knobs.source_mask(layer)})"}
