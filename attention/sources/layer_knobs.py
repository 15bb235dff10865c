"""The knobs that a source has for its layer, and how they are read: a config, or an override of the source's own formula."""

from __future__ import annotations

from functools import cache
from typing import Any

from attention.core import config, override
from attention.core.config import AttentionConfig
from attention.core.override import Override
from attention.params.knob import Knob
from attention.sources.divisors import Divisors
from attention.sources.reader import ParameterReader


@cache
def layer_knobs(source: str) -> tuple[Knob, ...]:
    """The layer knobs of a source. Those of a source with its own formula are the overrides, whose defaults change nothing."""
    declared = override.KNOBS if source in config.SOURCES_WITH_FORMULA else config.KNOBS
    return tuple(knob for knob in declared if source in knob.sources)


@cache
def inline_knobs(source: str) -> tuple[Knob, ...]:
    """The knobs on the page above the maps: those of the source's layer, and the other layer knobs that name the source."""
    layer = layer_knobs(source)
    known = {knob.key for knob in layer}
    others = (knob for knob in config.KNOBS if source in knob.sources and knob.key not in known)
    return tuple(knob for knob in (*layer, *others) if knob.inline and knob.label)


def read_config(reader: ParameterReader, source_name: str) -> AttentionConfig:
    """The config of the layer knobs of a source. Knobs on the page come before those in the sidebar, since heads must divide d_model."""
    values: dict[str, Any] = {}
    declared = {knob.name: knob for knob in layer_knobs(source_name)}
    identity = "init" in declared and reader.raw_value(declared["init"]) == "identity"
    fixed_values = {"n_heads": "1", "n_kv_heads": "1", "d_k": "d_model", "d_v": "d_model"} if identity else {}
    for knob in sorted(declared.values(), key=lambda knob: (not knob.inline, knob.order)):
        fixed_value = fixed_values.get(knob.name, "")
        if knob.name == "n_heads":
            values[knob.name] = reader.divisor(
                knob, Divisors.heads(values["d_model"], reader.limits.heads), fixed_value
            )
        elif knob.name == "n_kv_heads":
            values[knob.name] = reader.divisor(knob, Divisors.shared(values["n_heads"]), fixed_value)
        else:
            values[knob.name] = reader.knob(knob, fixed=fixed_value)
    return AttentionConfig(**{**values, **({"d_k": None, "d_v": None} if identity else {})})


def read_override(reader: ParameterReader, source_name: str) -> Override:
    """The override of the formula that comes with the source."""
    return Override(**{knob.name: reader.knob(knob) for knob in layer_knobs(source_name)})
