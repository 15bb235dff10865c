"""The state of a page as one value, and what an action makes of it. A link is its text; a comparison has a second one.

One link key contains the differences of the second state, as a query string: `compare=temperature%3D0.2%26head%3D3` is the state of the
link with another temperature and another head. A key without a value stands for the default of that knob.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal
from urllib.parse import parse_qsl

from attention.base.knobs import Knob, Text
from attention.formula import override
from attention.sources.matrices import UPLOADED, uploaded_sizes
from attention.sources.registry import SOURCE, all_knobs, has_formula, has_knob, source_kinds

START = "Explore"
"""The title of the start page, which alone draws two states."""
Texts = Mapping[str, str]
"""Texts of knobs by key, as in a link. An absent key stands for the default."""
LONGEST_IN_LINK = 500  # characters of one matrix; five such matrices already make a long link
DISPLAY = ("lock", "present")
"""The parameters of an address that say how a page is shown; they stay from page to page."""
_EDITING = "editing"  # the key of the switch that says which of the two states the knobs change
_AFTER_SCORES = tuple(knob.key for knob in override.KNOBS)
COMPARE = "compare"
_TRACE_KEYS = ("layer", "head")
"""The compared keys that belong to the trace; the other compared keys are the source knobs, `all_knobs()`."""
EQUAL = "&"
"""A link's differences of two equal states: without any, no second state is compared."""
OPENING = "1"
"""Stands for the differences with which a comparison opens, see `opening_differences`: nobody has named a second state yet."""
_MAX_CHARACTERS = 24_000  # characters: the longest text of a page, and the other knobs
_QUOTED = {
    ord(character): f"%{ord(character):02X}" for character in "%&+"
}  # the address quotes the rest, and this again


@dataclass(frozen=True)
class State:
    """What a page shows. No mapping in it is ever changed.

    Attributes:
        page: the title of the page; empty before the first one.
        texts: the knobs of the source and of pages that differ from their defaults, and the differences of the second state.
        unread: the keys of texts from outside that no page has read yet. The differences of the second state are among them
            until a page has shown both: so long the second state follows the first one.
        parameters: all parameters of the last link, state file or address, also those that are no knobs.
        aside: the knobs after the scores that wait for the other family of sources: with a formula of their own, or without.
        waiting: the knobs of other sources, which return with their source.
        wishes: numbers of heads that do not divide d_model now, see `attention.sources.reader.Reader`.
    """

    page: str = ""
    texts: Texts = field(default_factory=dict)
    unread: frozenset[str] = frozenset()
    parameters: Texts = field(default_factory=dict)
    aside: Texts = field(default_factory=dict)
    waiting: Texts = field(default_factory=dict)
    wishes: Texts = field(default_factory=dict)

    @classmethod
    def of_link(cls, texts: Texts) -> State:
        """The state before the first page, from its address."""
        return cls(texts=dict(texts), unread=frozenset(texts) | {COMPARE}, parameters=dict(texts))

    @property
    def compares(self) -> bool:
        """Whether the page draws a second state beside the first: Explore does, as long as one is there."""
        return self.page == START and bool(self.texts.get(COMPARE))

    @property
    def differences(self) -> str:
        """The differences of the second state, as in a link; where nobody has named them, those with which a comparison opens."""
        named = self.texts.get(COMPARE, "")
        return opening_differences(compared_state(self.texts)) if named == OPENING else named

    @property
    def other(self) -> State:
        """The second state."""
        texts = second_state(compared_state(self.texts), self.differences)
        return State(self.page, texts, frozenset(texts))

    @property
    def edits(self) -> str:
        """Which of the two states the knobs change: "A", "B" or "both"; "A" on a page that draws only one."""
        return self.texts.get(_EDITING, "B") if self.compares else "A"


@dataclass(frozen=True)
class Set:
    """Sets knobs; None is the default.

    Attributes:
        texts: the new texts by key.
        to: the state of which they are knobs; empty: the one that the switch of the comparison names.
    """

    texts: Mapping[str, str | None]
    to: Literal["", "A", "B", "both"] = ""


@dataclass(frozen=True)
class Settle:
    """Stores what a page has read: a bad text becomes the one in its place. Changes nothing that is seen.

    Attributes:
        texts: the texts of the knobs that were read; None is the default.
        wishes: numbers of heads that do not divide d_model now.
    """

    texts: Mapping[str, str | None]
    wishes: Texts = field(default_factory=dict)


@dataclass(frozen=True)
class Go:
    """Opens another page. The texts of the link that leads there are added."""

    page: str
    texts: Texts = field(default_factory=dict)


@dataclass(frozen=True)
class Open:
    """Opens a state: every knob without a text gets its default."""

    texts: Texts


@dataclass(frozen=True)
class Restore:
    """Back or Forward to an address. Long matrices, of which an address has only the size, stay."""

    texts: Texts


Action = Set | Settle | Go | Open | Restore


