"""What the knobs of a page stand at: carried from page to page, said in the address, turned by a hand.

It is one long file because all of it writes the same few places: the widgets' values, what a hand has turned, the address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import streamlit as st

from attention import AttentionConfig, Cell, Layer, Trace, WhatIf
from attention.formula import what_if
from attention.formula.config import BRING_THEIR_OWN
from attention.formula.knobs import Knob
from attention.formula.ranges import Real, in_url
from attention.pictures import view
from attention.sources import second
from attention.sources.cutting import SYMBOLS
from attention.sources.divisors import Divisors
from attention.sources.link_aliases import with_current_keys
from pages.ui.knobs.session import Replaced, Session, acted, session
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
from pages.ui.knobs.texts import LONGEST_IN_LINK, sizes_in_link, too_long
from pages.ui.knobs.widgets import Knobs, here, locked, standing
from pages.ui.notes import Notes


def state(whole: bool = False) -> dict[str, str]:
    """The shared knobs that differ from their defaults, as they stand in the URL.

    With `whole` also the matrices that are too long for a URL.
    """
    # Copied at once: a look into it costs as much as drawing a line of text.
    ours, there = session(), st.session_state.to_dict()
    read = (key for key in KNOBS if key not in HELD or key in ours.read)
    values = {key: ours.asked_for[key] if key in ours.asked_for else in_url(there.get(key)) for key in read}
    values |= {name: text for name, text in ours.large.items() if text}
    if not whole:
        values |= {name: "" for name in SYMBOLS if len(values[name]) > LONGEST_IN_LINK}
    known = here()
    return {key: value for key, value in values.items() if value and value != in_url(known[key].default)}


def modes() -> dict[str, str]:
    """What the address says of how the state is shown, beside the state itself."""
    address = session().address
    return {key: address[key] for key in ("lock", "present") if key in address}


def of_pages() -> dict[str, str]:
    """The knobs of single pages that differ from their defaults, as they stand in the URL."""
    drawn = session().defaults
    now = {key: in_url(st.session_state[key]) for key in drawn if key not in KNOBS and key in st.session_state}
    return {key: text for key, text in now.items() if text != drawn[key]}


def address() -> dict[str, str]:
    """What the address says of the page that is shown: the state, its own knobs, and what else stood there before."""
    ours = session()
    there = st.session_state.to_dict()
    now = {key: in_url(there[key]) for key in ours.read if key in there}
    now = {
        key: text for key, text in now.items() if text != ours.defaults[key] and not (key in SYMBOLS and too_long(key))
    }
    waits = {
        key: text for key, text in state().items() if key not in now and key in ours.asked_for
    }  # of another source, say
    other = {key: text for key, text in ours.address.items() if key not in KNOBS and key not in ours.defaults}
    found = {**other, **waits, **now}
    first = {key: found[key] for key in ours.address if key in found}  # what stood there keeps its place
    return first | found


def finish(failed: bool) -> dict[str, str]:
    """Ends a run of the whole page, and gives its address. Where it `failed`, what it has not read stays as it was."""
    ours = session()
    if failed:
        unread = {
            key: text for key, text in ours.address.items() if key not in ours.read and key not in st.session_state
        }
        ours.asked_for = {**unread, **ours.asked_for}
    ours.taken, ours.restoring = {}, False
    found = address()
    if failed:
        found = {**{key: text for key, text in ours.address.items() if key not in ours.read}, **found}
    return found


def carry_over(title: str) -> None:
    """Gives a page the knobs of the page before it, and of the hand. Called before any knob is read."""
    ours = session()
    another = ours.page not in ("", title)
    # What a run has taken that was stopped is asked for again.
    ours.asked_for, ours.taken = {**ours.taken, **ours.asked_for}, {}
    _undo_late_values(ours)
    if another:
        ours.first = None
        st.session_state.update(ours.kept)
        ours.address = modes()
        _follow_link(title)
    st.session_state.update(ours.turned)
    ours.turned = {}
    _carry_to_source(first=not ours.page)
    # A page about masks opens with one; an address and a state file mean what they say.
    as_asked = ours.restoring or "mask" in ours.asked_for or locked()
    if another and title == "Masks" and not as_asked and standing("mask") in ("", "none") and first_mask():
        st.session_state["mask"] = first_mask()
    ours.read.clear()


def _undo_late_values(ours: Session) -> None:
    """Sets widgets again that Back has set, and that a message from before the page knew it says otherwise of."""
    for key, one in [*ours.replaced.items()]:
        if not one.set or key in ours.asked_for or key not in st.session_state:
            continue
        now = st.session_state[key]
        if now != one.value and now in one.before:
            st.session_state[key] = one.value
        elif now != one.value:
            del ours.replaced[key]  # a person has turned it since


def _follow_link(title: str) -> None:
    """Takes over what the link says that has led to this page from another; its other knobs stay what they are."""
    found, notes = with_current_keys(st.query_params.to_dict())
    session().notes += [note for note in notes if note not in session().notes]
    link = {key: text for key, text in found.items() if title == "Compare" or key not in OF_COMPARE}
    ask(link)
    session().address |= {key: text for key, text in link.items() if key not in KNOBS}


def _carry_to_source(first: bool) -> None:
    """Lays the knobs after the scores by where a source that brings its own formula is chosen, or left: it begins as it was published.

    Who comes back finds them as they were. On the `first` run the link says all, after Back the address.
    """
    ours = session()
    chosen, before = standing("source"), ours.source
    ours.source = chosen
    if first or ours.restoring or (chosen in BRING_THEIR_OWN) == (before in BRING_THEIR_OWN):
        return
    keys = [one.key for one in what_if.KNOBS]
    ours.laid_by[before in BRING_THEIR_OWN] = {key: st.session_state[key] for key in keys if key in st.session_state}
    waited = ours.laid_by.get(chosen in BRING_THEIR_OWN, {})
    st.session_state.update({key: waited.get(key, of(chosen)[key].default) for key in keys})


def first_mask() -> str:
    """The mask that a page about masks opens with where there is none; empty where the source has its own."""
    return "causal" if of(standing("source"))["mask"].default == "none" else ""


def keep(title: str) -> None:
    """Remembers the knobs for `carry_over`. Called when all that pages share have been read."""
    ours = session()
    there = st.session_state.to_dict()
    ours.kept |= {key: there[key] for key in KNOBS if key in there and key not in HELD}
    if ours.page != title:
        ours.handlers = {}
        if ours.exports is not None:
            ours.exports.offers.clear()
    ours.page = title
    # What was so before the last knob was turned, for who asks what that has changed.
    found = second.compared(state(whole=True))
    if not ours.states or found != ours.states[-1]:
        ours.states = [*ours.states[-1:], found]


def read_view(notes: Notes, more: Sequence[Knob] = ()) -> None:
    """Reads the knobs that say how a trace is shown, and those that only this page has."""
    # An old link or state file may have the switch that is one of the `colors` now.
    ours = session()
    ours.address.pop("lab_stretch", None)
    if ours.asked_for.pop("lab_stretch", None) == "true" and not standing(COLORS.key):
        ours.asked_for[COLORS.key] = "stretched"
    for knob in (VIEW, COLORS, *more):
        Knobs(notes).value(knob)


def chosen_cell(notes: Notes, trace: Trace) -> Cell:
    """The address of one number: layer, step, head, row and column."""
    return view.read_cell(Knobs(notes).value, trace)


def asked_cell(notes: Notes) -> Cell:
    """The address of one number as it is asked for, where nobody has looked whether there is one."""
    knobs = Knobs(notes)
    layer, step, head, row, column = (knobs.value(knob) for knob in (LAYER, STEP, HEAD, QUERY, KEY))
    return Cell(layer, step, head, row, column)


def choose(cell: Cell, layer: Layer | None = None) -> None:
    """Makes `cell` the chosen one. Only in a callback, before its widgets are drawn again.

    Given the `layer`, a row or column that the step does not have becomes the last it has.
    """
    cell = view.clamped(cell, layer) if layer is not None else cell
    hold({"layer": cell.layer, "step": cell.step, "head": cell.head, "q": cell.row, "k": cell.column})


def turn(turned: dict[str, Any]) -> None:
    """Takes over what the figure's own controls were let go at; what is not there becomes the last that is. Only in a callback."""
    known = here()
    ranges = {key: offered(known[key]) for key in turned if key in HELD}
    hold({
        key: float(turned[key]) if isinstance(within, Real) else turned[key]
        for key, within in ranges.items() if within.takes(turned[key])
    })  # fmt: skip


