"""Describe a knob as a control above the maps, which figure/controls.js draws."""

from __future__ import annotations

from typing import Any

from attention.core import override, override_words
from attention.core.layer import Layer
from attention.params.knob import Knob
from attention.params.ranges import Choice, Integer, Range, Real, Switch, to_text
from attention.pictures.message_contract import Control


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
    if layer is None or override.SOURCE_MASK not in within.options:
        return {}
    return {override.SOURCE_MASK: f"{override.SOURCE_MASK} ({override_words.source_mask(layer)})"}
