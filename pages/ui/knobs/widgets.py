"""A widget for every knob, bound to the URL, and what is said when a link or a state file asks for what it cannot be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attention.formula.knobs import Knob
from attention.formula.ranges import Choice, Named, Range, Real, Switch, Text, Whole, in_url
from pages.ui.knobs.session import Session, session
from pages.ui.knobs.table import of, offered
from pages.ui.notes import Notes


def locked() -> bool:
    """Whether the state is shown without sidebar and menu: the address says ``lock=1``, or which knobs are `left_open`."""
    return left_open() is not None


def left_open() -> tuple[str, ...] | None:
    """The knobs above the maps that can be turned; None: all of them, and everything else too.

    ``lock=1`` leaves none, ``present=temperature.mask`` what a teacher wants to turn in front of a class.
    """
    if st.query_params.get("lock") == "1":
        return ()
    present = st.query_params.get("present")
    return None if present is None else tuple(present.split("."))


def presented() -> bool:
    """Whether the page is shown to a class: ``present`` stands in the address, with the knobs that are `left_open`."""
    return "present" in st.query_params


def went_back() -> bool:
    """Whether this run was caused by the browser's Back or Forward: then the address is right, and the session is not."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def peek(key: str) -> str:
    """What a knob will be, as in the URL, before its widget is drawn."""
    asked = session().asked_for
    return asked[key] if key in asked else standing(key)


def standing(key: str) -> str:
    """What a knob stands at, as in the URL; before its widget was ever drawn, what the URL says."""
    return in_url(st.session_state[key] if key in st.session_state else st.query_params.get(key))


def write(key: str, text: str) -> None:
    """Makes the address say what a knob stands at; a knob without a `text` leaves it."""
    if text and st.query_params.get(key) != text:
        st.query_params[key] = text
    elif not text and key in st.query_params:
        del st.query_params[key]


def here() -> dict[str, Knob]:
    """Every knob by key, as the chosen source has it."""
    return of(standing("source"))


@dataclass(frozen=True)
class Knobs:
    """Gives every knob its value, and draws the widgets of those that have one; `notes` is told what a link got wrong.

    A value that equals its default leaves the URL. A bad value falls back to the default. Where the
    address is locked no widget is drawn, and the values are those of the address.
    """

    notes: Notes
    # Looked up once for all knobs: each look costs as much as drawing a line of text.
    locked: bool = field(default_factory=locked)
    session: Session = field(default_factory=session)

    def value(self, knob: Knob, within: Range | None = None, fixed: str = "", **more: Any) -> Any:
        """The value of a knob, and its widget where it has one.

        Args:
            knob: which one.
            within: what it may be, where that is not what is declared.
            fixed: what it stands at where it does nothing; its widget cannot be turned then.
            more: for the widget.
        """
        key, within = knob.key, within or offered(knob)
        default = within.nearest(knob.default)
        if knob.held:
            self.session.read.add(key)
        if key in st.session_state and not within.takes(now := st.session_state[key]):
            # Otherwise the address would keep what is no longer there.
            st.session_state[key] = default if isinstance(within, Choice) else within.nearest(now)
        self.session.defaults[key] = in_url(default)
        if isinstance(within, Choice) and within.names:
            return self._named(knob, within, default)
        if key in self.session.asked_for:
            st.session_state[key] = self._read(knob, self.session.asked_for.pop(key), within, default)
        asked = None if key in st.session_state else st.query_params.get(key)  # by a link, which is read once
        if self.locked or knob.held:
            if asked is not None:
                st.session_state[key] = self._read(knob, asked, within, default)
            return st.session_state.setdefault(key, default)
        value = self._widget(knob, within, default, asked, fixed, **more)
        if asked is not None:
            self._read(knob, asked, within, default)
        return value

    def _widget(self, knob: Knob, within: Range, default: Any, asked: str | None, fixed: str, **more: Any) -> Any:
        """The widget of a kind of range. Its value stands in the session, and in the address unless it is the default."""
        key = knob.key
        typed = isinstance(within, Whole) or (isinstance(within, Real) and (within.optional or not within.bounded))
        if typed and asked is not None and knob.read(asked, within, default)[1]:
            # Streamlit 1.67 makes an int of 5.5, and raises where it is infinite; so it leaves the address first.
            self._read(knob, asked, within, default)
            del st.query_params[key]
            st.rerun()
        stands = st.session_state.get(key, default)
        if isinstance(within, Choice) and not within.scale and key not in st.query_params and stands != default:
            # What stands at the default of other options is no part of an address; set again, it becomes one.
            st.session_state[key] = stands
        return widget(knob, within, default, fixed, **{"key": key, "bind": "query-params", **more})

    def _named(self, knob: Knob, within: Choice, default: Any) -> Any:
        """A select box that shows the names of its options; the options themselves stand in the URL.

        Streamlit writes what is shown into the URL of a bound widget, so this one is not bound.
        """
        key, written = knob.key, self.session.named
        there = st.query_params.get(key)
        if key in self.session.asked_for:
            st.session_state[key] = self._read(knob, self.session.asked_for.pop(key), within, default)
        elif there is not None and (key not in st.session_state or there != written.get(key)):
            st.session_state[key] = self._read(knob, there, within, default)  # a link, or Back
        elif key not in st.session_state or (there is None and written.get(key) is not None):
            st.session_state[key] = default
        if self.locked:
            return st.session_state[key]
        names = dict(zip(within.options, within.names, strict=True))
        value = st.selectbox(knob.label, within.options, key=key, format_func=names.__getitem__, help=knob.help)
        written[key] = in_url(value) if value != default else None
        write(key, written[key] or "")
        return value

    def _read(self, knob: Knob, text: str, within: Range, default: Any) -> Any:
        value, note = knob.read(text, within, default)
        if note:
            self.notes.keep(note)
        return value


def widget(knob: Knob, within: Range, default: Any, fixed: str = "", **more: Any) -> Any:
    """Draws the widget of a kind of range, and gives what it stands at; `more` has its key, and what else it is drawn with."""
    more = {"label": knob.label, "help": knob.help or None, "disabled": bool(fixed), **more}
    typed = {"value": default, "placeholder": fixed or knob.empty or None}
    match within:
        case Switch():
            return st.toggle(value=default, **more)
        case Named():
            options = tuple(dict.fromkeys((default, *within.there)))
            return st.selectbox(options=options, index=0, accept_new_options=True, **more)
        case Text(lines=1):
            return st.text_input(max_chars=within.longest, **typed, **more)
        case Text():
            return st.text_area(max_chars=within.longest, height=40 + 20 * within.lines, **typed, **more)
        case Choice(scale=True):
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
        case Whole() | Real():
            kind, step = (int, within.step) if isinstance(within, Whole) else (float, 1.0)
            high = kind(within.high) if within.bounded else None
            return st.number_input(min_value=kind(within.low), max_value=high, step=step, **typed, **more)
    raise TypeError(within)