def apply(state: State, action: Action) -> State:
    """The state after an action. The same action twice gives the same state."""
    match action:
        case Set():
            return _set(state, action)
        case Settle(texts, wishes):
            settled = {key: text for key, text in texts.items() if key not in state.unread}
            state = _keep_other(state, replace(state, texts=_changed(state.texts, settled)))
            return replace(
                state,
                texts=_changed(state.texts, texts),
                unread=state.unread - texts.keys(),
                wishes={**wishes, **state.wishes},
            )
        case Go(page, texts):
            return replace(
                state,
                page=page,
                texts={**state.texts, **texts},
                unread=state.unread | texts.keys() | {COMPARE},
                parameters={**_display(state), **texts},
                wishes={key: text for key, text in state.wishes.items() if key not in texts},
            )
        case Open(texts):
            return replace(State.of_link(texts), page=state.page, parameters=_display(state))
        case Restore(texts):
            missing = uploaded_sizes(texts.get(UPLOADED, "")).keys() - texts.keys()
            kept = {name: text for name in missing if len(text := state.texts.get(name, "")) > LONGEST_IN_LINK}
            return replace(State.of_link(texts), page=state.page, texts={**kept, **texts})


def _display(state: State) -> Texts:
    return {key: state.parameters[key] for key in DISPLAY if key in state.parameters}


def _changed(texts: Texts, changes: Mapping[str, str | None]) -> Texts:
    """The texts with some changed; the order of the others stays."""
    merged = {**texts, **changes}
    return {key: text for key, text in merged.items() if text is not None}


def _keep_other(before: State, after: State) -> State:
    """The state `after`, whose second state is still that of `before`, once one is named."""
    compared = compared_state(before.texts), compared_state(after.texts)
    named = after.texts.get(COMPARE, OPENING) != OPENING
    if not (named and after.compares) or COMPARE in after.unread or compared[0] == compared[1]:
        return after
    other = second_state(compared[0], before.differences)
    return replace(after, texts={**after.texts, COMPARE: differences(compared[1], other) or EQUAL})


def _set(state: State, action: Set) -> State:
    changes = action.texts
    to = action.to or state.edits
    if to == "A" and state.edits == "both":
        to = "both"
    before, b = compared_state(state.texts), state.differences
    if to != "B":
        state = _of_source(state, changes[SOURCE.key] or SOURCE.default) if SOURCE.key in changes else state
        changes = {**_opening(_changed(state.texts, changes), changes), **changes}
    of_both = compared_state(dict.fromkeys(changes, "x")).keys()
    own = {key: text for key, text in changes.items() if to != "B" or key not in of_both}
    state = _set_first(state, own)
    after = compared_state(state.texts)
    follows = not state.compares or COMPARE in state.unread
    if COMPARE in changes or (to != "B" and (follows or after == before)):
        return state
    other: Texts = second_state(before, b)
    if to != "A":
        other = _changed(other, {key: changes[key] for key in changes if key in of_both})
    return replace(state, texts={**state.texts, COMPARE: differences(after, other) or EQUAL})


def _set_first(state: State, changes: Mapping[str, str | None]) -> State:
    """The state with changed knobs of A."""
    return replace(
        state,
        texts=_changed(state.texts, changes),
        unread=state.unread - changes.keys(),
        parameters={key: text for key, text in state.parameters.items() if key not in changes},
        wishes={key: text for key, text in state.wishes.items() if key not in changes},
    )


def _opening(texts: Texts, changes: Mapping[str, str | None]) -> Texts:
    """The cell on which a source opens, if the source or one of its own knobs was changed."""
    kind = source_kinds().get(texts.get(SOURCE.key, SOURCE.default))
    if kind is None or kind.opening is None or not changes.keys() & {SOURCE.key, *(knob.key for knob in kind.knobs)}:
        return {}
    return kind.opening(texts)


def _of_source(state: State, source: str) -> State:
    """The state with the knobs that another source has. One with a formula of its own begins as published."""
    before, texts, aside = state.texts.get(SOURCE.key, SOURCE.default), dict(state.texts), state.aside
    if has_formula(before) != has_formula(source):
        aside = {key: texts.pop(key) for key in _AFTER_SCORES if key in texts}
        texts |= state.aside
    others = {knob.key for knob in all_knobs() if not has_knob(source, knob)} - state.unread
    waiting = {**state.waiting, **{key: text for key, text in texts.items() if key in others}}
    texts = {**{key: text for key, text in waiting.items() if key not in others}, **texts}
    return replace(
        state,
        texts={key: text for key, text in texts.items() if key not in others},
        aside=aside,
        waiting={key: text for key, text in waiting.items() if key in others},
    )


# The second state.


@dataclass(frozen=True)
class _Query(Text):
    """A query string; one that is too long is discarded, since a part of it would be another state."""

    def replacement(self, text: str, default: Any) -> tuple[Any, str]:
        return OPENING, f"{self.expected} of knobs: B is what a comparison opens with"


SECOND = Knob(
    COMPARE, "", _Query(_MAX_CHARACTERS), help="The differences of the second state, as a query string.", inline=True
)


def second_state(state: Mapping[str, str], b: str) -> dict[str, str]:
    """The second state: the first one with the values in `b` replaced.

    Args:
        state: the first state by link key; an absent key is at its default.
        b: a query string of the differences, such as ``temperature=0.2&head=3``; unknown keys are ignored, see `unknown_key_notes`.
    """
    merged = {**state, **_parse_entries(b)[0]}
    return {key: text for key, text in merged.items() if text and key != COMPARE}


def opening_differences(state: Mapping[str, str]) -> str:
    """The differences with which a comparison opens if nobody has named a second state: a causal mask; a low temperature where there is a mask or none fits."""
    source = state.get(SOURCE.key, SOURCE.default)
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
    return (*(knob.key for knob in all_knobs()), *_TRACE_KEYS)
