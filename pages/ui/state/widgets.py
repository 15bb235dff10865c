"""A widget for every knob, and the notes about values of links and state files that are out of range."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from attention.base.knobs import Choice, Integer, Knob, NameOrText, Range, Real, Switch, Text, to_text
from pages.ui.state.knob_table import allowed_range, knobs_of
from pages.ui.state.notices import Notes
from pages.ui.state.session import Session, count_action, session


def is_locked() -> bool:
    """Whether the page has no sidebar and no menu: the address has ``lock=1`` or ``present``."""
    return open_knobs() is not None


def open_knobs() -> tuple[str, ...] | None:
    """The names of the controls that stay usable on a locked page; None if the page is not locked.

    ``lock=1`` leaves none, ``present=temperature.mask`` leaves those that a teacher wants to use in front of a class.
    """
    address = session().address
    if address.get("lock") == "1":
        return ()
    present = address.get("present")
    return None if present is None else tuple(present.split("."))


def is_presented() -> bool:
    """Whether the page is projected to a class: the address has ``present``."""
    return "present" in session().address


def standing(key: str) -> str:
    """The URL value of a knob: the requested one, otherwise the value of its widget."""
    requested = session().requested
    return requested[key] if key in requested else to_text(st.session_state.get(key, None))


def current_knobs() -> dict[str, Knob]:
    """Every knob by key, with the ranges and defaults of the chosen source."""
    return knobs_of(standing("source"))


@dataclass(frozen=True)
class Knobs:
    """Reads the values of knobs and draws their widgets; `notes` receives messages about bad values in links.

    The URL omits values that equal their defaults. A bad value becomes the default. On a locked page no
    widget is drawn, and the values are those of the address.
    """

    notes: Notes
    # Looked up once for all knobs: each access costs as much as drawing a line of text.
    locked: bool = field(default_factory=is_locked)
    session: Session = field(default_factory=session)

    def value(self, knob: Knob, within: Range | None = None, fixed: str = "", **more: Any) -> Any:
        """The value of a knob. Draws its widget if it has one.

        Args:
            knob: the knob.
            within: the allowed values, if they are not those that the knob declares.
            fixed: the text shown in a knob that has no effect now; its widget is disabled.
            more: further arguments of the widget.
        """
        key, within, ours = knob.key, within or allowed_range(knob), self.session
        default = within.nearest(knob.default)
        ours.knobs_read.add(key)
        ours.defaults[key] = to_text(default)
        if key in ours.requested:
            self._take(knob, within, default)
        elif key in st.session_state and not within.accepts(value := st.session_state[key]):
            # Otherwise the address would keep a value that no longer exists.
            st.session_state[key] = default if isinstance(within, Choice) else within.nearest(value)
        if self.locked or knob.inline:
            return st.session_state.setdefault(key, default)
        drawn = (within, default, fixed)
        if ours.widget_arguments.get(key, drawn) != drawn and key in st.session_state:
            st.session_state[key] = st.session_state[key]  # to Streamlit this is a new widget with its own value
        ours.widget_arguments[key] = drawn
        return widget(knob, within, default, fixed, **{"key": key, "on_change": count_action, **more})

    def _take(self, knob: Knob, within: Range, default: Any) -> None:
        """Sets a knob to its requested value, and notes a bad one."""
        key, ours = knob.key, self.session
        text = ours.requested[key]
        value, note = knob.read(text, within, default)
        st.session_state[key] = value
        ours.consumed[key] = ours.requested.pop(key)
        if replaced := ours.replaced_widgets.get(key):
            replaced.value, replaced.is_applied = value, True
        if note:
            self.notes.warn(note)


def widget(knob: Knob, within: Range, default: Any, fixed: str = "", **more: Any) -> Any:
    """Draws the widget for a range and returns its value; `more` has the key and further arguments of the widget."""
    more = {"label": knob.label, "help": knob.help or None, "disabled": bool(fixed), **more}
    typed = {"value": default, "placeholder": fixed or knob.placeholder or None}
    match within:
        case Switch():
            return st.toggle(value=default, **more)
        case NameOrText():
            options = tuple(dict.fromkeys((default, *within.options)))
            return st.selectbox(options=options, index=0, accept_new_options=True, **more)
        case Text(lines=1):
            return st.text_input(max_chars=within.max_length, **typed, **more)
        case Text():
            return st.text_area(max_chars=within.max_length, height=40 + 20 * within.lines, **typed, **more)
        case Choice(is_slider=True):
            return st.select_slider(options=within.options, value=default, **more)
        case Choice():
            if within.names:
                more["format_func"] = dict(zip(within.options, within.names, strict=True)).__getitem__
            index = None if default is None else within.options.index(default)
            return st.selectbox(options=within.options, index=index, placeholder=typed["placeholder"], **more)
        case Real(optional=False, bounded=True):
            return st.slider(
                min_value=float(within.low), max_value=float(within.high), value=default, step=0.05, **more
            )
        case Integer() | Real():
            kind, step = (int, within.step) if isinstance(within, Integer) else (float, 1.0)
            high = kind(within.high) if within.bounded else None
            return st.number_input(min_value=kind(within.low), max_value=high, step=step, **typed, **more)
    raise TypeError(within)
