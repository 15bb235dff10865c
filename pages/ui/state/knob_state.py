"""The state of a tab: read, changed by actions (`attention.sources.state`), and written into the address."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import streamlit as st

from attention import AttentionError, Cell, Layer, Trace
from attention.base.knobs import Knob, Real, to_text
from attention.files.matrix import Matrix, Stack
from attention.pictures import view
from attention.pictures.view import COLUMN, HEAD, HEAT, LAYER, OVER, PAIR, SHOW, STEP, VIEW
from attention.sources import Source
from attention.sources.matrices import SYMBOLS, UPLOADED, Shape, uploaded_sizes
from attention.sources.reader import Reader, Uploads
from attention.sources.registry import SOURCE, opening_source, read_source
from attention.sources.state import (
    COMPARE,
    DISPLAY,
    EQUAL,
    LONGEST_IN_LINK,
    OPENING,
    START,
    Action,
    Go,
    Open,
    Restore,
    Set,
    Settle,
    State,
    apply,
    compared_state,
    differences,
)
from pages.ui.server.limits import LIMITS
from pages.ui.state.knob_table import COLORS, COMPARE_KEYS, COMPARING, DEFAULTS, INLINE_KEYS, KNOBS, knobs_of
from pages.ui.state.notices import Notes
from pages.ui.state.session import count_action, session


def act(action: Action) -> None:
    """Applies an action to the state of the tab."""
    ours = session()
    ours.state = apply(ours.state, action)


def open_knobs() -> tuple[str, ...] | None:
    """The names of the controls that stay usable on a locked page; None if the page is not locked.

    ``lock=1`` leaves none, ``present=temperature.mask`` leaves those that a teacher wants to use in front of a class.
    """
    parameters = session().state.parameters
    if parameters.get("lock") == "1":
        return ()
    present = parameters.get("present")
    return None if present is None else tuple(present.split("."))


def is_locked() -> bool:
    """Whether the page has no sidebar and no menu: the address has ``lock=1`` or ``present``."""
    return open_knobs() is not None


def is_presented() -> bool:
    """Whether the page is projected to a class: the address has ``present``."""
    return "present" in session().state.parameters


# Reading.


def reader(state: State | None = None) -> Reader:
    """A reader of the state of this tab, or of another one such as B, with the uploads of the tab."""
    ours = session()
    state = state or ours.state
    given = {name: uploaded.given for name, uploaded in ours.uploaded_inputs.items()}
    checked = state.texts.keys() - state.unread
    return Reader(state.texts, LIMITS, Uploads(ours.file, given), checked, state.wishes)


def take(read: Reader, notes: Notes | None = None) -> None:
    """Keeps the values that were read in the state; `notes` shows what a link asked for in vain."""
    ours = session()
    texts: dict[str, str | None] = {}
    for key, field in read.fields.items():
        is_matrix = key in SYMBOLS
        text = read.texts.get(key, field.default) if is_matrix else to_text(field.value)
        ours.defaults[key] = to_text(field.default)
        ours.fields[key] = field
        ours.read.add(key)
        texts[key] = None if text == ours.defaults[key] else text
    for key, note in read.notes.items():
        if notes is None:
            continue
        # A value that a link asked for in vain is explained on the page; one that another knob has just made impossible, in passing.
        if key not in ours.kept or key in ours.state.unread:
            notes.warn(note)
        elif _shown_text(key, read.fields[key].knob) != to_text(read.fields[key].value):
            st.toast(note, duration="long")
    state = ours.state
    if any(state.texts.get(key) != text or key in state.unread for key, text in texts.items()) or read.wishes:
        act(Settle(texts, read.wishes))


def _shown_text(key: str, knob: Knob) -> str:
    """What the page shows of a knob now, in its widget or in its control."""
    ours = session()
    return ours.drawn[key].text if key in ours.drawn else ours.state.texts.get(key, to_text(knob.default))


def current_source() -> Source:
    """The source that the state describes, without notes.

    Raises:
        AttentionError: it describes none.
    """
    read = reader()
    source = read_source(read)
    take(read)
    return source


def write_sizes(matrices: Mapping[str, Matrix | Stack | AttentionError]) -> None:
    """Writes the sizes of matrices that are too long for a link into the state; none for another source than matrices."""
    texts = session().state.texts
    sizes = {name: size for name, size in sizes_in_link().items() if name in matrices and name not in texts}
    for name, matrix in matrices.items():
        if too_long(name) and not isinstance(matrix, AttentionError):
            sizes[name] = str(Shape.of(matrix)).replace(" × ", "x")
    session().read.add(UPLOADED)
    _write_sizes(sizes)


def forget_size(name: str) -> None:
    """Removes the size of a matrix, of which the whole text is here now."""
    _write_sizes({other: size for other, size in sizes_in_link().items() if other != name})


def _write_sizes(sizes: Mapping[str, str]) -> None:
    text = ",".join(f"{name}:{size}" for name, size in sizes.items()) or None
    if text != session().state.texts.get(UPLOADED):
        act(Settle({UPLOADED: text}))


def sizes_in_link() -> dict[str, str]:
    """The sizes of the matrices that are too long for the link, by name."""
    return uploaded_sizes(session().state.texts.get(UPLOADED, ""))


def too_long(name: str) -> bool:
    """Whether the matrix is too long for the link, which then has only its size."""
    return len(session().state.texts.get(name, "")) > LONGEST_IN_LINK


def standing(key: str) -> str:
    """The text of a knob; empty where it has its default."""
    return session().state.texts.get(key, "")


def current_value(key: str, of: State | None = None) -> Any:
    """The value of a knob: in the state of the tab, or in another one such as B."""
    state = of or session().state
    knob = knobs_of(state.texts.get("source", ""))[key]
    if key not in state.texts:
        return knob.default
    return knob.read(state.texts[key], knob.on_pages(LIMITS), knob.default)[0]


def edited() -> State:
    """The state that the knobs change: B in a comparison, while its switch is at B."""
    state = session().state
    return state.other if state.edits == "B" else state


def _changed_by(to: str) -> State:
    """The state that an action changes, see `attention.sources.state.Set`."""
    return edited() if not to else session().state.other if to == "B" else session().state


def read_view(notes: Notes) -> None:
    """Reads the display knobs of a trace, and those of a comparison."""
    read = reader()
    for knob in (VIEW, SHOW, COLORS, OVER, HEAT, PAIR, *(COMPARING if session().state.compares else ())):
        read.knob(knob, knob.on_pages(LIMITS))
    take(read, notes)


def chosen_cell(notes: Notes, trace: Trace) -> Cell:
    """The chosen cell of the trace: layer, step, head, row and column."""
    read = reader()
    cell = view.read_cell(read.knob, trace)
    take(read, notes)
    return cell


def requested_cell(notes: Notes) -> Cell:
    """The requested cell, without a check that the trace has it."""
    read = reader()
    layer, step, head, column = (read.knob(knob) for knob in (LAYER, STEP, HEAD, COLUMN))
    cell = Cell(layer, step, head, *(read.knob(knob) for knob in view.position_knobs(step, column)))
    take(read, notes)
    return cell


def current_cell(trace: Trace) -> Cell:
    """The cell that was clicked last, limited to the sizes of the trace."""
    return view.read_cell(reader().knob, trace)


# Changing. Only in a callback, or at the beginning of a run.


def hold(values: Mapping[str, Any], to: Literal["", "A", "B", "both"] = "A") -> None:
    """Sets knobs to these values; `to`: of which state, see `attention.sources.state.Set`."""
    count_action()
    known = knobs_of(str(values.get("source", _changed_by(to).texts.get("source", ""))))
    defaults = session().defaults | {key: to_text(knob.default) for key, knob in known.items()}
    texts = {key: to_text(value) for key, value in values.items()}
    act(Set({key: None if text == defaults.get(key) else text for key, text in texts.items()}, to))


def apply_controls(values: Mapping[str, Any], to: Literal["", "B", "both"] = "") -> None:
    """Sets knobs from the figure's controls, in the state that the knobs change; values out of range are ignored."""
    knobs = knobs_of(str(values.get("source", _changed_by(to).texts.get("source", ""))))
    values = {**_column_of_step(values), **values}
    ranges = {key: knobs[key].on_pages(LIMITS) for key in values if key in (knobs if to == "B" else INLINE_KEYS)}
    accepted = {key: values[key] for key, within in ranges.items() if within.accepts(values[key])}
    # JavaScript sends 1 for 1.0, and an integer would be another text in the address.
    numbers = {
        key: float(accepted[key]) for key in accepted if isinstance(ranges[key], Real) and accepted[key] is not None
    }
    hold(accepted | numbers, to)


