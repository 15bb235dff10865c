"""Describe a knob as a control above the maps, which figure/hand.js draws."""

from __future__ import annotations

from typing import Any

from attention.formula import turned_knobs, what_if
from attention.formula.knobs import Knob
from attention.formula.layer import Layer
from attention.formula.ranges import Choice, Range, Real, Switch, Whole, in_url
from attention.pictures.contract import Control


def control(knob: Knob, within: Range, value: Any, layer: Layer | None) -> Control:
    """Returns the description of a control, with the keys of its kind."""
    description: Control = {
        "kind": "switch", "name": knob.key, "label": knob.label, "help": knob.help, "value": in_url(value),
    }  # fmt: skip
    if knob.when[0]:
        description["when"] = dict([knob.when])
    match within:
        case Choice():
            description |= {"kind": "choice", "options": [in_url(option) for option in within.options]}
            if names := _option_names(within, layer):
                description["option_names"] = names
        case Whole() | Real():
            description |= {
                "kind": "whole" if isinstance(within, Whole) else "slider",
                "low": within.low,
                "high": within.high,
            }
            if knob.usual:
                description["presets"] = knob.usual
        case Switch():
            pass
        case _:
            raise TypeError(within)
    return description


def _option_names(within: Choice, layer: Layer | None) -> dict[str, str]:
    """Returns the labels of options that differ from their values, such as layer names or the source's own mask."""
    if within.names:
        return dict(zip(map(in_url, within.options), within.names, strict=True))
    if layer is None or what_if.OWN not in within.options:
        return {}
    return {what_if.OWN: f"{what_if.OWN} ({turned_knobs.own_mask(layer)})"}
