"""A knob as a control above the maps, as figure/hand.js draws it."""

from __future__ import annotations

from typing import Any

from attention.formula import turned_knobs, what_if
from attention.formula.knobs import Knob
from attention.formula.layer import Layer
from attention.formula.ranges import Choice, Range, Real, Switch, Whole, in_url
from attention.pictures.contract import Control


def control(knob: Knob, within: Range, value: Any, layer: Layer | None) -> Control:
    """A control as hand.js draws it, with what its kind needs."""
    drawn: Control = {
        "kind": "switch", "name": knob.key, "label": knob.label, "help": knob.help, "value": in_url(value),
    }  # fmt: skip
    if knob.when[0]:
        drawn["only"] = dict([knob.when])
    match within:
        case Choice():
            drawn |= {"kind": "choice", "options": [in_url(option) for option in within.options]}
            if names := _names(within, layer):
                drawn["names"] = names
        case Whole() | Real():
            drawn |= {
                "kind": "whole" if isinstance(within, Whole) else "slider",
                "low": within.low,
                "high": within.high,
            }
            if knob.usual:
                drawn["offered"] = knob.usual
        case Switch():
            pass
        case _:
            raise TypeError(within)
    return drawn


def _names(within: Choice, layer: Layer | None) -> dict[str, str]:
    """What options are called where it is not what they are: the names of layers, what the source's own mask is."""
    if within.names:
        return dict(zip(map(in_url, within.options), within.names, strict=True))
    if layer is None or what_if.OWN not in within.options:
        return {}
    return {what_if.OWN: f"{what_if.OWN} ({turned_knobs.own_mask(layer)})"}
