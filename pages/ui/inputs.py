"""Every shared knob: a widget whose key stands in the URL, on every page the same.

The keys are public, links depend on them, and a default never changes: a value that equals its
default leaves the URL. A bad value in a link falls back to the default and is said on the page.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import streamlit as st

from attention import AttentionConfig, Cell, Layer, Source, Trace, TypedText, find_step
from attention.config import INITS, MASKS, POSITIONS, divisors
from pages.ui.notes import Notes

DEFAULTS: dict[str, Any] = {
    "text": "the owl asked the moon and the moon blinked",
    "text2": "",
    "lowercase": True,
    "mask": "none",
    "window": 2,
    "heads": 4,
    "temperature": 1.0,
    "d_model": 64,
    "d_k": None,
    "d_v": None,
    "scaled": True,
    "positions": "none",
    "init": "scaled normal",
    "seed": 0,
    "layer": 0,
    "head": 0,
    "step": "weights",
    "q": 0,
    "k": 0,
}
LONGEST_TEXT = 20_000  # characters
MOST_HEADS = 32
WIDEST = 1024  # columns of d_model, d_k and d_v


def state() -> dict[str, str]:
    """The shared knobs that differ from their defaults, as they stand in the URL."""
    values = {key: st.session_state.get(key, st.query_params.get(key)) for key in DEFAULTS}
    return {
        key: _in_url(value)
        for key, value in values.items()
        if value is not None and _in_url(value) != _in_url(DEFAULTS[key])
    }


def source(notes: Notes) -> Source:
    """The knobs of the sidebar, and the source they describe; what a link got wrong goes to `notes`."""
    text = _bound(
        notes, st.text_area, "Text", "text", f"up to {LONGEST_TEXT:,} characters",
        value=DEFAULTS["text"], max_chars=LONGEST_TEXT, height=100,
        help="Each word and each punctuation mark becomes a token. Ctrl+Enter, or a click elsewhere, shows it.",
    )  # fmt: skip
    mask = _select(
        notes,
        "Mask",
        "mask",
        MASKS,
        help="Which keys a query may look at. Causal: only itself and what stands before it. Window: only its neighbours.",
    )
    windowed = "window" in mask
    window = _whole(
        notes,
        "Window",
        "window",
        0,
        512,
        disabled=not windowed,
        help="How many positions away a key may be. Used by the two window masks.",
    )
    temperature = _bound(
        notes, st.slider, "Temperature", "temperature", "a number from 0.05 to 10",
        min_value=0.05, max_value=10.0, value=DEFAULTS["temperature"], step=0.05,
        help="Scores are divided by it before the softmax. Low: the best key takes all. High: every key gets the same.",
    )  # fmt: skip
    d_model = _whole(notes, "d_model", "d_model", 1, WIDEST, help="How many numbers stand for one token.")
    identity = st.session_state.get("init", st.query_params.get("init")) == "identity"
    heads = _heads(notes, d_model, disabled=identity)
    with st.expander("A second text", expanded=bool(st.session_state.get("text2", st.query_params.get("text2")))):
        text2 = _bound(
            notes, st.text_area, "Second text", "text2", f"up to {LONGEST_TEXT:,} characters",
            value=DEFAULTS["text2"], max_chars=LONGEST_TEXT, height=80,
            help="Cross-attention: queries come from the first text, keys and values from this one. Empty: the first text attends to itself.",
        )  # fmt: skip
    with st.expander("More knobs"):
        init = _select(
            notes,
            "Random weights",
            "init",
            INITS,
            help="How W_Q, W_K, W_V and W_O are drawn. Identity: no projections at all, Q = K = V = X, one head.",
        )
        positions = _select(
            notes, "Positions", "positions", POSITIONS, help="What is added to each embedding so that order matters."
        )
        scaled = _bound(
            notes, st.toggle, "Divide by √d_k", "scaled", "true or false", value=DEFAULTS["scaled"],
            help="Without it the scores grow with d_k, and the softmax picks one key and forgets the rest.",
        )  # fmt: skip
        share = "d_model" if identity else "d_model / heads"
        d_k = _whole(
            notes,
            "d_k",
            "d_k",
            1,
            WIDEST,
            disabled=identity,
            placeholder=share,
            help=f"Width of a query or key in each head. Empty: {share}.",
        )
        d_v = _whole(
            notes,
            "d_v",
            "d_v",
            1,
            WIDEST,
            disabled=identity,
            placeholder=share,
            help=f"Width of a value in each head. Empty: {share}.",
        )
        seed = _whole(
            notes,
            "Seed",
            "seed",
            0,
            2**32 - 1,
            help="Another seed draws other random weights; the same seed always the same ones.",
        )
        lowercase = _bound(
            notes,
            st.toggle,
            "Ignore upper case",
            "lowercase",
            "true or false",
            value=DEFAULTS["lowercase"],
            help="On: “The” and “the” are one word, with one embedding.",
        )
    if identity:
        d_k = d_v = None
    config = AttentionConfig(d_model, heads, d_k, d_v, mask, window, temperature, scaled, positions, init, seed)
    return TypedText(text, config, text2, lowercase)


def chosen_layer(notes: Notes, trace: Trace) -> int:
    """The layer that is shown; a widget only where there is more than one."""
    asked = st.query_params.get("layer")
    if len(trace.layers) > 1:
        return int(_select(notes, "Layer", "layer", range(len(trace.layers)), help="Layers count from zero."))
    if asked not in (None, "0"):
        notes.keep(f"The link asks for layer {asked!r}; there is only layer 0, which is shown.")
        del st.query_params["layer"]
    return 0


def chosen_cell(notes: Notes, layer: Layer) -> Cell:
    """The pickers for step, head, query and key, in one row: the address of one number."""
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        with st.container(width=170):
            name = _select(
                notes,
                "Step",
                "step",
                [step.name for step, _ in layer],
                help="The step of the formula that the inspector and the table show.",
            )
        with st.container(width=84):
            head = _select(notes, "Head", "head", range(layer.n_heads), help="Heads count from zero.")
        step = find_step(name)
        rows, columns = layer.matrix(name, head).shape
        with st.container(width=132):
            row = _whole(notes, f"q: {step.row_axis}", "q", 0, rows - 1, help="The row of the cell, from zero.")
        with st.container(width=132):
            column = _whole(
                notes, f"k: {step.column_axis}", "k", 0, columns - 1, help="The column of the cell, from zero."
            )
    return Cell(name, head, row, column)


def choose(cell: Cell, layer: Layer | None = None) -> None:
    """Makes `cell` the chosen one. Only in a callback, before its widgets are drawn again.

    Given the `layer`, a row or column that the step does not have becomes the last it has.
    """
    row, column = cell.row, cell.column
    if layer is not None:
        rows, columns = layer.matrix(cell.step, cell.head).shape
        row, column = min(row, rows - 1), min(column, columns - 1)
    st.session_state.update({"step": cell.step, "head": cell.head, "q": row, "k": column})


def own(notes: Notes, widget: Callable[..., Any], label: str, key: str, expected: str, **more: Any) -> Any:
    """A knob of one page alone, bound to the URL as the shared ones are; its key is `<page>_<thing>`."""
    return _bound(notes, widget, label, key, expected, **more)


def _heads(notes: Notes, d_model: int, disabled: bool) -> int:
    """The number of heads: only what divides d_model is offered; what no longer does is changed, and said."""
    offered = [n for n in divisors(d_model) if n <= MOST_HEADS]
    fitting = max(n for n in offered if n <= DEFAULTS["heads"])
    now = st.session_state.get("heads")
    if now is not None and now not in offered:
        st.session_state["heads"] = max(n for n in offered if n <= now)
        st.toast(
            f"{now} heads do not divide d_model {d_model}: now there are {st.session_state['heads']}. Choose {', '.join(map(str, offered))}.",
            duration="long",
        )
    return int(
        _bound(
            notes, st.selectbox, "Heads", "heads", f"one of {', '.join(map(str, offered))}, which divide d_model {d_model}",
            options=offered, index=offered.index(fitting), disabled=disabled, help="Only numbers that divide d_model are offered.",
        )
    )  # fmt: skip


def _select(notes: Notes, label: str, key: str, options: Any, **more: Any) -> Any:
    """A select box that offers `options` as they stand in the URL."""
    options = list(options)
    index = options.index(DEFAULTS[key]) if DEFAULTS[key] in options else 0
    return _bound(
        notes, st.selectbox, label, key, f"one of {', '.join(map(str, options))}", options=options, index=index, **more
    )


def _whole(notes: Notes, label: str, key: str, low: int, high: int, **more: Any) -> Any:
    """A number input for whole numbers; a value that the range no longer has becomes the nearest that it has."""
    expected = f"a whole number from {low} to {high}"
    if isinstance(now := st.session_state.get(key), int):
        st.session_state[key] = min(max(now, low), high)
    elif (asked := _asked(key)) is not None and _is_infinite(asked):
        # Streamlit 1.67 turns it into an int and raises; so it leaves the address before there is a widget.
        _refuse(notes, key, asked, expected, DEFAULTS[key])
        del st.query_params[key]
        st.rerun()
    limits = {"min_value": low, "max_value": high, "value": DEFAULTS[key], "step": 1}
    return _bound(notes, st.number_input, label, key, expected, **limits, **more)


def _bound(notes: Notes, widget: Callable[..., Any], label: str, key: str, expected: str, **more: Any) -> Any:
    """A widget bound to the URL; when a link's value could not be taken, `notes` says what came and what is used."""
    asked = _asked(key)
    value = widget(label, key=key, bind="query-params", **more)
    if asked is not None and not _means(asked, value):
        _refuse(notes, key, asked, expected, value)
    return value


def _asked(key: str) -> str | None:
    """What the link asks for, the first time that its widget is drawn; None ever after."""
    return None if key in st.session_state else st.query_params.get(key)


def _refuse(notes: Notes, key: str, asked: str, expected: str, used: Any) -> None:
    shown = asked if len(asked) <= 40 else asked[:40] + "…"
    used = _in_url(used) or "the default"
    notes.keep(f"The link asks for {key} = “{shown}”, but {key} is {expected}: {used} is used.")


def _is_infinite(asked: str) -> bool:
    try:
        return math.isinf(float(asked))
    except ValueError:
        return False


def _means(asked: str, value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return asked == _in_url(value) or (isinstance(value, bool) and asked.lower() == _in_url(value))
    try:
        return float(asked) == value
    except ValueError:
        return False


def _in_url(value: Any) -> str:
    if value is None:
        return ""
    return str(value).lower() if isinstance(value, bool) else str(value)
