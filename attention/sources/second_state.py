"""The second of two states: one link key contains the differences from the first state, as a query string.

`compare=temperature%3D0.2%26head%3D3` is the state of the link with another temperature and another head. A key without a value stands
for the default of that knob.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from attention.base.knobs import Knob, Text
from attention.sources import registry

KEY = "compare"
_TRACE_KEYS = ("layer", "head")
"""The compared keys that belong to the trace; the other compared keys are the source knobs, `registry.all_knobs()`."""
EQUAL = "&"
"""A link's differences of two equal states: without any, no second state is compared."""
OPENING = "1"
"""Stands for the differences with which a comparison opens, see `opening_differences`: nobody has named a second state yet."""
_MAX_CHARACTERS = 24_000  # characters: the longest text of a page, and the other knobs
_QUOTED = {
    ord(character): f"%{ord(character):02X}" for character in "%&+"
}  # the address quotes the rest, and this again


@dataclass(frozen=True)
class _Query(Text):
    """A query string; one that is too long is discarded, since a part of it would be another state."""

    def replacement(self, text: str, default: Any) -> tuple[Any, str]:
        return OPENING, f"{self.expected} of knobs: B is what a comparison opens with"


SECOND = Knob(
    KEY, "", _Query(_MAX_CHARACTERS), help="The differences of the second state, as a query string.", inline=True
)


def second_state(state: Mapping[str, str], b: str) -> dict[str, str]:
    """The second state: the first one with the values in `b` replaced.

    Args:
        state: the first state by link key; an absent key is at its default.
        b: a query string of the differences, such as ``temperature=0.2&head=3``; unknown keys are ignored, see `unknown_key_notes`.
    """
    merged = {**state, **_parse_entries(b)[0]}
    return {key: text for key, text in merged.items() if text and key != KEY}


def opening_differences(state: Mapping[str, str]) -> str:
    """The differences with which a comparison opens if nobody has named a second state: a causal mask; a low temperature where there is a mask or none fits."""
    source = state.get(registry.SOURCE.key, registry.SOURCE.default)
    may_mask = source in ("typed text", "matrices") and state.get("mask", "none") == "none"
    return "mask=causal" if may_mask else f"temperature={'1' if state.get('temperature') == '0.5' else '0.5'}"


def differences(state: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The query string that turns `state` into `other`; empty if no compared key differs."""
    keys = (key for key in _compared_keys() if state.get(key, "") != other.get(key, ""))
    return "&".join(f"{key}={other.get(key, '').translate(_QUOTED)}" for key in keys)


def compared_state(state: Mapping[str, str]) -> dict[str, str]:
    """The compared part of a state."""
    return {key: state[key] for key in _compared_keys() if state.get(key)}


def unknown_key_notes(b: str) -> tuple[str, ...]:
    """A note for each key in `b` that is not compared."""
    return tuple(
        f"The link sets “{key[:40]}” in the second state, where it cannot differ: it is ignored."
        for key in _parse_entries(b)[1]
    )


def _parse_entries(b: str) -> tuple[dict[str, str], list[str]]:
    if len(b) > _MAX_CHARACTERS or b == OPENING:
        return {}, []
    entries = dict(parse_qsl(b, keep_blank_values=True, max_num_fields=None))
    known = _compared_keys()
    return {key: text for key, text in entries.items() if key in known}, [key for key in entries if key not in known]


def _compared_keys() -> tuple[str, ...]:
    return (*(knob.key for knob in registry.all_knobs()), *_TRACE_KEYS)
