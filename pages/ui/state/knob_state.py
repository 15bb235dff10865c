"""The current values of the knobs: carried from page to page, written into the address, changed by the user.

The file is long because every function writes the same few places: widget values, pending values, and the address.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, TypeVar

import streamlit as st

from attention import AttentionConfig, Cell, Layer, Override, Trace
from attention.base.knobs import Knob, Real, to_text
from attention.formula import override
from attention.formula.config import SOURCES_WITH_FORMULA
from attention.pictures import view
from attention.sources import second_state
from attention.sources.reader import Divisors
from attention.sources.split_heads import SYMBOLS
from pages.ui.server.limits import LIMITS
from pages.ui.state.knob_table import (
    COLORS,
    COLUMN,
    COMPARE_KEYS,
    HEAD,
    HEAT,
    INLINE_KEYS,
    KNOBS,
    LAYER,
    OVER,
    PAIR,
    STEP,
    VIEW,
    allowed_range,
    knobs_of,
    layer_knobs,
)
from pages.ui.state.matrices import LONGEST_IN_LINK, sizes_in_link, too_long
from pages.ui.state.notices import Notes
from pages.ui.state.session import ReplacedWidget, Session, count_action, session
from pages.ui.state.widgets import Knobs, current_knobs, standing


def state(whole: bool = False) -> dict[str, str]:
    """The shared knobs that differ from their defaults, with their URL values.

    With `whole` it includes the matrices that are too long for a URL.
    """
    # One copy: each access to the session state costs as much as drawing a line of text.
    ours, widget_values = session(), st.session_state.to_dict()
    read = (key for key in KNOBS if key not in INLINE_KEYS or key in ours.knobs_read)
    values = {key: ours.requested[key] if key in ours.requested else to_text(widget_values.get(key)) for key in read}
    values |= {name: text for name, text in ours.long_matrices.items() if text}
    if not whole:
        values |= {name: "" for name in SYMBOLS if len(values[name]) > LONGEST_IN_LINK}
    known = current_knobs()
    return {key: value for key, value in values.items() if value and value != to_text(known[key].default)}


def display_parameters() -> dict[str, str]:
    """The address parameters that select how the state is displayed: ``lock`` and ``present``."""
    address = session().address
    return {key: address[key] for key in ("lock", "present") if key in address}


def page_knobs() -> dict[str, str]:
    """The knobs of single pages that differ from their defaults, with their URL values."""
    defaults = session().defaults
    texts = {key: to_text(st.session_state[key]) for key in defaults if key not in KNOBS and key in st.session_state}
    return {key: text for key, text in texts.items() if text != defaults[key]}


def address() -> dict[str, str]:
    """The query parameters of the current page: the state, the page's own knobs, and unknown parameters of the old address."""
    ours = session()
    widget_values = st.session_state.to_dict()
    current = {key: to_text(widget_values[key]) for key in ours.knobs_read if key in widget_values}
    current = {
        key: text
        for key, text in current.items()
        if text != ours.defaults[key] and not (key in SYMBOLS and too_long(key))
    }
    # Requested but not read yet, for example by another source.
    waiting = {key: text for key, text in state().items() if key not in current and key in ours.requested}
    unknown = {key: text for key, text in ours.address.items() if key not in KNOBS and key not in ours.defaults}
    parameters = {**unknown, **waiting, **current}
    in_old_order = {key: parameters[key] for key in ours.address if key in parameters}
    return in_old_order | parameters


def finish(failed: bool) -> dict[str, str]:
    """The query parameters at the end of a full run. After a `failed` run, parameters that were not read stay unchanged."""
    ours = session()
    if failed:
        unread = {
            key: text
            for key, text in ours.address.items()
            if key not in ours.knobs_read and not (key and key in st.session_state)  # Streamlit refuses an empty key
        }
        ours.requested = {**unread, **ours.requested}
    ours.consumed, ours.restoring = {}, False
    parameters = address()
    if failed:
        parameters = {**{key: text for key, text in ours.address.items() if key not in ours.knobs_read}, **parameters}
    return parameters


def carry_over(title: str) -> None:
    """Restores the knobs of the previous page and applies pending values. Call it before any knob is read."""
    ours = session()
    page_changed = ours.page not in ("", title)
    # A run that was stopped has consumed these without effect.
    ours.requested, ours.consumed = {**ours.consumed, **ours.requested}, {}
    _undo_late_values(ours)
    if page_changed:
        ours.first_state = None
        st.session_state.update(ours.carried_knobs)
        ours.address = display_parameters()
        _follow_link(title)
    st.session_state.update(ours.pending_values)
    ours.pending_values = {}
    _carry_to_source(first=not ours.page)
    ours.knobs_read.clear()