def _column_of_step(values: Mapping[str, Any]) -> dict[str, int]:
    """The first column of a step of features that the user opens, or where a link from before the knob `column` is, see `view.COLUMN`."""
    step = values.get("step", current_value("step"))
    if current_value("column") is not None or not STEP.range.accepts(step) or COLUMN not in view.position_knobs(step):
        return {}
    if "step" in values:
        return {"column": 0}
    return view.position_values(Cell(0, step, 0, current_value("q"), current_value("k")))


def choose_cell(cell: Cell, layer: Layer | None = None) -> None:
    """Chooses a cell. With a `layer`, rows and columns beyond the step's matrix become the last ones."""
    cell = view.clamp_cell(cell, layer) if layer is not None else cell
    hold({"layer": cell.layer, "step": cell.step, "head": cell.head, **view.position_values(cell)})


def set_custom_mask(cells: str) -> None:
    """Selects the custom mask described by `cells`, or no mask if `cells` is empty."""
    hold({"mask": "custom" if cells else "none", "cells": cells})


def open_page(texts: Mapping[str, str], page: str) -> None:
    """Opens a page with these texts; every other knob gets its default."""
    act(Open(texts))
    session().next_page = page
    count_action()


def restore_state(texts: Mapping[str, str]) -> None:
    """Restores the state of an address. Remembers what the page may still send of the widgets that it replaces."""
    ours = session()
    act(Restore(texts))
    for key, drawn in ours.drawn.items():
        if ours.state.texts.get(drawn.knob, drawn.default) != drawn.text or drawn.of == "B":
            ours.replaced.setdefault(key, set()).add(drawn.text)


