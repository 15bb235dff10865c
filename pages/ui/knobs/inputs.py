"""Every shared knob: its key stands in the URL, on every page the same.

The keys are public, links depend on them, and a default never changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import streamlit as st

from attention import STEPS, AttentionConfig, Cell, Layer, Trace
from attention.formula.config import MASKS, divisors
from attention.pictures.scales import COLORS
from attention.sources.matrices import SYMBOLS
from pages.ui.knobs.matrices import too_long, whole_text
from pages.ui.knobs.widgets import Knobs, asked_for, in_url, locked, standing, went_back
from pages.ui.notes import Notes
from pages.ui.server.limits import MAX_D_MODEL, MAX_HEADS, MAX_TOKENS

DEFAULTS: dict[str, Any] = {
    "source": "typed text",
    "notebook": "self-attention-class",
    # The integer matrices of the numpy notebook: small enough to work out by hand.
    "given": "X and weights",
    "x": "1,0,0;0,1,0;1,1,0;0,0,1",
    "w_q": "2,0,2;2,0,0;2,1,2",
    "w_k": "2,2,2;0,2,1;0,1,1",
    "w_v": "1,1,0;0,1,1;0,0,0",
    "w_o": "",
    "query": "2,0,2;2,0,0;4,0,2;2,1,2",
    "key": "2,2,2;0,2,1;2,4,3;0,1,1",
    "value": "1,1,0;0,1,1;1,2,1;0,0,0",
    "labels": "",
    "sequence": 0,
    "text": "the owl asked the moon and the moon blinked",
    "text2": "",
    "lowercase": True,
    "pad": False,
    "mask": "none",
    "window": 2,
    "prefix": 1,
    "cells": "",
    "temperature": 1.0,
    "d_model": 64,
    "heads": 4,
    "d_k": None,
    "d_v": None,
    "scaled": True,
    "positions": "none",
    "init": "scaled normal",
    "dropout": 0.0,
    "seed": 0,
    "layer": 0,
    "head": 0,
    "step": "weights",
    "q": 0,
    "k": 0,
    "view": "overview",
    "colors": "fixed",
}

HELD = (
    "temperature", "mask", "window", "prefix", "cells", "scaled", "d_model", "seed",
    "layer", "head", "step", "q", "k", "view", "colors",
)  # fmt: skip
"""The knobs without a Streamlit widget: the figure's own controls, its strip of steps and its cells turn them."""

AFTER_THE_SCORES = ("mask", "window", "prefix", "cells", "temperature", "scaled")
"""Those that every source has whose numbers are worked out here."""

VIEWS = ("overview", "factors")
"""What the Lab shows: scores, weights and output, or the chosen step beside what makes it."""

MOST = {"d_model": MAX_D_MODEL, "seed": 2**32 - 1, "window": MAX_TOKENS, "prefix": MAX_TOKENS}
LEAST = {"d_model": 1}
"""The largest whole numbers that knobs take, and the smallest where that is not 0."""
TEMPERATURES = (0.05, 10.0)
LONGEST_MASK = 4000  # characters of a custom mask


def state(whole: bool = False) -> dict[str, str]:
    """The shared knobs that differ from their defaults, as they stand in the URL.

    With `whole` also the matrices that are too long for a URL.
    """
    values = {key: standing(key) for key in DEFAULTS if key not in HELD or key in _read()}
    for name in SYMBOLS:
        if whole:
            values[name] = whole_text(name) or ""
        elif too_long(name):
            values[name] = ""
    return {key: value for key, value in values.items() if value and value != in_url(DEFAULTS[key])}


def modes() -> dict[str, str]:
    """What the address says of how the state is shown, beside the state itself."""
    return {key: st.query_params[key] for key in ("lock", "present") if key in st.query_params}


def of_pages() -> dict[str, str]:
    """The knobs of single pages that differ from their defaults, as they stand in the URL."""
    drawn = st.session_state.get("knobs_drawn", {}).items()
    now = {key: in_url(st.session_state[key]) for key, _ in drawn if key not in DEFAULTS and key in st.session_state}
    return {key: text for key, text in now.items() if text != dict(drawn)[key]}


