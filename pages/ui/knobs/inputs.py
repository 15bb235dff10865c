"""What the knobs of a page stand at: carried from page to page, written into the address, turned by a hand.

It is one long file because all of it writes the same few places: the widgets' values, what a hand has turned, the address.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

import streamlit as st
from streamlit.errors import StreamlitAPIException

from attention import AttentionConfig, Cell, Layer, Trace, WhatIf
from attention.formula import what_if
from attention.formula.config import BRING_THEIR_OWN
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice, Real, Whole, in_url
from attention.sources import second
from attention.sources.cutting import SYMBOLS
from attention.sources.divisors import Divisors
from pages.ui.knobs.session import Session, session
from pages.ui.knobs.table import (
    COLORS,
    HEAD,
    HELD,
    KEY,
    KNOBS,
    LAYER,
    LIMITS,
    OF_COMPARE,
    QUERY,
    STEP,
    VIEW,
    layer_of,
    of,
    offered,
)
from pages.ui.knobs.texts import LONGEST_IN_LINK
from pages.ui.knobs.widgets import Knobs, here, locked, peek, standing, went_back, write
from pages.ui.notes import Notes


def state(whole: bool = False) -> dict[str, str]:
    """The shared knobs that differ from their defaults, as they stand in the URL.

    With `whole` also the matrices that are too long for a URL.
    """
    # Copied at once: a look into either costs as much as drawing a line of text.
    ours, there, asked = session(), st.session_state.to_dict(), st.query_params.to_dict()
    read = (key for key in KNOBS if key not in HELD or key in ours.read)
    values = {key: in_url(there[key] if key in there else asked.get(key)) for key in read}
    values |= {name: text for name, text in ours.large.items() if text}
    if not whole:
        values |= {name: "" for name in SYMBOLS if len(values[name]) > LONGEST_IN_LINK}
    known = here()
    return {key: value for key, value in values.items() if value and value != in_url(known[key].default)}


def modes() -> dict[str, str]:
    """What the address says of how the state is shown, beside the state itself."""
    return {key: st.query_params[key] for key in ("lock", "present") if key in st.query_params}


def of_pages() -> dict[str, str]:
    """The knobs of single pages that differ from their defaults, as they stand in the URL."""
    drawn = session().defaults
    now = {key: in_url(st.session_state[key]) for key in drawn if key not in KNOBS and key in st.session_state}
    return {key: text for key, text in now.items() if text != drawn[key]}


def _say_asked(asked: dict[str, str]) -> None:
    """Writes what is asked for into the address: a widget that was never drawn before it is told its value does not do it."""
    known = of(asked.get("source", ""))
    for key, text in asked.items():
        if key in known and key not in (*HELD, *SYMBOLS) and text not in ("", in_url(known[key].default)):
            with suppress(StreamlitAPIException):  # one that was drawn writes it by itself
                st.query_params[key] = text


def carry_over(title: str) -> None:
    """Gives a page the knobs of the page before it, and of the hand. Called before any knob is read.

    Streamlit 1.67 carries only what a person has touched: a link that is opened and left at once for
    another page would lose its knobs.
    """
    ours = session()
    another = ours.page not in ("", title)
    if another:
        _say_asked(ours.asked_for)
        ours.first = None
        st.session_state.update(ours.kept)
        ours.named.clear()  # an address that says nothing of them is no Back
    if went_back():
        for key in HELD:
            st.session_state.pop(key, None)  # the address has what is so now
    else:
        st.session_state.update(ours.turned)
    ours.turned = {}
    _carry_to_source(first=not ours.page)
    if another:
        for key in HELD:
            if key in st.query_params and (title == "Compare" or key not in OF_COMPARE):
                st.session_state.pop(key, None)  # the link to this page says it
        # A page about masks opens with one; an address and a state file mean what they say.
        as_said = went_back() or ours.asked_for or locked()
        if title == "Masks" and not as_said and standing("mask") in ("", "none") and first_mask():
            st.session_state["mask"] = first_mask()
    ours.read.clear()


def _carry_to_source(first: bool) -> None:
    """Lays the knobs after the scores by where a source that brings its own formula is chosen, or left: it begins as it was published.

    Who comes back finds them as they were. On the `first` run the link says all, after Back the address.
    """
    ours = session()
    chosen, before = peek("source"), ours.source
    ours.source = chosen
    if first or went_back() or (chosen in BRING_THEIR_OWN) == (before in BRING_THEIR_OWN):
        return
    keys = [one.key for one in what_if.KNOBS]
    ours.laid_by[before in BRING_THEIR_OWN] = {key: st.session_state[key] for key in keys if key in st.session_state}
    waited = ours.laid_by.get(chosen in BRING_THEIR_OWN, {})
    st.session_state.update({key: waited.get(key, of(chosen)[key].default) for key in keys})


def first_mask() -> str:
    """The mask that a page about masks opens with where there is none; empty where the source has its own."""
    return "causal" if of(peek("source"))["mask"].default == "none" else ""


def keep(title: str) -> None:
    """Remembers the knobs for `carry_over`, and writes the held ones into the address. Called when all have been read.

    Carried knobs of widgets do not stand in the address yet, so there is one more run, which writes it.
    """
    ours = session()
    there = st.session_state.to_dict()
    drawn = {key: there[key] for key in KNOBS if key in there and key not in HELD}
    another = ours.page not in ("", title)
    ours.kept |= drawn
    ours.page = title
    _remember(ours)
    lost = another and any(key in drawn and key not in st.query_params for key in state())
    if lost or ours.address_old:
        ours.address_old, ours.address_lost = False, True
        st.rerun()
    write_address()
    # After Back the answer to what was turned before it may still be on its way, with an address that is no more.
    if ours.address_lost or went_back():
        ours.address_lost = False
        st.query_params.update({})  # changes none, and sends all of them to the browser


def _remember(ours: Session) -> None:
    """Keeps what was so before the last knob was turned, for who asks what that has changed."""
    found = second.compared(state(whole=True))
    if not ours.states or found != ours.states[-1]:
        ours.states = [*ours.states[-1:], found]


def write_address() -> None:
    """Makes the address say what the held knobs stand at that this run has read."""
    ours = session()
    for key in HELD:
        text = in_url(st.session_state[key]) if key in ours.read else ""
        write(key, "" if text == ours.defaults.get(key) else text)


def read_view(notes: Notes, more: Sequence[Knob] = ()) -> None:
    """Reads the knobs that say how a trace is shown, and those that only this page has."""
    # An old link or state file may have the switch that is one of the `colors` now.
    asked = session().asked_for.pop("lab_stretch", st.query_params.get("lab_stretch"))
    if "lab_stretch" in st.query_params:
        del st.query_params["lab_stretch"]
    if asked == "true" and COLORS.key not in st.query_params:
        st.session_state.setdefault(COLORS.key, "stretched")
    for knob in (VIEW, COLORS, *more):
        Knobs(notes).value(knob)


def chosen_cell(notes: Notes, trace: Trace) -> Cell:
    """The address of one number: layer, step, head, row and column."""
    knobs = Knobs(notes)
    index = int(knobs.value(LAYER, Whole(0, len(trace.layers) - 1)))
    layer = trace.layers[index]
    step = knobs.value(*_step_of(layer))
    rows, columns = layer.shape(step)[-2:]
    sizes = ((HEAD, layer.n_heads), (QUERY, rows), (KEY, columns))
    return Cell(index, step, *(knobs.value(knob, Whole(0, size - 1)) for knob, size in sizes))


def asked_cell(notes: Notes) -> Cell:
    """The address of one number as it is asked for, where nobody has looked whether there is one."""
    knobs = Knobs(notes)
    layer, step, head, row, column = (knobs.value(knob) for knob in (LAYER, STEP, HEAD, QUERY, KEY))
    return Cell(layer, step, head, row, column)


def _step_of(layer: Layer) -> tuple[Knob, Choice]:
    """The knob of the step, which is the last that there is where the layer lacks the usual one, and the steps there are."""
    names = tuple(step.name for step in layer.steps)
    return (STEP if STEP.default in names else replace(STEP, default=names[-1])), Choice(names)


def choose(cell: Cell, layer: Layer | None = None) -> None:
    """Makes `cell` the chosen one. Only in a callback, before its widgets are drawn again.

    Given the `layer`, a row or column that the step does not have becomes the last it has.
    """
    row, column = cell.row, cell.column
    if layer is not None:
        rows, columns = layer.shape(cell.step)[-2:]
        row, column = min(row, rows - 1), min(column, columns - 1)
    hold({"layer": cell.layer, "step": cell.step, "head": cell.head, "q": row, "k": column})


def turn(turned: dict[str, Any]) -> None:
    """Takes over what the figure's own controls were let go at; what is not there becomes the last that is. Only in a callback."""
    known = here()
    ranges = {key: offered(known[key]) for key in turned if key in HELD}
    hold({
        key: float(turned[key]) if isinstance(within, Real) else turned[key]
        for key, within in ranges.items() if within.takes(turned[key])
    })  # fmt: skip


