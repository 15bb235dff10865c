"""The second of the two states on Compare: its values, its changes, and its sidebar. One parameter of the address has all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError, File, Trace
from attention.base.knobs import Choice, Integer, Knob, Range, Real, to_text
from attention.comparison.comparison import HeadIndex
from attention.files.matrix import Matrix, Stack
from attention.files.picture import Picture
from attention.pictures import view
from attention.sources import link
from attention.sources import second_state as second
from attention.sources.file_source import missing_file_error
from attention.sources.layer_knobs import SEQUENCE
from attention.vision.examples import PictureNames
from pages.ui.server.limits import LIMITS
from pages.ui.state import knob_state, uploaded_file
from pages.ui.state.control_row import ControlState
from pages.ui.state.knob_table import EDITING, HEAD, KNOBS, LAYER, allowed_range, knobs_of
from pages.ui.state.session import session
from pages.ui.state.widgets import current_knobs, is_locked, widget
from pages.ui.vision.picture_field import find_picture, picture_field


class SecondState(link.LinkReader):
    """The reader of the second state's knobs, pending changes included."""

    def __init__(self) -> None:
        super().__init__(second_state(), LIMITS)

    def file(self, knob: Knob) -> File:
        """The uploaded file.

        Raises:
            AwaitedError: the requested file has not been uploaded.
        """
        requested = self.knob(knob)
        if uploaded := uploaded_file.find_uploaded(requested):
            return uploaded
        raise missing_file_error(requested)

    def known_picture(self, name: str) -> Picture | None:
        """The picture of ours, or the uploaded one, of this name."""
        return find_picture(name)

    def place(self, trace: Trace) -> HeadIndex:
        """The chosen layer and head of its trace."""
        layer = self.knob(LAYER, view.layer_range(trace))
        return HeadIndex(layer, self.knob(HEAD, Integer(0, trace.layers[layer].n_heads - 1)))


class _SidebarReader(SecondState):
    """The same reader, which also draws a sidebar widget for each knob. Changes of widgets go into the address."""

    def __init__(self) -> None:
        super().__init__()
        self._folds: dict[str, DeltaGenerator] = {}

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The knob's value in the address. Draws its widget with that value."""
        within = within or allowed_range(knob)
        value = super().knob(knob, within, fixed)
        if knob.inline:
            return value
        key = f"second_{knob.key}"
        st.session_state[key] = value

        def on_widget_change() -> None:
            apply_to_second({knob.key: st.session_state[key]})

        # Streamlit ignores the default of a widget with a value, but the default must be valid.
        if knob.section and knob.section not in self._folds:
            self._folds[knob.section] = st.expander(knob.section)
        with self._folds[knob.section] if knob.section else nullcontext():
            widget(knob, within, within.nearest(knob.default), fixed, key=key, on_change=on_widget_change)
        return value

    def pictures(self, knob: Knob, within: PictureNames) -> tuple[Picture, ...]:
        """The pictures of the second state. Draws their fields."""
        return picture_field(self.knob(knob, within), within, f"second_{knob.key}", apply_to_second)

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


class _MissingReader(SecondState):
    """The same reader, which draws only the field of a missing picture."""

    def pictures(self, knob: Knob, within: PictureNames) -> tuple[Picture, ...]:
        """The pictures of the second state. Draws their field if one has not been uploaded."""
        return picture_field(self.knob(knob, within), within, f"second_{knob.key}", apply_to_second, locked=True)


def first_state() -> dict[str, str]:
    """The first state as URL values, pending changes included."""
    knobs = current_knobs()
    pending = {key: to_text(value) for key, value in session().pending_values.items()}
    state = {**knob_state.state(whole=True), **pending}
    return second.compared_state({key: text for key, text in state.items() if text != to_text(knobs[key].default)})


def second_state() -> dict[str, str]:
    """The second state as URL values."""
    return second.second_state(first_state(), _differences())


def _differences() -> str:
    """The differences of the second state: those of the address; on Compare, where it names none, those with which it opens."""
    named = str(knob_state.current_value(second.KEY))
    return named if named or session().page != "Compare" else second.opening_differences(first_state())


def control_state(reader: SecondState) -> ControlState:
    """The second state, for the row of controls."""
    knobs = knobs_of(reader.raw_value(KNOBS["source"]))
    return ControlState(
        reader.raw_value(KNOBS["source"]) or KNOBS["source"].default,
        lambda key: reader.knob(knobs[key], allowed_range(knobs[key])),
    )


