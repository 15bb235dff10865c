"""The editor of the user's own matrices: paste, edit in a grid, or upload. The text of each matrix in `matrix_drafts` is its only source."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import PARAMETERS, AttentionError
from attention.io.text.matrix import Matrix, Stack, as_stack
from attention.io.text.matrix_text import format_matrix, parse_text
from attention.io.text.parsed import rounding_note
from attention.io.text.uploaded import EXTENSIONS
from attention.sources.kinds.matrices_source import MAX_MATRIX_CHARACTERS, OPTIONAL_MATRIX_FIELDS
from attention.sources.split_heads import SYMBOLS, Shape
from attention.sources.starting_matrices import describe_sizes, resize_to_fit
from pages.ui.state import matrix_drafts
from pages.ui.state.knob_table import KNOBS
from pages.ui.state.session import count_action, session
from pages.ui.state.widgets import Knobs

GRID_UP_TO = 64  # rows or columns
OPTIONAL = {name for names in OPTIONAL_MATRIX_FIELDS.values() for name in names}
_MEANINGS = {parameter.name: parameter.meaning for parameter in PARAMETERS}
EDITOR = "matrices_editor"  # key of the expander; its value is whether it is open


def matrices(knobs: Knobs, fields: Sequence[str]) -> dict[str, Matrix | Stack]:
    """The user's matrices by name. Draws a tab for each, with a grid, a text field and an upload field.

    A matrix whose default is empty may stay empty.

    Raises:
        AttentionError: a matrix cannot be read. All tabs are drawn before.
    """
    parsed: dict[str, Matrix | Stack] = {}
    problems: dict[str, AttentionError] = {}
    for name in fields:
        try:
            parsed[name] = matrix_drafts.read_matrix(name, optional=not KNOBS[name].default)
        except AttentionError as error:
            problems[name] = error
    if not knobs.locked:
        # Errors of uploads; a matrix that was there before remains in use.
        upload_problems = {name: problem for name, problem in knobs.session.upload_problems.items() if name in fields}
        resized = parsed if problems else resize_to_fit(parsed)
        with _editor(describe_sizes(parsed), has_problem=bool(problems or upload_problems) or resized != parsed):
            if resized != parsed:
                st.button(
                    f"Resize the others to fit {SYMBOLS[fields[0]]}",
                    key="matrices_fit",
                    on_click=matrix_drafts.store_resized,
                    args=(resized,),
                    help="Changes the sizes of the other matrices. Numbers keep their places; new cells are 0.",
                )
            required = [name for name in fields if name not in OPTIONAL]
            _tabs(knobs, required, parsed, {**problems, **upload_problems})
        optional = [name for name in fields if name in OPTIONAL]
        has_problem = any(name in {**problems, **upload_problems} for name in optional)
        with st.expander(f"More: {', '.join(SYMBOLS[name] for name in optional)}", expanded=has_problem):
            _tabs(knobs, optional, parsed, {**problems, **upload_problems})
        problems = {name: error for name, error in {**problems, **upload_problems}.items() if not parsed.get(name)}
    sizes = {
        name: str(Shape.of(matrix)).replace(" × ", "x")
        for name, matrix in parsed.items()
        if matrix_drafts.too_long(name)
    }
    matrix_drafts.write_sizes(
        {**{name: size for name, size in matrix_drafts.sizes_in_link().items() if name not in parsed}, **sizes}
    )
    for name in fields:
        if name in problems:
            raise problems[name]
    return parsed


def _tabs(
    knobs: Knobs, names: list[str], matrices: dict[str, Matrix | Stack], problems: dict[str, AttentionError]
) -> None:
    for tab, name in zip(st.tabs([SYMBOLS[name] for name in names]), names, strict=True):
        with tab:
            _matrix_tab(knobs, name, matrices.get(name, ()), problems.get(name))


def _editor(sizes: str, has_problem: bool) -> DeltaGenerator:
    """The expander with the matrix editor, labelled with the `sizes`.

    It is closed at first for users who open a link and open for users who choose this source. It opens to show a problem.
    """
    is_open = bool(st.session_state.get(EDITOR, session().page))
    if has_problem and not is_open:
        session().opened_for_problem = is_open = True
    elif not has_problem and session().opened_for_problem:
        session().opened_for_problem = is_open = False
    st.session_state[EDITOR] = is_open
    return st.expander(f"Your matrices: {sizes}" if sizes else "Your matrices", key=EDITOR, on_change="rerun")


def _matrix_tab(knobs: Knobs, name: str, matrix: Matrix | Stack, problem: AttentionError | None) -> None:
    symbol = SYMBOLS[name]
    grid, field = st.columns(2)
    with grid:
        if not matrix and name in _MEANINGS:
            st.caption(f"Empty. {symbol}: {_MEANINGS[name]}.")
        if problem and not _ask(name):
            knobs.notes.error(str(problem), here=True)
        for note in dict.fromkeys((*matrix_drafts.notes_of(name), rounding_note(matrix))):
            if note:
                st.caption(note)
        if matrix and max(Shape.of(matrix)[1:]) <= GRID_UP_TO:
            _grid(name, matrix)
        elif matrix:
            st.info(f"{symbol} is {Shape.of(matrix)}: too large for the grid. The calculation uses all of it.")
    with field:
        if session().long_matrices.get(name):
            st.caption(f"{symbol} was uploaded. It is too large for the link, so it stays in this browser tab.")
            st.button("Remove", key=f"matrices_remove_{name}", on_click=matrix_drafts.remove, args=(name,))
        else:
            _field(knobs, name)
        st.file_uploader(
            f"Upload {symbol} ({', '.join(EXTENSIONS)})",
            key=f"matrices_file_{name}",
            type=[ending.removeprefix(".") for ending in EXTENSIONS],
            on_change=matrix_drafts.upload,
            args=(name,),
        )


def _grid(name: str, value: Matrix | Stack) -> None:
    """Draws the matrix, or one head of a stack, as a grid. An edit replaces the text and reruns the page."""
    import pandas as pd  # slow to import, and needed only here

    n_heads, text, head = Shape.of(value).stack, format_matrix(value), 0
    if n_heads:
        head = st.selectbox("Head in the grid", range(n_heads), key=f"matrices_head_{name}")
    key = f"matrices_grid_{name}_{head}_{abs(hash(text))}"
    matrix = as_stack(value)[head]
    rows: Literal["fixed", "dynamic"] = "fixed" if n_heads else "dynamic"  # all heads have the same size
    edited = st.data_editor(pd.DataFrame(matrix), key=key, num_rows=rows, width="stretch", hide_index=True)
    changed = text
    if len(edited):
        new = tuple(map(tuple, edited.fillna(0.0).to_numpy().tolist()))
        changed = format_matrix((*as_stack(value)[:head], new, *as_stack(value)[head + 1 :]) if n_heads else new)
    if changed != text:
        count_action()
        matrix_drafts.store(name, changed)
        st.rerun()


def _field(knobs: Knobs, name: str) -> None:
    knob, text = KNOBS[name], matrix_drafts.full_text(name)
    callback: dict[str, Any] = {"on_change": matrix_drafts.paste, "args": (name,)}
    arguments = {"label": knob.label, "help": knob.help, "height": 120, "max_chars": MAX_MATRIX_CHARACTERS, **callback}
    if text is None and name in matrix_drafts.sizes_in_link():
        st.text_area(key=f"matrices_again_{name}", **{**arguments, "on_change": matrix_drafts.paste_again})
    elif not matrix_drafts.too_long(name):
        knobs.value(knob, **callback)
    else:
        st.session_state.setdefault(name, text)
        st.text_area(key=name, **arguments)
        st.caption(
            f"{SYMBOLS[name]} has {len(text or ''):,} characters, too many for the link. The link has only its size; a state file has all of it."
        )


def _ask(name: str) -> bool:
    """Draws a question if the text of this matrix is ambiguous. Returns whether it is."""
    with suppress(AttentionError):
        reading = parse_text(matrix_drafts.full_text(name) or "", SYMBOLS[name])
        if reading.question:
            st.selectbox(
                reading.question,
                reading.choices,
                index=None,
                key=f"matrices_choice_{name}",
                placeholder="Choose one",
                format_func=lambda choice: _described(choice, reading.choices[choice]),
                on_change=matrix_drafts.answer_question,
                args=(name,),
            )
            return True
    return False


def _described(choice: str, value: Matrix | Stack) -> str:
    rows = as_stack(value)[0]
    beginning = ", ".join(f"{number:g}" for number in rows[0][:4]) + (", …" if len(rows[0]) > 4 else "")
    return f"{choice}: {Shape.of(value)}, begins with {beginning}"