def carry_over(title: str) -> None:
    """Gives a page the knobs of the page before it, and of the hand. Called before any knob is read.

    Streamlit 1.67 carries only what a person has touched: a link that is opened and left at once for
    another page would lose its knobs.
    """
    another = st.session_state.get("page", title) != title
    if another:
        st.session_state.update(st.session_state.get("kept", {}))
        st.session_state.pop("named_in_address", None)  # an address that says nothing of them is no Back
    turned = st.session_state.pop("turned", {})
    if went_back():
        for key in HELD:
            st.session_state.pop(key, None)  # the address has what is so now
    else:
        st.session_state.update(turned)
    if another:
        for key in HELD:
            if key in st.query_params:
                st.session_state.pop(key, None)  # the link to this page says it
        # A page about masks opens with one; an address and a state file mean what they say.
        as_said = went_back() or asked_for() or locked() or standing("source") == "notebook"
        if title == "Masks" and not as_said and standing("mask") in ("", "none"):
            st.session_state["mask"] = "causal"
    _read().clear()


def keep(title: str) -> None:
    """Remembers the knobs for `carry_over`, and writes the held ones into the address. Called when all have been read.

    Carried knobs of widgets do not stand in the address yet, so there is one more run, which writes it.
    """
    came_from = st.session_state.get("page", title)
    drawn = {key: st.session_state[key] for key in DEFAULTS if key in st.session_state and key not in HELD}
    st.session_state["kept"] = st.session_state.get("kept", {}) | drawn
    st.session_state["page"] = title
    lost = came_from != title and any(key in drawn and key not in st.query_params for key in state())
    if lost or st.session_state.pop("address_old", False):
        st.session_state["address_lost"] = True
        st.rerun()
    _write_address()
    # After Back the answer to what was turned before it may still be on its way, with an address that is no more.
    if st.session_state.pop("address_lost", False) or went_back():
        st.query_params.update({})  # changes none, and sends all of them to the browser


def _read() -> set[str]:
    """The held knobs that the page has read in this run; another source has others."""
    there: set[str] = st.session_state.setdefault("held", set())
    return there


def _write_address() -> None:
    defaults = st.session_state.get("knobs_drawn", {})
    for key in HELD:
        text = in_url(st.session_state[key]) if key in _read() else ""
        if text == defaults.get(key):
            text = ""
        if text and st.query_params.get(key) != text:
            st.query_params[key] = text
        elif not text and key in st.query_params:
            del st.query_params[key]


def held(notes: Notes, *keys: str) -> dict[str, Any]:
    """The values of the held knobs called `keys`, those that need no trace to be read."""
    knobs = Knobs(notes, DEFAULTS)
    _read().update(keys)
    if "colors" in keys and _asked_to_stretch():
        st.session_state.setdefault("colors", "stretched")
    read: dict[str, Callable[[], Any]] = {
        "temperature": lambda: knobs.real("temperature", *TEMPERATURES),
        "mask": lambda: knobs.one_of("mask", MASKS),
        "cells": lambda: knobs.text("", "cells", LONGEST_MASK, widget=None),
        "scaled": lambda: knobs.one_of("scaled", (True, False)),
        "view": lambda: knobs.one_of("view", VIEWS),
        "colors": lambda: knobs.one_of("colors", COLORS),
    }
    return {key: read[key]() if key in read else knobs.number(key, LEAST.get(key, 0), MOST[key]) for key in keys}


def _asked_to_stretch() -> bool:
    """Whether an old link or state file has the switch that is one of the `colors` now."""
    asked = asked_for().pop("lab_stretch", st.query_params.get("lab_stretch"))
    if "lab_stretch" in st.query_params:
        del st.query_params["lab_stretch"]
    return asked == "true" and "colors" not in st.query_params


def chosen_layer(notes: Notes, trace: Trace) -> int:
    """The layer that is shown."""
    _read().add("layer")
    return Knobs(notes, DEFAULTS).number("layer", 0, len(trace.layers) - 1)


def chosen_cell(notes: Notes, layer: Layer) -> Cell:
    """The address of one number: step, head, row and column."""
    knobs = Knobs(notes, DEFAULTS)
    _read().update(("step", "head", "q", "k"))
    names = [step.name for step in layer.steps]
    step = knobs.one_of("step", names, DEFAULTS["step"] if DEFAULTS["step"] in names else names[-1])
    rows, columns = layer.shape(step)[-2:]
    head = knobs.number("head", 0, layer.n_heads - 1)
    return Cell(step, head, knobs.number("q", 0, rows - 1), knobs.number("k", 0, columns - 1))