def compare() -> None:
    """Puts a second state beside the first."""
    hold({COMPARE: OPENING})


def leave_comparison() -> None:
    """Takes the second state away."""
    hold({key: DEFAULTS[key] for key in COMPARE_KEYS})


def open_last_change() -> None:
    """Compares the state before the last change, as A, with the current one as B."""
    before, after = session().recent_states
    shown = shown_texts(early=True)
    display = {key: text for key, text in shown.items() if key in KNOBS and key not in compared_state(shown)}
    open_page({**display, **before, COMPARE: differences(before, after) or EQUAL}, START)


# A run.


def begin_run(title: str) -> None:
    """Begins a run of a page: another page gets the texts of the link that led to it. Call it before any knob is read."""
    ours = session()
    if not ours.state.page:
        act(Go(title, ours.state.parameters))  # the first page: the link is its state already
        if title == START and not ours.state.texts:
            act(Set({SOURCE.key: opening_source()}))
    elif ours.state.page != title:
        link = st.query_params.to_dict()
        # Only Explore has two states: elsewhere a link keeps those of A.
        act(Go(title, {key: text for key, text in link.items() if title == START or key not in COMPARE_KEYS}))
        ours.handlers, ours.drawn = {}, {}
        if ours.exports is not None:
            ours.exports.offers.clear()
    ours.runs += 1
    ours.kept = ours.read | (ours.state.unread & KNOBS.keys())
    ours.read = set()


def end_knobs() -> None:
    """Remembers the state, for the button that shows the last change. Call it when all shared knobs have been read."""
    ours = session()
    current = compared_state(shown_texts())
    if not ours.recent_states or current != ours.recent_states[-1]:
        ours.recent_states = [*ours.recent_states[-1:], current]


def end_run(failed: bool) -> None:
    """Ends a full run. After a `failed` one, parameters that were not read stay in the address."""
    ours = session()
    if failed:
        ours.read |= ours.kept
    ours.drawn = {key: drawn for key, drawn in ours.drawn.items() if drawn.run == ours.runs}


def shown_texts(early: bool = False) -> dict[str, str]:
    """The knobs of the page that differ from their defaults, long matrices included, and those that wait for another source.

    Args:
        early: whether the page has not read all of its knobs in this run; those of the run before then count, too.
    """
    ours = session()
    read = ours.read | (ours.state.unread & KNOBS.keys() - set(INLINE_KEYS)) | (ours.kept if early else set())
    return {key: text for key, text in ours.state.texts.items() if key in read}


def display_parameters() -> dict[str, str]:
    """The address parameters that select how the state is displayed: ``lock`` and ``present``."""
    parameters = session().state.parameters
    return {key: parameters[key] for key in DISPLAY if key in parameters}


def address() -> dict[str, str]:
    """The query parameters of the current page: its knobs, and unknown parameters."""
    ours = session()
    others = ours.state.parameters.items()
    unknown = {key: text for key, text in others if not (key in KNOBS or key in ours.defaults or key == UPLOADED)}
    shown = {key: text for key, text in shown_texts().items() if not (key in SYMBOLS and too_long(key))}
    return unknown | shown