def _undo_late_values(ours: Session) -> None:
    """Restores widgets that Back replaced and that a late message of the page set to their earlier values."""
    for key, widget in [*ours.replaced_widgets.items()]:
        if not widget.is_applied or key in ours.requested or key not in st.session_state:
            continue
        current = st.session_state[key]
        if current != widget.value and current in widget.earlier_values:
            st.session_state[key] = widget.value
        elif current != widget.value:
            del ours.replaced_widgets[key]  # the user has changed it since


def _follow_link(title: str) -> None:
    """Applies the parameters of the link that led from another page to this one; all other knobs keep their values."""
    link = {
        key: text for key, text in st.query_params.to_dict().items() if title == "Compare" or key not in COMPARE_KEYS
    }
    request_values(link)
    session().address |= {key: text for key, text in link.items() if key not in KNOBS}


def _carry_to_source(first: bool) -> None:
    """Stashes the knobs after the scores when the user enters or leaves a source that brings its own formula.

    Such a source begins as published; the stashed values return with the other kind of source.
    Does nothing on the `first` run or after Back, when the address has all values.
    """
    ours = session()
    chosen, before = standing("source"), ours.source
    ours.source = chosen
    if first or ours.restoring or (chosen in SOURCES_WITH_FORMULA) == (before in SOURCES_WITH_FORMULA):
        return
    keys = [knob.key for knob in override.KNOBS]
    ours.stashed[before in SOURCES_WITH_FORMULA] = {
        key: st.session_state[key] for key in keys if key in st.session_state
    }
    stashed = ours.stashed.get(chosen in SOURCES_WITH_FORMULA, {})
    st.session_state.update({key: stashed.get(key, knobs_of(chosen)[key].default) for key in keys})


def remember(title: str) -> None:
    """Stores the knobs for `carry_over`. Call it when all shared knobs have been read."""
    ours = session()
    values = st.session_state.to_dict()
    ours.carried_knobs |= {key: values[key] for key in KNOBS if key in values and key not in INLINE_KEYS}
    if ours.page != title:
        ours.handlers = {}
        if ours.exports is not None:
            ours.exports.offers.clear()
    ours.page = title
    # The state before the last change, for the button that compares both.
    current = second_state.compared_state(state(whole=True))
    if not ours.recent_states or current != ours.recent_states[-1]:
        ours.recent_states = [*ours.recent_states[-1:], current]


def keep_undrawn() -> None:
    """Keeps the knobs of the sidebar, and their place in the address, in a run that does not draw them: Streamlit forgets a widget that is not drawn."""
    ours = session()
    st.session_state.update({key: value for key, value in ours.carried_knobs.items() if key not in ours.requested})
    kept = {key for key in KNOBS if (ours.defaults if key in st.session_state else ours.requested).get(key) is not None}
    ours.knobs_read |= kept


def read_view(notes: Notes, more: Sequence[Knob] = ()) -> None:
    """Reads the display knobs of a trace and the `more` knobs that only this page has."""
    for knob in (VIEW, COLORS, OVER, HEAT, PAIR, *more):
        Knobs(notes).value(knob)


def chosen_cell(notes: Notes, trace: Trace) -> Cell:
    """The chosen cell of the trace: layer, step, head, row and column."""
    return view.read_cell(Knobs(notes).value, trace)


def requested_cell(notes: Notes) -> Cell:
    """The requested cell, without a check that the trace has it."""
    knobs = Knobs(notes)
    layer, step, head, column = (knobs.value(knob) for knob in (LAYER, STEP, HEAD, COLUMN))
    return Cell(layer, step, head, *(knobs.value(knob) for knob in view.position_knobs(step, column)))


def choose_cell(cell: Cell, layer: Layer | None = None) -> None:
    """Chooses a cell. Only in a callback, before its widgets are drawn again.

    With a `layer`, rows and columns beyond the step's matrix become the last ones.
    """
    cell = view.clamp_cell(cell, layer) if layer is not None else cell
    hold({"layer": cell.layer, "step": cell.step, "head": cell.head, **view.position_values(cell)})


def apply_controls(values: dict[str, Any]) -> None:
    """Sets inline knobs from the figure's controls; values out of range are ignored. Only in a callback."""
    knobs = current_knobs()
    values = _column_of_step(values) | values
    ranges = {key: allowed_range(knobs[key]) for key in values if key in INLINE_KEYS}
    hold({
        key: float(values[key]) if isinstance(allowed, Real) else values[key]
        for key, allowed in ranges.items() if allowed.accepts(values[key])
    })  # fmt: skip