def layer_now() -> int:
    """The chosen layer as it was last picked."""
    return int(now("layer"))


def choose(cell: Cell, layer: Layer | None = None) -> None:
    """Makes `cell` the chosen one. Only in a callback, before its widgets are drawn again.

    Given the `layer`, a row or column that the step does not have becomes the last it has.
    """
    row, column = cell.row, cell.column
    if layer is not None:
        rows, columns = layer.shape(cell.step)[-2:]
        row, column = min(row, rows - 1), min(column, columns - 1)
    _set({"step": cell.step, "head": cell.head, "q": row, "k": column})


def turn(knob: dict[str, Any]) -> None:
    """Takes over what the figure's own controls were let go at. Only in a callback."""
    choices = {
        "mask": MASKS,
        "view": VIEWS,
        "colors": COLORS,
        "step": [step.name for step in STEPS],
        "scaled": (True, False),
    }
    taken: dict[str, Any] = {}
    for key, value in knob.items():
        if key in choices and value in choices[key]:
            taken[key] = value
        elif key == "temperature" and isinstance(value, int | float) and TEMPERATURES[0] <= value <= TEMPERATURES[1]:
            taken[key] = float(value)
        elif (
            key in ("layer", "head", "q", "k", *MOST)
            and type(value) is int  # True is an int too, and no number of a knob
            and LEAST.get(key, 0) <= value <= MOST.get(key, value)
        ):
            taken[key] = value  # what is not there becomes the last that is
    _set(taken)


def _set(values: dict[str, Any]) -> None:
    """Sets held knobs from a callback. The address takes them over when the page next runs as a whole."""
    st.session_state.setdefault("turned", {}).update(values)


def now(key: str) -> Any:
    """What a held knob stands at, by the last hand that turned it."""
    return st.session_state.get("turned", {}).get(key, st.session_state.get(key, DEFAULTS[key]))


def heads_that_fit(d_model: int, wish: int) -> int:
    """The wished number of heads where it divides d_model, otherwise the next smaller that does."""
    return max(n for n in divisors(d_model) if n <= min(wish, MAX_HEADS))


def config_now(config: AttentionConfig, random: bool) -> AttentionConfig:
    """A source's knobs as the hand has left them; where weights are drawn at `random`, those of the draw too.

    Another d_model has the heads that the sidebar will settle on, not those of the last.
    """
    turned = {key: now(key) for key in (*AFTER_THE_SCORES, *(("d_model", "seed") if random else ()))}
    if random:
        wish, _ = st.session_state.get("heads_wish", (config.n_heads, config.n_heads))
        turned["n_heads"] = heads_that_fit(turned["d_model"], wish)
    return replace(config, **turned)


def cell_now(layer: Layer) -> Cell:
    """The chosen cell as it was last clicked."""
    names = [one.name for one in layer.steps]
    step = now("step") if now("step") in names else names[-1]
    rows, columns = layer.shape(step)[-2:]
    head, row, column = (
        max(0, min(now(key), size - 1)) for key, size in (("head", layer.n_heads), ("q", rows), ("k", columns))
    )
    return Cell(step, head, row, column)


def choose_mask(cells: str) -> None:
    """Makes the custom mask that `cells` describes the mask, or none if it hides nothing. Only in a callback."""
    _set({"mask": "custom" if cells else "none", "cells": cells})


def chosen_of(knobs: Knobs, label: str, key: str, names: Sequence[str], **more: Any) -> int:
    """One of several things that count from zero and have names; without a widget where there is only one."""
    if len(names) > 1:
        return int(
            knobs.named(label, key, {i: f"{i}: {name}" if name else str(i) for i, name in enumerate(names)}, **more)
        )
    asked_for().pop(key, None)
    asked = st.query_params.get(key)
    if key not in st.session_state and asked not in (None, "0"):
        knobs.notes.keep(f"The link asks for {key} “{asked}”; there is only {key} 0, which is shown.")
    if asked is not None:
        del st.query_params[key]
    st.session_state.pop(key, None)
    return 0
