"""The choices above a result over many texts. Their knobs have no widget of their own, so that their values last on other pages; these widgets set them."""

from __future__ import annotations

from typing import Any

import streamlit as st

from attention.params.knob import Knob
from attention.params.ranges import Choice
from pages.ui.server import results
from pages.ui.server.limits import ALLOW_LOCAL_MODELS
from pages.ui.state import chosen_result, knob_state
from pages.ui.state.chosen_result import MANY, ONE, OTHER, OVER, RESULT
from pages.ui.state.widgets import Knobs


def picker(knobs: Knobs, knob: Knob, within: Choice | None = None, segmented: bool = False, **more: Any) -> Any:
    """The value of an inline knob that is one of several options. Draws a list, or `segmented` buttons, unless the page is locked."""
    value = knobs.value(knob, within)
    if knobs.locked:
        return value
    options = (within or knob.range).options  # type: ignore[union-attr]  # a Choice
    key = f"{knob.key}_field"
    st.session_state[key] = value
    arguments = {"key": key, "on_change": _picked, "args": (knob.key, key), "help": knob.help or None, **more}
    if segmented:
        st.segmented_control(
            knob.label, options, required=True, label_visibility="collapsed", **(arguments | {"help": None})
        )
    else:
        st.selectbox(knob.label, options, **arguments)
    return value


def heads_over(knobs: Knobs) -> str:
    """The choice between one text and many; with many, also between results."""
    over: str = picker(knobs, OVER, OVER.range, segmented=True)  # type: ignore[arg-type]  # a Choice
    if over == MANY and not knobs.locked:
        _result_field(knobs, RESULT, "Choose a result", 230)
        if str(knobs.value(RESULT)):
            _result_field(knobs, OTHER, "nothing", 230)
        with st.popover("Upload …"):
            chosen_result.upload_field(RESULT, "A result: heads.parquet")
            if str(knobs.value(RESULT)):
                chosen_result.upload_field(OTHER, "A second result, to compare")
    return over


def _result_field(knobs: Knobs, knob: Knob, empty: str, width: int) -> None:
    """The list of results on offer; other names can be typed where paths are allowed."""
    value = str(knobs.value(knob))
    options = list(dict.fromkeys(["", *([value] if value else []), *results.names()]))
    if len(options) == 1 and not ALLOW_LOCAL_MODELS:
        return
    key = f"{knob.key}_field"
    st.session_state[key] = value
    placeholder = "Choose, or type a path" if ALLOW_LOCAL_MODELS else empty
    st.selectbox(
        knob.label, options, key=key, on_change=_picked, args=(knob.key, key), help=knob.help, accept_new_options=ALLOW_LOCAL_MODELS, width=width,
        placeholder=placeholder, format_func=lambda name: _label(name) or empty,
    )  # fmt: skip


def _label(name: str) -> str:
    short = chosen_result.short_name(name)
    return f"{short} (uploaded)" if short != name else short


def _picked(knob: str, field: str) -> None:
    value = st.session_state[field]
    knob_state.hold({knob: "" if value is None else value})


__all__ = ["MANY", "ONE", "heads_over", "picker"]