def _column_of_step(values: dict[str, Any]) -> dict[str, int]:
    """The first column of a step of features that the user opens, or where a link from before the knob `column` is, see `view.COLUMN`."""
    step = values.get("step", current_value("step"))
    if current_value("column") is not None or not STEP.range.accepts(step) or COLUMN not in view.position_knobs(step):
        return {}
    if "step" in values:
        return {"column": 0}
    return view.position_values(Cell(0, step, 0, current_value("q"), current_value("k")))


def hold(values: dict[str, Any]) -> None:
    """Sets inline knobs, in a callback or for an action of the page. The next full run reads them."""
    count_action()
    ours = session()
    ours.pending_values.update(values)
    for key in values:
        ours.requested.pop(key, None)
        ours.consumed.pop(key, None)


def current_value(key: str) -> Any:
    """The current value of an inline knob, pending changes included."""
    ours, known = session(), current_knobs()
    if key in ours.pending_values:
        return ours.pending_values[key]
    if key in ours.requested:
        return known[key].read(ours.requested[key], allowed_range(known[key]), known[key].default)[0]
    return st.session_state[key] if key in st.session_state else known[key].default


def brings_own_formula() -> bool:
    """Whether the chosen source brings its own formula."""
    return standing("source") in SOURCES_WITH_FORMULA


def inline_knobs_of_source() -> list[Knob]:
    """The inline knobs of the chosen source's layer."""
    return [knob for knob in layer_knobs(standing("source")) if knob.inline]


Config = TypeVar("Config", AttentionConfig, Override)


def current_config(before: Config) -> Config:
    """The configuration with all pending changes of inline knobs.

    A new d_model gets the numbers of heads that the sidebar will choose for it.
    """
    values = {knob.name: current_value(knob.key) for knob in inline_knobs_of_source()}
    if isinstance(before, AttentionConfig) and "d_model" in values:
        wishes = session().requested_heads
        heads, kv_heads = wishes.get("heads", (before.n_heads,))[0], wishes.get("kv_heads", (before.n_kv_heads,))[0]
        values["n_heads"] = Divisors.heads(values["d_model"], LIMITS.heads).nearest(heads)
        values["n_kv_heads"] = Divisors.shared(values["n_heads"]).nearest(kv_heads)
    return replace(before, **values)


def current_cell(trace: Trace) -> Cell:
    """The cell that was clicked last, limited to the sizes of the trace."""
    index = view.layer_range(trace).nearest(current_value("layer"))
    layer = trace.layers[index]
    names = [step.name for step in layer.steps]
    step = current_value("step") if current_value("step") in names else names[-1]
    rows, columns = layer.shape(step)[-2:]
    sides = view.position_knobs(step, current_value("column"))
    head, row, column = (
        max(0, min(current_value(key) or 0, size - 1))
        for key, size in (("head", layer.n_heads), (sides[0].key, rows), (sides[1].key, columns))
    )
    return Cell(index, step, head, row, column)


def request_values(texts: dict[str, str]) -> None:
    """Requests these URL values; the next run that reads the knobs applies them."""
    ours = session()
    for key in texts:
        ours.pending_values.pop(key, None)
    ours.requested.update(texts)


def open_page(texts: dict[str, str], page: str) -> None:
    """Opens a page with these URL values; every other knob gets its default. Only in a callback."""
    ours = session()
    defaults = {key: to_text(knob.default) for key, knob in knobs_of(texts.get("source", "")).items()}
    request_values({**ours.defaults, **defaults, **texts})
    ours.pending_values, ours.address, ours.restoring = {}, display_parameters(), True
    ours.next_page, ours.first_state = page, None
    count_action()


def restore_state(texts: dict[str, str]) -> None:
    """Restores the state of an address. Values that no address holds, such as an uploaded matrix, stay."""
    ours = session()
    known = knobs_of(texts.get("source", ""))
    defaults = {**ours.defaults, **{key: to_text(knob.default) for key, knob in known.items()}}
    current = {**ours.address, **state(), **page_knobs(), **ours.pending_values}
    requested = {key: defaults[key] for key in current if key in defaults and key not in texts} | texts
    for key, text in requested.items():
        if (
            key in ours.widget_arguments
            and key in st.session_state
            and to_text(before := st.session_state[key]) != text
        ):
            ours.replaced_widgets.setdefault(key, ReplacedWidget()).earlier_values.append(before)
    request_values(requested)
    ours.pending_values, ours.address, ours.restoring = {}, texts, True
    ours.first_state = None
    for name in sizes_in_link():
        if not too_long(name):  # the matrix was on another server, and this one began with the default
            for values in (ours.requested, ours.carried_knobs, st.session_state):
                values.pop(name, None)


def set_custom_mask(cells: str) -> None:
    """Selects the custom mask described by `cells`, or no mask if `cells` is empty. Only in a callback."""
    hold({"mask": "custom" if cells else "none", "cells": cells})
