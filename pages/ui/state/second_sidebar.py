"""The sidebar of B, the second of the two states on Compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from dataclasses import replace
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError
from attention.base.knobs import Integer
from attention.sources.link import read_source
from attention.sources.model import IMAGE
from attention.sources.split_heads import SYMBOLS
from pages.ui.state import knob_state, widgets
from pages.ui.state.session import session
from pages.ui.vision.picture_field import picture_field


def _apply(values: Mapping[str, Any]) -> None:
    """Changes knobs of B; values out of range are ignored. Only in a callback."""
    knob_state.apply_controls(values, "B")


def sidebar(notes: Callable[[str], None]) -> None:
    """Draws the widgets of B; `notes` receives the error if they describe no source."""
    st.markdown("**B**, the second state")
    read, problem = knob_state.reader(session().state.other), ""
    try:
        read_source(read)
    except AttentionError as error:
        problem = str(error)
    folds: dict[str, DeltaGenerator] = {}
    for key, field in read.fields.items():
        if key == IMAGE.key:
            picture_field(field, f"second_{key}", _apply)
        elif not field.knob.inline and not (
            isinstance(field.within, Integer) and field.within.low == field.within.high
        ):
            section = field.knob.section
            if section and section not in folds:
                folds[section] = st.expander(section)
            with folds[section] if section else nullcontext():
                # Of a matrix the field has the numbers, and its widget the text.
                text = {"value": read.texts.get(key, field.default)} if key in SYMBOLS else {}
                widgets.draw(replace(field, **text), "B")
    if problem:
        notes(problem)


def missing_fields() -> None:
    """Draws the field of a picture that B misses, where its sidebar is not drawn."""
    read = knob_state.reader(session().state.other)
    with suppress(AttentionError):  # the page shows it in place of B
        read_source(read)
    if IMAGE.key in read.fields:
        picture_field(read.fields[IMAGE.key], f"second_{IMAGE.key}", _apply, locked=True)


def last_change_button() -> None:
    """Draws a button that opens Compare with the state before the last change as A and the current one as B."""
    if knob_state.is_locked() or st.context.is_embedded:
        return
    st.button(
        "What did my last change do?",
        key="last_turn",
        on_click=knob_state.open_last_change,
        disabled=len(session().recent_states) < 2,
        type="tertiary",
        help="Opens Compare: A is the state before your last change, B is the current state.",
    )