def hold(values: dict[str, Any]) -> None:
    """Sets held knobs. Only in a callback: the address takes them over when the page next runs as a whole."""
    session().turned.update(values)


def now(key: str) -> Any:
    """What a held knob stands at, by the last hand that turned it."""
    turned = session().turned
    if key in turned:
        return turned[key]
    return st.session_state[key] if key in st.session_state else here()[key].default


def its_own() -> bool:
    """Whether the chosen source brings its own formula."""
    return standing("source") in BRING_THEIR_OWN


def held_of_source() -> list[Knob]:
    """The held knobs of the layer that the chosen source has."""
    return [one for one in layer_of(standing("source")) if one.held]


Config = TypeVar("Config", AttentionConfig, WhatIf)


def config_now(before: Config) -> Config:
    """The knobs of a source's layer as the hand has left them.

    Another d_model has the heads that the sidebar will settle on, not those of the last.
    """
    turned = {one.name: now(one.key) for one in held_of_source()}
    if isinstance(before, AttentionConfig) and "d_model" in turned:
        wishes = session().wishes
        heads, shared = wishes.get("heads", (before.n_heads,))[0], wishes.get("kv_heads", (before.n_kv_heads,))[0]
        turned["n_heads"] = Divisors.heads(turned["d_model"], LIMITS.heads).nearest(heads)
        turned["n_kv_heads"] = Divisors.shared(turned["n_heads"]).nearest(shared)
    return replace(before, **turned)


def cell_now(trace: Trace) -> Cell:
    """The chosen cell as it was last clicked."""
    index = min(now("layer"), len(trace.layers) - 1)
    layer = trace.layers[index]
    names = [one.name for one in layer.steps]
    step = now("step") if now("step") in names else names[-1]
    rows, columns = layer.shape(step)[-2:]
    head, row, column = (
        max(0, min(now(key), size - 1)) for key, size in (("head", layer.n_heads), ("q", rows), ("k", columns))
    )
    return Cell(index, step, head, row, column)


def ask_for(texts: dict[str, str], page: str) -> None:
    """Opens a page with the knobs as `texts` say them; every other knob gets its default. Only in a callback."""
    ours = session()
    defaults = {key: in_url(one.default) for key, one in of(texts.get("source", "")).items()}
    ours.asked_for.update({**ours.defaults, **defaults, **texts})
    ours.next_page, ours.address_old, ours.first = page, True, None


def choose_mask(cells: str) -> None:
    """Makes the custom mask that `cells` describes the mask, or none if it hides nothing. Only in a callback."""
    hold({"mask": "custom" if cells else "none", "cells": cells})
