"""The second of two states: one key of a link says what differs from the first, as a query of its own.

`compare=temperature%3D0.2%26head%3D3` is the state of the link with another temperature and another head. A key without a value
stands for that knob's default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from attention.formula.knobs import Knob
from attention.formula.ranges import Text
from attention.sources import knobs
from attention.sources.link_aliases import query, with_current_keys

KEY = "compare"
SHOWN = ("layer", "head")
"""What of a trace is compared; where a knob makes a source another one, it is one of `knobs.KNOBS`."""
LONGEST = 24_000  # characters: a text as long as a page takes, and the knobs around it


@dataclass(frozen=True)
class _Query(Text):
    """A query; one that is too long is none, since its beginning would be another state."""

    def refused(self, text: str, default: Any) -> tuple[Any, str]:
        return default, f"{self.expected} of knobs: B is the same as A"


SECOND = Knob(KEY, "", _Query(LONGEST), help="What differs in the second state, as a query.", held=True)


def second(state: Mapping[str, str], b: str) -> dict[str, str]:
    """The second state: the first, with what `b` says in its place.

    Args:
        state: a state by key, as in a link; a key that is not there is at its default.
        b: a query of what differs, such as ``temperature=0.2&head=3``; what it cannot say is left out, see `wrong`.
    """
    found = {**state, **_entries(b)[0]}
    return {key: text for key, text in found.items() if text and key != KEY}


def differing(state: Mapping[str, str], other: Mapping[str, str]) -> str:
    """What `other` must say to be the second state of `state`: empty where nothing differs that is compared."""
    keys = (key for key in _compared() if state.get(key, "") != other.get(key, ""))
    return query({key: other.get(key, "") for key in keys})


def turned(before: Mapping[str, str], after: Mapping[str, str], b: str, both: bool = False) -> str:
    """What `b` must say when the first state has been turned from `before` to `after`: the second stays as it is, or with `both` is turned too."""
    other = second(before, b)
    if both:
        other |= {key: after.get(key, "") for key in _compared() if before.get(key, "") != after.get(key, "")}
    return differing(after, other)


def compared(state: Mapping[str, str]) -> dict[str, str]:
    """What of a state is compared."""
    return {key: state[key] for key in _compared() if state.get(key)}


def wrong(b: str) -> tuple[str, ...]:
    """A sentence for each thing that `b` says and that no second state has."""
    return tuple(
        f"The link asks for “{key[:40]}” in the second state, which is none of what may differ there: it is left out."
        for key in _entries(b)[1]
    )


def _entries(b: str) -> tuple[dict[str, str], list[str]]:
    if len(b) > LONGEST:
        return {}, []
    found = with_current_keys(dict(parse_qsl(b, keep_blank_values=True, max_num_fields=None))).texts
    known = _compared()
    return {key: text for key, text in found.items() if key in known}, [key for key in found if key not in known]


def _compared() -> tuple[str, ...]:
    return (*(one.key for one in knobs.KNOBS), *SHOWN)
