"""A widget for every knob that has one: drawn from what was read, and looked at when the next run begins.

A widget has no value of its own. A run compares what each holds with what it was drawn with; the difference is an action of the
user. Streamlit changes a widget only where its value was changed by something else, so that nobody's typing is overwritten.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import streamlit as st

from attention.base.knobs import Choice, Integer, Knob, NameOrText, Range, Real, Switch, Text, to_text
from attention.sources.reader import Field
from attention.sources.state import Set
from pages.ui.state import knob_state
from pages.ui.state.notices import Notes
from pages.ui.state.session import Drawn, count_action, session


@dataclass(frozen=True)
class Knobs:
    """Reads the values of knobs and draws their widgets; `notes` receives messages about bad values in links."""

    notes: Notes
    locked: bool = field(default_factory=knob_state.is_locked)

    def value(self, knob: Knob, within: Range | None = None, **more: Any) -> Any:
        """The value of a knob. Draws its widget if it has one; a locked page has none.

        Args:
            within: the allowed values, if they are not those that the knob declares.
            more: further arguments of the widget.
        """
        reader = knob_state.reader()
        value = reader.knob(knob, within)
        knob_state.take(reader, self.notes)
        if not (self.locked or knob.inline):
            draw(reader.fields[knob.key], **more)
        return value


def draw(shown: Field, of: str = "A", **more: Any) -> None:
    """Draws the widget of a knob with the value that was read; `of`: the state that the knob belongs to."""
    ours, knob, value = session(), shown.knob, shown.value
    key = knob.key if of == "A" else f"second_{knob.key}"
    drawn = Drawn(
        knob.key, of, to_text(value), to_text(shown.default), (shown.within, shown.default, shown.fixed), ours.runs
    )
    before = ours.drawn.get(key)
    # To Streamlit, a widget of another page, or with other arguments, is a new one with its own value.
    is_new = before is None or before.arguments != drawn.arguments
    if is_new or st.session_state.get(key, st) != value:
        st.session_state[key] = value
    # The knob was changed elsewhere, such as by typing into the first screen: the page may still send the widget's earlier text.
    if before and not is_new and before.text != drawn.text:
        ours.replaced.setdefault(key, set()).add(before.text)
    ours.drawn[key] = drawn
    _widget(shown, **{"key": key, **more})


def apply_changes() -> None:
    """Applies what the user has changed in widgets since they were drawn."""
    # One copy: each access to the session state costs as much as drawing a line of text.
    ours, held = session(), st.session_state.to_dict()
    for key, drawn in [*ours.drawn.items()]:
        text = to_text(held[key]) if key in held else drawn.text
        if text == drawn.text or not drawn.of or is_late(key, text):
            continue
        knob_state.act(Set({drawn.knob: None if text == drawn.default else text}, "B" if drawn.of == "B" else "A"))
        count_action()
        ours.drawn[key] = drawn._replace(text=text)  # only now: Streamlit may stop the run while the change is applied


def is_late(key: str, text: str) -> bool:
    """Whether a message carries an earlier text of a widget, which the page sent before it saw that something else had replaced it."""
    replaced = session().replaced
    if text in replaced.get(key, ()):
        return True
    replaced.pop(key, None)  # the user has changed it since
    return False


def _widget(shown: Field, **more: Any) -> Any:
    knob, within, default, fixed = shown.knob, shown.within, shown.default, shown.fixed
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