def edits_second() -> bool:
    """Whether knobs change only the second state: on Compare, while its switch is at B."""
    return session().page == "Compare" and knob_state.current_value(EDITING.key) == "B"


def excluded_keys() -> tuple[str, ...]:
    """The keys that the page must not write into the address, because the knobs change only the second state."""
    return tuple(second.compared_state(dict.fromkeys(KNOBS, "x"))) if edits_second() else ()


def current_value(key: str) -> Any:
    """The value of an inline knob in the state that the knobs change."""
    return control_state(SecondState()).value(key) if edits_second() else knob_state.current_value(key)


def apply_controls(values: dict[str, Any]) -> None:
    """Applies changed knobs to the first state, the second, or both. Only in a callback."""
    if session().page != "Compare":
        knob_state.apply_controls(values)
        return
    in_state = second.compared_state(dict.fromkeys(values, "x"))
    state_values = {key: value for key, value in values.items() if key in in_state}
    if edits_second():
        apply_to_second(state_values)
        knob_state.apply_controls({key: value for key, value in values.items() if key not in state_values})
        return
    before, b = first_state(), _differences()
    knob_state.apply_controls(values)
    knob_state.hold({second.KEY: _differences_after(before, first_state(), b)})


def apply_to_second(values: dict[str, Any]) -> None:
    """Changes knobs of the second state; values out of range are ignored. Only in a callback."""
    state_a, state_b = first_state(), second_state()
    knobs = knobs_of({**state_b, **{key: to_text(value) for key, value in values.items()}}.get("source", ""))
    for key, value in values.items():
        if not allowed_range(knobs[key]).accepts(value):
            continue
        text = to_text(float(value) if isinstance(knobs[key].range, Real) and value is not None else value)
        state_b[key] = "" if text == to_text(knobs[key].default) else text
    knob_state.hold({second.KEY: second.differences(state_a, state_b) or second.EQUAL})


def show_head(layer: int, head: int) -> None:
    """Shows another layer and head of both states. Only in a callback."""
    before, differences = first_state(), _differences()
    knob_state.apply_controls({"layer": layer, "head": head})
    knob_state.hold(
        {second.KEY: second.rebase_differences(before, first_state(), differences, both=True) or second.EQUAL}
    )
    session().first_state = first_state()  # both states have changed already, so `follow_first` has nothing to do


def follow_first() -> None:
    """Updates the second state's differences after the sidebar has changed the first state."""
    ours, current = session(), first_state()
    if ours.first_state is not None and ours.first_state != current:
        b = str(knob_state.current_value(second.KEY)) or second.opening_differences(ours.first_state)
        st.session_state[second.KEY] = _differences_after(ours.first_state, current, b)
    ours.first_state = current


def _differences_after(before: dict[str, str], after: dict[str, str], b: str) -> str:
    """The differences of the second state, `b`, when the first one changes from `before` to `after`."""
    return second.rebase_differences(before, after, b, knob_state.current_value(EDITING.key) == "both") or second.EQUAL


def sidebar(notes: Callable[[str], None]) -> None:
    """Draws the widgets of the second state; `notes` receives the error if they describe no source."""
    st.markdown("**B**, the second state")
    try:
        link.read_source(_SidebarReader())
    except AttentionError as error:
        notes(str(error))


def missing_fields() -> None:
    """Draws the field of a picture that the second state misses, where its sidebar is not drawn."""
    with suppress(AttentionError):  # the page shows it in place of B
        link.read_source(_MissingReader())


def last_change_button() -> None:
    """Draws a button that opens Compare with the state before the last change as A and the current one as B."""
    if is_locked() or st.context.is_embedded:
        return
    states = session().recent_states

    def open_both() -> None:
        before, after = states
        current = knob_state.state(whole=True)
        display = {key: text for key, text in current.items() if key not in second.compared_state(current)}
        knob_state.open_page(
            {**display, **before, second.KEY: second.differences(before, after) or second.EQUAL}, "Compare"
        )

    st.button(
        "What did my last change do?",
        key="last_turn",
        on_click=open_both,
        disabled=len(states) < 2,
        type="tertiary",
        help="Opens Compare: A is the state before your last change, B is the current state.",
    )
