"""The choices above a result over many texts. Their knobs have no widget of their own, so that their values last on other pages; these widgets set them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from attention.params.knob import Knob
from attention.params.ranges import Choice
from pages.ui.server import results
from pages.ui.server.limits import ALLOW_LOCAL_MODELS
from pages.ui.state import chosen_result, knob_state
from pages.ui.state.chosen_result import MANY, OTHER, OVER, RESULT, Opened
from pages.ui.state.widgets import Knobs


def buttons(knobs: Knobs, knob: Knob, options: tuple[str, ...]) -> str:
    """The value of an inline knob with few options. Draws them as buttons side by side, unless the page is locked."""
    value: str = knobs.value(knob, Choice(options))
    if not knobs.locked:
        key = _field(knob, value)
        st.segmented_control(knob.label, options, key=key, on_change=_picked, args=(knob.key, key), required=True, label_visibility="collapsed")  # fmt: skip
    return value


def options_list(
    knobs: Knobs, knob: Knob, options: tuple[str, ...], words: Callable[[str], str] = str, **more: Any
) -> str:
    """The value of an inline knob with many options. Draws a list, unless the page is locked."""
    value: str = knobs.value(knob, Choice(options))
    if not knobs.locked:
        _list(knob, value, options, words, **more)
    return value


def heads_over(knobs: Knobs) -> Opened | None:
    """The opened results if the page is about many texts; None if it is about one. Draws the choice, and with many texts that of the results."""
    if buttons(knobs, OVER, OVER.range.options) != MANY:  # type: ignore[attr-defined]  # it is a Choice
        return None
    opened = chosen_result.open_both(knobs)
    if not knobs.locked:
        _result_list(RESULT, str(knobs.value(RESULT)), lambda name: _short(name) or "choose a result")
        if opened.result is not None:
            _result_list(OTHER, str(knobs.value(OTHER)), lambda name: f"compared with {_short(name) or 'nothing'}")
            with st.popover("Upload …"):
                chosen_result.upload_field(RESULT, "A result: heads.parquet")
                chosen_result.upload_field(OTHER, "A second result, to compare")
    return opened


def _result_list(knob: Knob, value: str, words: Callable[[str], str]) -> None:
    """The list of results on offer; other names can be typed where paths are allowed."""
    options = tuple(dict.fromkeys(("", *([value] if value else []), *results.names())))
    if len(options) > 1 or ALLOW_LOCAL_MODELS:
        _list(knob, value, options, words, accept_new_options=ALLOW_LOCAL_MODELS, width=230)


def _list(knob: Knob, value: str, options: tuple[str, ...], words: Callable[[str], str], **more: Any) -> None:
    key = _field(knob, value)
    st.selectbox(
        knob.label, options, key=key, on_change=_picked, args=(knob.key, key), format_func=words, label_visibility="collapsed", **more
    )  # fmt: skip


def _field(knob: Knob, value: str) -> str:
    """The key of a widget that shows this value."""
    key = f"{knob.key}_field"
    st.session_state[key] = value
    return key


def _picked(knob: str, field: str) -> None:
    knob_state.hold({knob: st.session_state[field] or ""})


def _short(name: str) -> str:
    short = chosen_result.short_name(name)
    return f"{short} (uploaded)" if short != name else short
