"""A widget bound to the URL, and what is said when a link or a state file asks for what it cannot take."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

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


def in_url(value: Any) -> str:
    """A knob's value as it stands in the URL, and in a state file."""
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)


def asked_for() -> dict[str, str]:
    """What an opened state file asks for, by key, as in the URL; each knob takes its own out."""
    waiting: dict[str, str] = st.session_state.setdefault("asked_for", {})
    return waiting


def peek(key: str) -> str:
    """What a knob will be, as in the URL, before its widget is drawn."""
    return asked_for()[key] if key in asked_for() else standing(key)


def standing(key: str) -> str:
    """What a knob stands at, as in the URL; before its widget was ever drawn, what the URL says."""
    return in_url(st.session_state[key] if key in st.session_state else st.query_params.get(key))


@dataclass(frozen=True)
class Knobs:
    """Makes widgets whose key stands in the URL; `notes` is told what a link got wrong.

    A value that equals its default leaves the URL. A bad value falls back to the default. Where the
    address is locked no widget is drawn, and the values are those of the address.
    """

    notes: Notes
    defaults: Mapping[str, Any]
    # Looked up once for all knobs: each look costs as much as drawing a line of text.
    locked: bool = field(default_factory=locked)
    asked: dict[str, str] = field(default_factory=asked_for)
    drawn: dict[str, str] = field(default_factory=lambda: st.session_state.setdefault("knobs_drawn", {}))

    def one_of(self, key: str, options: Iterable[Any], default: Any = None) -> Any:
        """A knob without a widget of its own that is one of `options`."""
        options = list(options)
        default = self.defaults[key] if default is None else default
        default = default if default in options else options[0]
        if key in st.session_state and st.session_state[key] not in options:
            st.session_state[key] = default
        texts = [in_url(option) for option in options]
        expected = " or ".join(texts) if len(texts) < 3 else f"one of {', '.join(texts)}"
        return self._bound(None, "", key, default, _one_of(options), expected)

    def number(self, key: str, low: int, high: int) -> int:
        """A knob without a widget for whole numbers; what the range no longer has becomes the nearest that it has."""
        default = min(max(self.defaults[key], low), high)
        if isinstance(now := st.session_state.get(key), int):
            st.session_state[key] = min(max(now, low), high)
        expected = f"a whole number from {low} to {high}" if low < high else f"{low}, the only one there is"
        return int(self._bound(None, "", key, default, _within(int, low, high), expected))

    def real(self, key: str, low: float, high: float) -> float:
        """A knob without a widget for numbers."""
        expected = f"a number from {low:g} to {high:g}"
        return float(self._bound(None, "", key, self.defaults[key], _within(float, low, high), expected))

    def select(
        self, label: str, key: str, options: Iterable[Any], expected: str = "", default: Any = None, **more: Any
    ) -> Any:
        """A select box that offers `options` as they stand in the URL."""
        options = list(options)
        default = self.defaults[key] if default is None else default
        default = default if default in options else options[0]
        if key in st.session_state and st.session_state[key] not in options:
            st.session_state[key] = default  # otherwise the address would keep what is no longer offered
        elif key in st.session_state and key not in st.query_params and st.session_state[key] != default:
            # It stood at the default of other options, which is no part of an address; set again, it becomes one.
            st.session_state[key] = st.session_state[key]
        expected = expected or f"one of {', '.join(map(str, options))}"
        more = {"options": options, "index": options.index(default), **more}
        return self._bound(st.selectbox, label, key, default, _one_of(options), expected, **more)

    def named(self, label: str, key: str, names: Mapping[Any, str], **more: Any) -> Any:
        """A select box that shows the `names` of its options; the options themselves stand in the URL.

        Streamlit writes what is shown into the URL of a bound widget, so this one is not bound.
        """
        options = list(names)
        default = self.defaults[key] if self.defaults[key] in options else options[0]
        read, expected = _one_of(options), f"one of {', '.join(map(str, options))}"
        in_address = st.session_state.setdefault("named_in_address", {})
        there = st.query_params.get(key)
        self.drawn[key] = in_url(default)
        if key in self.asked:
            st.session_state[key] = self._read(key, self.asked.pop(key), default, read, expected)
        elif there is not None and (key not in st.session_state or there != in_address.get(key)):
            st.session_state[key] = self._read(key, there, default, read, expected)  # a link, or Back
        elif st.session_state.get(key) not in options or (there is None and in_address.get(key) is not None):
            st.session_state[key] = default
        if self.locked:
            return st.session_state[key]
        value = st.selectbox(label, options, key=key, format_func=names.__getitem__, **more)
        in_address[key] = in_url(value) if value != default else None
        if in_address[key] is not None and there != in_address[key]:
            st.query_params[key] = in_address[key]
        elif in_address[key] is None and there is not None:
            del st.query_params[key]
        return value

    def steps(self, label: str, key: str, options: Iterable[Any], **more: Any) -> Any:
        """A slider over a few `options`."""
        options = list(options)
        default, expected = self.defaults[key], f"one of {', '.join(map(str, options))}"
        more = {"options": options, "value": default, **more}
        return self._bound(st.select_slider, label, key, default, _one_of(options), expected, **more)

    def whole(self, label: str, key: str, low: int, high: int, **more: Any) -> Any:
        """A number input for whole numbers; a value that the range no longer has becomes the nearest that it has."""
        default = self.defaults[key]
        default = default if default is None else min(max(default, low), high)  # an operator may allow less
        expected = f"a whole number from {low} to {high}"
        if isinstance(now := st.session_state.get(key), int):
            st.session_state[key] = min(max(now, low), high)
        elif (asked := _asked(key)) is not None and _is_infinite(asked):
            # Streamlit 1.67 turns it into an int and raises; so it leaves the address before there is a widget.
            self._refuse(key, asked, expected, default)
            del st.query_params[key]
            st.rerun()

        within = _within(int, low, high)

        def read(text: str) -> Any:
            return None if text == "" and default is None else within(text)

        limits = {"min_value": low, "max_value": high, "value": default, "step": 1}
        return self._bound(st.number_input, label, key, default, read, expected, **limits, **more)

    def slider(self, label: str, key: str, low: float, high: float, **more: Any) -> float:
        """A slider in steps of 0.05."""
        default, read = self.defaults[key], _within(float, low, high)
        limits = {"min_value": low, "max_value": high, "value": default, "step": 0.05}
        expected = f"a number from {low:g} to {high:g}"
        return float(self._bound(st.slider, label, key, default, read, expected, **limits, **more))

    def toggle(self, label: str, key: str, **more: Any) -> bool:
        """A switch."""
        default = self.defaults[key]
        return bool(
            self._bound(st.toggle, label, key, default, _one_of([True, False]), "true or false", value=default, **more)
        )

    def text(
        self, label: str, key: str, longest: int, widget: Callable[..., Any] | None = st.text_area, **more: Any
    ) -> str:
        """A field for a text of up to `longest` characters; without `widget` one that only clicks write."""
        default = self.defaults[key][:longest]

        def read(text: str) -> str:
            if len(text) > longest:
                raise ValueError(text)
            return text

        more = {"value": default, "max_chars": longest, **more}
        return str(self._bound(widget, label, key, default, read, f"up to {longest:,} characters", **more))

    def _bound(
        self,
        widget: Callable[..., Any] | None,
        label: str,
        key: str,
        default: Any,
        read: Callable[[str], Any],
        expected: str,
        **more: Any,
    ) -> Any:
        """The widget, bound to the URL; when a value could not be taken, what came and what is used is said.

        Without a widget the value stands in the session alone, and `inputs.write_address` puts it into the address. `read` turns a text of the URL into a value, and raises ValueError where the widget could not take it.
        """
        self.drawn[key] = in_url(default)
        if key in self.asked:
            st.session_state[key] = self._read(key, self.asked.pop(key), default, read, expected)
        asked = _asked(key)
        if self.locked or widget is None:
            if asked is not None:
                st.session_state[key] = self._read(key, asked, default, read, expected)
            return st.session_state.setdefault(key, default)
        value = widget(label, key=key, bind="query-params", **more)
        if asked is not None and not _means(asked, value):
            self._refuse(key, asked, expected, value)
        return value

    def _read(self, key: str, text: str, default: Any, read: Callable[[str], Any], expected: str) -> Any:
        try:
            return read(text)
        except (ValueError, KeyError, OverflowError):
            self._refuse(key, text, expected, default)
            return default

    def _refuse(self, key: str, asked: str, expected: str, used: Any) -> None:
        shown = asked if len(asked) <= 40 else asked[:40] + "…"
        used = in_url(used) or "the default"
        self.notes.keep(f"The link asks for {key} = “{shown}”, but {key} is {expected}: {used} is used.")


def _within(kind: Callable[[str], Any], low: float, high: float) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        number = kind(text)
        if not low <= number <= high:
            raise ValueError(number)
        return number

    return read


def _one_of(options: list[Any]) -> Callable[[str], Any]:
    by_text = {in_url(option): option for option in options}
    return by_text.__getitem__


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
