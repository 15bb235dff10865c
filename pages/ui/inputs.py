"""Every shared knob: its key stands in the URL, on every page the same.

The keys are public, links depend on them, and a default never changes.
"""

from __future__ import annotations

from typing import Any

import streamlit as st

from attention import Cell, Layer, Trace, find_step
from attention.config import MASKS
from attention.scales import COLORS
from attention.sources.matrices import SYMBOLS
from pages.ui.knobs import Knobs, asked_for, in_url, standing
from pages.ui.limits import MAX_D_MODEL, MAX_HEADS
from pages.ui.matrices import too_long, whole_text
from pages.ui.notes import Notes

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
    "colors": "fixed",
}

IN_HAND = ("temperature", "mask", "d_model", "seed")
"""The knobs that have a control above the figure too."""
MOST = {"d_model": MAX_D_MODEL, "seed": 2**32 - 1}
"""The largest whole numbers that those take."""


def state(whole: bool = False) -> dict[str, str]:
    """The shared knobs that differ from their defaults, as they stand in the URL.

    With `whole` also the matrices that are too long for a URL.
    """
    values = {key: standing(key) for key in DEFAULTS}
    for name in SYMBOLS:
        if whole:
            values[name] = whole_text(name) or ""
        elif too_long(name):
            values[name] = ""
    return {key: value for key, value in values.items() if value and value != in_url(DEFAULTS[key])}


def of_pages() -> dict[str, str]:
    """The knobs of single pages that differ from their defaults, as they stand in the URL."""
    drawn = st.session_state.get("knobs_drawn", {}).items()
    now = {key: in_url(st.session_state[key]) for key, _ in drawn if key not in DEFAULTS and key in st.session_state}
    return {key: text for key, text in now.items() if text != dict(drawn)[key]}


def carry_over(title: str) -> None:
    """Gives a page the knobs of the page before it. Called before any widget is drawn.

    Streamlit 1.67 does so by itself only for what a person has touched: a link that is opened and
    left at once for another page would lose its knobs.
    """
    if st.session_state.get("page", title) != title:
        st.session_state.update(st.session_state.get("kept", {}))


def keep(title: str) -> None:
    """Remembers the knobs for `carry_over`. Called when all widgets of the page have been drawn.

    Carried knobs do not stand in the address yet, so there is one more run, which writes it.
    """
    came_from = st.session_state.get("page", title)
    drawn = {key: st.session_state[key] for key in DEFAULTS if key in st.session_state}
    st.session_state["kept"] = st.session_state.get("kept", {}) | drawn
    st.session_state["page"] = title
    lost = came_from != title and any(key in drawn and key not in st.query_params for key in state())
    if lost or st.session_state.pop("address_old", False):
        st.session_state["address_lost"] = True
        st.rerun()
    if st.session_state.pop("address_lost", False):
        st.query_params.update({})  # changes none, and sends all of them to the browser


def chosen_layer(notes: Notes, trace: Trace) -> int:
    """The layer that is shown; a widget only where there is more than one."""
    return chosen_of(Knobs(notes, DEFAULTS), "Layer", "layer", len(trace.layers), help="Layers count from zero.")


def chosen_colors(notes: Notes) -> str:
    """What the colours of probabilities run over. In old links that was a switch of the Lab, `lab_stretch`."""
    old = asked_for().pop("lab_stretch", st.query_params.get("lab_stretch"))
    if old == "true" and "colors" not in st.query_params:
        st.session_state.setdefault("colors", "stretched")
    colors: str = Knobs(notes, DEFAULTS).select(
        "Colours of the weights",
        "colors",
        COLORS,
        width=170,
        help="Fixed: 0 to 1, so that maps compare. Stretched: 0 to the largest. Log: powers of ten, for small weights.",
    )
    return colors


