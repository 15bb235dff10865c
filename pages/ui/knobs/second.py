"""The second of two states: what it is, what a hand turns of it, and its own sidebar. All of it stands in one knob of the address."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError, File, Trace
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice, Range, Real, Whole, in_url
from attention.numbers.compare import Place
from attention.sources import link, second
from attention.sources.knobs import SEQUENCE
from attention.sources.reading.matrix import Matrix, Stack
from pages.ui.knobs import files, inputs
from pages.ui.knobs.controls import Stand
from pages.ui.knobs.session import session
from pages.ui.knobs.table import HEAD, KNOBS, LAYER, LIMITS, TURN, of, offered
from pages.ui.knobs.widgets import here, locked, widget


class Second(link.Link):
    """The knobs of the second state, as the address and the hand have them."""

    def __init__(self) -> None:
        super().__init__(texts(), LIMITS)

    def file(self, knob: Knob) -> File:
        """The file that was uploaded here."""
        asked = self.knob(knob)
        if found := files.here(asked):
            return found
        raise link.not_here(asked)

    def place(self, trace: Trace) -> Place:
        """The layer and the head that it shows of its trace."""
        layer = self.knob(LAYER, Whole(0, len(trace.layers) - 1))
        return Place(layer, self.knob(HEAD, Whole(0, trace.layers[layer].n_heads - 1)))


class _Drawn(Second):
    """The same, with a widget for each knob of the sidebar; what one of them is let go at goes into the address."""

    def __init__(self) -> None:
        super().__init__()
        self._folds: dict[str, DeltaGenerator] = {}

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """What the address says of it; its widget shows that."""
        within = within or offered(knob)
        value = super().knob(knob, within, fixed)
        if knob.held:
            return value
        key = f"second_{knob.key}"
        st.session_state[key] = value

        def let_go() -> None:
            turn_second({knob.key: st.session_state[key]})

        # The default of a widget that is told its value is not looked at, but must be one that may be.
        if knob.fold and knob.fold not in self._folds:
            self._folds[knob.fold] = st.expander(knob.fold)
        with self._folds[knob.fold] if knob.fold else nullcontext():
            widget(knob, within, within.nearest(knob.default), fixed, key=key, on_change=let_go)
        return value

    def sequence(self, names: Sequence[str]) -> int:
        """Which of several sequences it shows."""
        if len(names) < 2:
            return 0
        return int(
            self.knob(
                SEQUENCE,
                Choice(
                    tuple(range(len(names))), tuple(f"{i}: {one}" if one else str(i) for i, one in enumerate(names))
                ),
            )
        )

    def matrices(self, names: Sequence[str]) -> dict[str, Matrix | Stack]:
        """Its matrices, each in a field to paste into."""
        for name in names:
            self.knob(KNOBS[name])
        return super().matrices(names)


def first() -> dict[str, str]:
    """The first state, as a link says it, with what a hand has turned since the page last ran as a whole."""
    known = here()
    turned = {key: in_url(value) for key, value in session().turned.items()}
    found = {**inputs.state(whole=True), **turned}
    return second.compared({key: text for key, text in found.items() if text != in_url(known[key].default)})


def texts() -> dict[str, str]:
    """The second state, as a link says it."""
    return second.second(first(), str(inputs.now(second.KEY)))


def stand(asked: Second) -> Stand:
    """The second state, for controls."""
    known = of(asked.standing(KNOBS["source"]))
    return Stand(
        asked.standing(KNOBS["source"]) or KNOBS["source"].default,
        lambda key: asked.knob(known[key], offered(known[key])),
    )


def is_turned() -> bool:
    """Whether a knob turns the second state alone: on the page that compares, while its switch says so."""
    return session().page == "Compare" and inputs.now(TURN.key) == "B"


def turned_alone() -> tuple[str, ...]:
    """The knobs that the page must not write into the address by itself: only the second state is turned."""
    return tuple(second.compared(dict.fromkeys(KNOBS, "x"))) if is_turned() else ()


def now(key: str) -> Any:
    """What a held knob stands at in the state that is turned."""
    return stand(Second()).value(key) if is_turned() else inputs.now(key)


def turn(turned: dict[str, Any]) -> None:
    """Takes over what a hand has turned: of the first state, the second, or both. Only in a callback."""
    if session().page != "Compare":
        inputs.turn(turned)
        return
    theirs = {key: value for key, value in turned.items() if key in second.compared(dict.fromkeys(turned, "x"))}
    if is_turned():
        turn_second(theirs)
        inputs.turn({key: value for key, value in turned.items() if key not in theirs})
        return
    before = first()
    inputs.turn(turned)
    inputs.hold({second.KEY: _followed(before, first())})


def turn_second(turned: dict[str, Any]) -> None:
    """Turns knobs of the second state, where they may be so. Only in a callback."""
    one, other = first(), texts()
    known = of({**other, **{key: in_url(value) for key, value in turned.items()}}.get("source", ""))
    for key, value in turned.items():
        if not offered(known[key]).takes(value):
            continue
        text = in_url(float(value) if isinstance(known[key].range, Real) and value is not None else value)
        other[key] = "" if text == in_url(known[key].default) else text
    inputs.hold({second.KEY: second.differing(one, other)})


def look_at(layer: int, head: int) -> None:
    """Shows another layer and head of both states. Only in a callback."""
    before = first()
    inputs.turn({"layer": layer, "head": head})
    inputs.hold({second.KEY: second.turned(before, first(), str(inputs.now(second.KEY)), both=True)})
    session().first = first()  # both were turned: there is nothing to follow


def follow() -> None:
    """After the sidebar has run: the second state stays as it was where the first alone was turned."""
    ours, found = session(), first()
    if ours.first is not None and ours.first != found:
        st.session_state[second.KEY] = _followed(ours.first, found)
    ours.first = found


def _followed(before: dict[str, str], after: dict[str, str]) -> str:
    """What the second state says when the first was turned from `before` to `after`."""
    return second.turned(before, after, str(inputs.now(second.KEY)), inputs.now(TURN.key) == "both")


def sidebar(notes: Callable[[str], None]) -> None:
    """The widgets of the second state; what its link got wrong, and why it is none, goes to `notes`."""
    st.markdown("**B**, the second state")
    drawn = _Drawn()
    try:
        link.source(drawn)
    except AttentionError as error:
        notes(str(error))


def last_turn() -> None:
    """A button that opens the comparison of what is now, as B, with what was before the last knob was turned."""
    if locked() or st.context.is_embedded:
        return
    states = session().states

    def open_both() -> None:
        before, after = states
        now = inputs.state(whole=True)
        shown = {key: text for key, text in now.items() if key not in second.compared(now)}
        inputs.ask_for({**shown, **before, second.KEY: second.differing(before, after)}, "Compare")

    st.button(
        "What did the last knob change?",
        key="last_turn",
        on_click=open_both,
        disabled=len(states) < 2,
        type="tertiary",
        help="Opens Compare: A is what was before the last knob was turned, B what is now.",
    )