def hold(values: dict[str, Any]) -> None:
    """Sets held knobs, in a callback or for an act of the page: they are read when the page next runs as a whole."""
    acted()
    ours = session()
    ours.turned.update(values)
    for key in values:
        ours.asked_for.pop(key, None)
        ours.taken.pop(key, None)


def now(key: str) -> Any:
    """What a held knob stands at, by the last hand that turned it."""
    ours, known = session(), here()
    if key in ours.turned:
        return ours.turned[key]
    if key in ours.asked_for:
        return known[key].read(ours.asked_for[key], offered(known[key]), known[key].default)[0]
    return st.session_state[key] if key in st.session_state else known[key].default


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


def ask(texts: dict[str, str]) -> None:
    """Gives knobs what these `texts` say, in the next run that reads them."""
    ours = session()
    for key in texts:
        ours.turned.pop(key, None)
    ours.asked_for.update(texts)


def ask_for(texts: dict[str, str], page: str) -> None:
    """Opens a page with the knobs as `texts` say them; every other knob gets its default. Only in a callback."""
    ours = session()
    defaults = {key: in_url(one.default) for key, one in of(texts.get("source", "")).items()}
    ask({**ours.defaults, **defaults, **texts})
    ours.turned, ours.address, ours.restoring = {}, modes(), True
    ours.next_page, ours.first = page, None
    acted()


def restore(texts: dict[str, str]) -> None:
    """Goes back to the state that an address says; what no address holds, an uploaded matrix say, stays."""
    ours = session()
    known = of(texts.get("source", ""))
    defaults = {**ours.defaults, **{key: in_url(one.default) for key, one in known.items()}}
    now = {**ours.address, **state(), **of_pages(), **ours.turned}
    wanted = {key: defaults[key] for key in now if key in defaults and key not in texts} | texts
    for key, text in wanted.items():
        if key in ours.ranges and key in st.session_state and in_url(before := st.session_state[key]) != text:
            ours.replaced.setdefault(key, Replaced()).before.append(before)
    ask(wanted)
    ours.turned, ours.address, ours.restoring = {}, texts, True
    ours.first = None
    for name in sizes_in_link():
        if not too_long(name):  # another server had the matrix, and this one has begun with the default
            for values in (ours.asked_for, ours.kept, st.session_state):
                values.pop(name, None)


def choose_mask(cells: str) -> None:
    """Makes the custom mask that `cells` describes the mask, or none if it hides nothing. Only in a callback."""
    hold({"mask": "custom" if cells else "none", "cells": cells})
