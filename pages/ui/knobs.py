"""A widget bound to the URL, and what is said when a link asks for what it cannot take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import streamlit as st

from pages.ui.notes import Notes


@dataclass(frozen=True)
class Knobs:
    """Makes widgets whose key stands in the URL; `notes` is told what a link got wrong.

    A value that equals its default leaves the URL. A bad value in a link falls back to the default.
    """

    notes: Notes
    defaults: Mapping[str, Any]

    def select(
        self, label: str, key: str, options: Iterable[Any], expected: str = "", default: Any = None, **more: Any
    ) -> Any:
        """A select box that offers `options` as they stand in the URL."""
        options = list(options)
        default = self.defaults[key] if default is None else default
        index = options.index(default) if default in options else 0
        if key in st.session_state and st.session_state[key] not in options:
            st.session_state[key] = options[index]  # otherwise the address would keep what is no longer offered
        expected = expected or f"one of {', '.join(map(str, options))}"
        return self.bound(st.selectbox, label, key, expected, options=options, index=index, **more)

    def whole(self, label: str, key: str, low: int, high: int, **more: Any) -> Any:
        """A number input for whole numbers; a value that the range no longer has becomes the nearest that it has."""
        expected = f"a whole number from {low} to {high}"
        if isinstance(now := st.session_state.get(key), int):
            st.session_state[key] = min(max(now, low), high)
        elif (asked := _asked(key)) is not None and _is_infinite(asked):
            # Streamlit 1.67 turns it into an int and raises; so it leaves the address before there is a widget.
            self._refuse(key, asked, expected, self.defaults[key])
            del st.query_params[key]
            st.rerun()
        limits = {"min_value": low, "max_value": high, "value": self.defaults[key], "step": 1}
        return self.bound(st.number_input, label, key, expected, **limits, **more)

    def slider(self, label: str, key: str, low: float, high: float, **more: Any) -> float:
        """A slider in steps of 0.05."""
        limits = {"min_value": low, "max_value": high, "value": self.defaults[key], "step": 0.05}
        return float(self.bound(st.slider, label, key, f"a number from {low:g} to {high:g}", **limits, **more))

    def toggle(self, label: str, key: str, **more: Any) -> bool:
        """A switch."""
        return bool(self.bound(st.toggle, label, key, "true or false", value=self.defaults[key], **more))

    def text(self, label: str, key: str, longest: int, widget: Callable[..., Any] = st.text_area, **more: Any) -> str:
        """A field for a text of up to `longest` characters."""
        expected = f"up to {longest:,} characters"
        return str(self.bound(widget, label, key, expected, value=self.defaults[key], max_chars=longest, **more))

    def bound(self, widget: Callable[..., Any], label: str, key: str, expected: str, **more: Any) -> Any:
        """Any widget, bound to the URL; when a link's value could not be taken, what came and what is used is said."""
        asked = _asked(key)
        value = widget(label, key=key, bind="query-params", **more)
        if asked is not None and not _means(asked, value):
            self._refuse(key, asked, expected, value)
        return value

    def _refuse(self, key: str, asked: str, expected: str, used: Any) -> None:
        shown = asked if len(asked) <= 40 else asked[:40] + "…"
        used = in_url(used) or "the default"
        self.notes.keep(f"The link asks for {key} = “{shown}”, but {key} is {expected}: {used} is used.")


def in_url(value: Any) -> str:
    """A knob's value as it stands in the URL."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _asked(key: str) -> str | None:
    """What the link asks for, the first time that its widget is drawn; None ever after."""
    return None if key in st.session_state else st.query_params.get(key)


def _is_infinite(asked: str) -> bool:
    try:
        return abs(float(asked)) == float("inf")
    except ValueError:
        return False


def _means(asked: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return asked == in_url(value) or (isinstance(value, bool) and asked.lower() == in_url(value))
    try:
        return float(asked) == value
    except ValueError:
        return False