def chosen_cell(notes: Notes, layer: Layer) -> Cell:
    """The pickers for step, head, query and key, in one row: the address of one number."""
    knobs = Knobs(notes, DEFAULTS)
    names = [step.name for step, _ in layer]
    with st.container(horizontal=True, vertical_alignment="bottom", gap="small"):
        default = DEFAULTS["step"] if DEFAULTS["step"] in names else names[-1]
        name = knobs.select(
            "Step",
            "step",
            names,
            default=default,
            width=170,
            help="The step of the formula that the inspector and the table show.",
        )
        head = knobs.select("Head", "head", range(layer.n_heads), width=84, help="Heads count from zero.")
        step = find_step(name)
        rows, columns = layer[name].shape[-2:]
        row = knobs.whole(f"q: {step.row_axis}", "q", 0, rows - 1, width=132, help="The row of the cell, from zero.")
        column = knobs.whole(
            f"k: {step.column_axis}", "k", 0, columns - 1, width=132, help="The column of the cell, from zero."
        )
    return Cell(name, head, row, column)


def choose(cell: Cell, layer: Layer | None = None) -> None:
    """Makes `cell` the chosen one. Only in a callback, before its widgets are drawn again.

    Given the `layer`, a row or column that the step does not have becomes the last it has.
    """
    row, column = cell.row, cell.column
    if layer is not None:
        rows, columns = layer[cell.step].shape[-2:]
        row, column = min(row, rows - 1), min(column, columns - 1)
    _set({"step": cell.step, "head": cell.head, "q": row, "k": column})


def turn(knob: dict[str, Any]) -> None:
    """Takes over what the figure's own controls were let go at. Only in a callback."""
    taken: dict[str, Any] = {}
    if isinstance(value := knob.get("temperature"), int | float) and 0.05 <= value <= 10:
        taken["temperature"] = float(value)
    if (value := knob.get("mask")) in MASKS:
        taken["mask"] = value
    for key, low, high in (("d_model", 1, MOST["d_model"]), ("seed", 0, MOST["seed"]), ("head", 0, MAX_HEADS)):
        if isinstance(value := knob.get(key), int) and low <= value <= high:
            taken[key] = value  # a head that is not there becomes the first
    _set(taken)


def _set(values: dict[str, Any]) -> None:
    """Sets knobs from a callback. Their widgets, and the address, take it over when the page next runs as a whole."""
    st.session_state.setdefault("turned", {}).update(values)


def take_over() -> None:
    """Gives the widgets what was turned and clicked since the page last ran as a whole. Called before any is drawn."""
    st.session_state.update(st.session_state.pop("turned", {}))


def now(key: str) -> Any:
    """What a knob stands at, by the last hand that turned it."""
    return st.session_state.get("turned", {}).get(key, st.session_state.get(key, DEFAULTS[key]))


def in_hand(random: bool) -> dict[str, Any]:
    """What stands in the knobs that the figure has controls for; where weights are drawn at `random`, in those of the draw too."""
    keys = IN_HAND if random else IN_HAND[:2]
    return {key: now(key) for key in keys if key in st.session_state}


def cell_now(layer: Layer) -> Cell:
    """The chosen cell by what stands in its pickers, before they are drawn again."""
    names = [one.name for one, _ in layer]
    step = now("step") if now("step") in names else names[-1]
    head = now("head") if now("head") in range(layer.n_heads) else 0
    rows, columns = layer[step].shape[-2:]
    row, column = (max(0, min(now(key), size - 1)) for key, size in (("q", rows), ("k", columns)))
    return Cell(step, head, row, column)


def choose_mask(cells: str) -> None:
    """Makes the custom mask that `cells` describes the mask, or none if it hides nothing. Only in a callback."""
    st.session_state.update({"mask": "custom" if cells else "none", "cells": cells})


def chosen_of(knobs: Knobs, label: str, key: str, how_many: int, **more: Any) -> int:
    """One of several things that count from zero; without a widget where there is only one."""
    if how_many > 1:
        return int(knobs.select(label, key, range(how_many), **more))
    asked_for().pop(key, None)
    asked = st.query_params.get(key)
    if key not in st.session_state and asked not in (None, "0"):  # a widget that goes takes its value along by itself
        knobs.notes.keep(f"The link asks for {key} “{asked}”; there is only {key} 0, which is shown.")
        del st.query_params[key]
    return 0
