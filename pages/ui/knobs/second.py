"""The second of the two states on Compare: its values, its changes, and its sidebar. One parameter of the address has all of it."""

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
    """The reader of the second state's knobs, pending changes included."""

    def __init__(self) -> None:
        super().__init__(texts(), LIMITS)

    def file(self, knob: Knob) -> File:
        """The uploaded file.

        Raises:
            AwaitedError: the requested file has not been uploaded.
        """
        requested = self.knob(knob)
        if uploaded := files.here(requested):
            return uploaded
        raise link.not_here(requested)

    def place(self, trace: Trace) -> Place:
        """The chosen layer and head of its trace."""
        layer = self.knob(LAYER, Whole(0, len(trace.layers) - 1))
        return Place(layer, self.knob(HEAD, Whole(0, trace.layers[layer].n_heads - 1)))


class _Drawn(Second):
    """The same reader, which also draws a sidebar widget for each knob. Changes of widgets go into the address."""

    def __init__(self) -> None:
        super().__init__()
        self._folds: dict[str, DeltaGenerator] = {}

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The knob's value in the address. Draws its widget with that value."""
        within = within or offered(knob)
        value = super().knob(knob, within, fixed)
        if knob.held:
            return value
        key = f"second_{knob.key}"
        st.session_state[key] = value

        def on_widget_change() -> None:
            turn_second({knob.key: st.session_state[key]})

        # Streamlit ignores the default of a widget with a value, but the default must be valid.
        if knob.fold and knob.fold not in self._folds:
            self._folds[knob.fold] = st.expander(knob.fold)
        with self._folds[knob.fold] if knob.fold else nullcontext():
            widget(knob, within, within.nearest(knob.default), fixed, key=key, on_change=on_widget_change)
        return value

    def sequence(self, names: Sequence[str]) -> int:
        """The index of the chosen sequence."""
        if len(names) < 2:
            return 0
        return int(
            self.knob(
                SEQUENCE,
                Choice(
                    tuple(range(len(names))), tuple(f"{i}: {name}" if name else str(i) for i, name in enumerate(names))
                ),
            )
        )

    def matrices(self, names: Sequence[str]) -> dict[str, Matrix | Stack]:
        """The matrices of the second state. Draws a text field for each."""
        for name in names:
            self.knob(KNOBS[name])
        return super().matrices(names)


def first() -> dict[str, str]:
    """The first state as URL values, pending changes included."""
    knobs = here()
    pending = {key: in_url(value) for key, value in session().turned.items()}
    state = {**inputs.state(whole=True), **pending}
    return second.compared({key: text for key, text in state.items() if text != in_url(knobs[key].default)})


def texts() -> dict[str, str]:
    """The second state as URL values."""
    return second.second(first(), str(inputs.now(second.KEY)))


def stand(reader: Second) -> Stand:
    """The second state, for the row of controls."""
    knobs = of(reader.standing(KNOBS["source"]))
    return Stand(
        reader.standing(KNOBS["source"]) or KNOBS["source"].default,
        lambda key: reader.knob(knobs[key], offered(knobs[key])),
    )


def is_turned() -> bool:
    """Whether knobs change only the second state: on Compare, while its switch is at B."""
    return session().page == "Compare" and inputs.now(TURN.key) == "B"


def turned_alone() -> tuple[str, ...]:
    """The keys that the page must not write into the address, because the knobs change only the second state."""
    return tuple(second.compared(dict.fromkeys(KNOBS, "x"))) if is_turned() else ()


def now(key: str) -> Any:
    """The value of an inline knob in the state that the knobs change."""
    return stand(Second()).value(key) if is_turned() else inputs.now(key)


def turn(values: dict[str, Any]) -> None:
    """Applies changed knobs to the first state, the second, or both. Only in a callback."""
    if session().page != "Compare":
        inputs.turn(values)
        return
    in_state = second.compared(dict.fromkeys(values, "x"))
    state_values = {key: value for key, value in values.items() if key in in_state}
    if is_turned():
        turn_second(state_values)
        inputs.turn({key: value for key, value in values.items() if key not in state_values})
        return
    before = first()
    inputs.turn(values)
    inputs.hold({second.KEY: _followed(before, first())})


def turn_second(values: dict[str, Any]) -> None:
    """Changes knobs of the second state; values out of range are ignored. Only in a callback."""
    state_a, state_b = first(), texts()
    knobs = of({**state_b, **{key: in_url(value) for key, value in values.items()}}.get("source", ""))
    for key, value in values.items():
        if not offered(knobs[key]).takes(value):
            continue
        text = in_url(float(value) if isinstance(knobs[key].range, Real) and value is not None else value)
        state_b[key] = "" if text == in_url(knobs[key].default) else text
    inputs.hold({second.KEY: second.differing(state_a, state_b)})


def look_at(layer: int, head: int) -> None:
    """Shows another layer and head of both states. Only in a callback."""
    before = first()
    inputs.turn({"layer": layer, "head": head})
    inputs.hold({second.KEY: second.turned(before, first(), str(inputs.now(second.KEY)), both=True)})
    session().first = first()  # both states have changed already, so `follow` has nothing to do


def follow() -> None:
    """Updates the second state's differences after the sidebar has changed the first state."""
    ours, current = session(), first()
    if ours.first is not None and ours.first != current:
        st.session_state[second.KEY] = _followed(ours.first, current)
    ours.first = current


def _followed(before: dict[str, str], after: dict[str, str]) -> str:
    """The differences of the second state when the first one changes from `before` to `after`."""
    return second.turned(before, after, str(inputs.now(second.KEY)), inputs.now(TURN.key) == "both")


def sidebar(notes: Callable[[str], None]) -> None:
    """Draws the widgets of the second state; `notes` receives the error if they describe no source."""
    st.markdown("**B**, the second state")
    try:
        link.source(_Drawn())
    except AttentionError as error:
        notes(str(error))


def last_turn() -> None:
    """Draws a button that opens Compare with the state before the last change as A and the current one as B."""
    if locked() or st.context.is_embedded:
        return
    states = session().states

    def open_both() -> None:
        before, after = states
        current = inputs.state(whole=True)
        display = {key: text for key, text in current.items() if key not in second.compared(current)}
        inputs.ask_for({**display, **before, second.KEY: second.differing(before, after)}, "Compare")

    st.button(
        "What did my last change do?",
        key="last_turn",
        on_click=open_both,
        disabled=len(states) < 2,
        type="tertiary",
        help="Opens Compare: A is the state before your last change, B is the current state.",
    )
