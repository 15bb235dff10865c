"""The user's matrices: an editor in which they are pasted, edited in a grid, or uploaded. The text of a matrix is its only source.

A text that is too long for the link, which then has its size, stays in the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention.base.errors import AttentionError
from attention.base.knobs import Knob
from attention.files.matrix import Matrix, ParsedText, Stack, as_stack, rounding_note
from attention.files.matrix_text import (
    EXTENSIONS,
    ReadText,
    format_matrix,
    parse_text,
    read_file,
    read_text,
    reading_cost,
)
from attention.formula.names import QUERY, SCORES
from attention.formula.steps import PARAMETERS
from attention.sources.matrices import (
    ATTN_MASK,
    LABELS,
    MATRIX_KIND,
    MAX_MATRIX_CHARACTERS,
    OPTIONAL_MATRIX_FIELDS,
    SYMBOLS,
    Shape,
)
from attention.sources.matrix_fields import (
    describe_sizes,
    field_of_label,
    fields_of_kind,
    kind_of_fields,
    matrices_by_field,
    resize_to_fit,
)
from attention.sources.reader import Field
from attention.sources.state import Set
from pages.ui.server import uploads
from pages.ui.state.knob_state import act, current_value, forget_size, sizes_in_link, too_long
from pages.ui.state.knob_table import KNOBS
from pages.ui.state.notices import show_error
from pages.ui.state.session import Drawn, count_action, session
from pages.ui.state.widgets import is_late

_GRID_UP_TO = 64  # rows or columns
EDITOR = "matrices_editor"  # key of the expander; its value is whether it is open
_OPTIONAL = {name for names in OPTIONAL_MATRIX_FIELDS.values() for name in names}
_MEANINGS = {parameter.name: parameter.meaning for parameter in PARAMETERS} | {
    ATTN_MASK: "truth values or 0 and 1, where 1 keeps a key; or numbers that are added to the scores"
}


def matrix_editor(fields: Mapping[str, Field]) -> AttentionError | None:
    """The error of the first matrix without numbers. Draws a tab for each, with a grid, a text field and an upload field."""
    problems = {name: field.value for name, field in fields.items() if isinstance(field.value, AttentionError)}
    parsed = {name: field.value for name, field in fields.items() if name not in problems}
    # Errors of uploads; a matrix that was there before remains in use.
    problems |= {name: problem for name, problem in session().upload_problems.items() if name in fields}
    is_complete = len(parsed) == len(fields)
    resized = resize_to_fit(parsed) if is_complete else parsed
    with _editor(describe_sizes(parsed), has_problem=bool(problems) or resized != parsed):
        if resized != parsed:
            st.button(
                f"Resize the others to fit {SYMBOLS[next(iter(fields))]}",
                key="matrices_fit",
                on_click=_store_resized,
                args=(resized,),
                help="Changes the sizes of the other matrices. Numbers keep their places; new cells are 0.",
            )
        _tabs([name for name in fields if name not in _OPTIONAL], parsed, problems)
    optional = [name for name in fields if name in _OPTIONAL]
    has_problem = any(name in problems for name in optional)
    with st.expander(f"More: {', '.join(SYMBOLS[name] for name in optional)}", expanded=has_problem):
        _tabs(optional, parsed, problems)
    return next((problems[name] for name in fields if name in problems and not parsed.get(name)), None)


def _tabs(names: list[str], matrices: dict[str, Matrix | Stack], problems: dict[str, AttentionError]) -> None:
    for tab, name in zip(st.tabs([SYMBOLS[name] for name in names]), names, strict=True):
        with tab:
            _matrix_tab(name, matrices.get(name, ()), problems.get(name))


def _editor(sizes: str, has_problem: bool) -> DeltaGenerator:
    """The expander with the matrix editor, labelled with the `sizes`.

    It is closed at first for users who open a link and open for users who choose this source. It opens to show a problem.
    """
    is_open = bool(st.session_state.get(EDITOR, session().runs > 1))
    if has_problem and not is_open:
        session().opened_for_problem = is_open = True
    elif not has_problem and session().opened_for_problem:
        session().opened_for_problem = is_open = False
    st.session_state[EDITOR] = is_open
    return st.expander(f"Your matrices: {sizes}" if sizes else "Your matrices", key=EDITOR, on_change="rerun")


def _matrix_tab(name: str, matrix: Matrix | Stack, problem: AttentionError | None) -> None:
    symbol = SYMBOLS[name]
    grid, field = st.columns(2)
    with grid:
        if not matrix and name in _MEANINGS:
            st.caption(f"Empty. {symbol}: {_MEANINGS[name]}.")
        if problem and not _ask(name):
            show_error(str(problem))
        for note in dict.fromkeys((*_notes_of(name), rounding_note(matrix))):
            if note:
                st.caption(note)
        if matrix and max(Shape.of(matrix)[1:]) <= _GRID_UP_TO:
            _grid(name, matrix)
        elif matrix:
            st.info(f"{symbol} is {Shape.of(matrix)}: too large for the grid. The calculation uses all of it.")
    with field:
        if len(full_text(name)) > MAX_MATRIX_CHARACTERS:
            st.caption(f"{symbol} was uploaded. It is too large for the link, so it stays in this browser tab.")
            st.button("Remove", key=f"matrices_remove_{name}", on_click=_remove, args=(name,))
        else:
            _field(name)
        st.file_uploader(
            f"Upload {symbol} ({', '.join(EXTENSIONS)})",
            key=f"matrices_file_{name}",
            type=[ending.removeprefix(".") for ending in EXTENSIONS],
            on_change=_upload,
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
        store(name, changed)
        st.rerun()


def _field(name: str) -> None:
    """The field in which a matrix is pasted, whose callback stores what was pasted in the short notation."""
    knob, text = KNOBS[name], full_text(name)
    arguments: dict[str, Any] = {
        "label": knob.label,
        "help": knob.help,
        "height": 120,
        "max_chars": MAX_MATRIX_CHARACTERS,
    }
    if name in sizes_in_link() and name not in session().state.texts:  # a link has only its size
        st.text_area(key=f"matrices_again_{name}", on_change=_paste_again, args=(name,), **arguments)
        return
    if name not in session().drawn or st.session_state.get(name) != text:
        st.session_state[name] = text
    session().drawn[name] = Drawn(name, "", text, str(knob.default), (), session().runs)
    st.text_area(key=name, on_change=_paste, args=(name,), **arguments)
    if too_long(name):
        st.caption(
            f"{SYMBOLS[name]} has {len(text):,} characters, too many for the link. The link has only its size; a state file has all of it."
        )


def _ask(name: str) -> bool:
    """Draws a question if the text of this matrix is ambiguous. Returns whether it is."""
    with suppress(AttentionError):
        reading = parse_text(full_text(name), SYMBOLS[name])
        if reading.question:
            st.selectbox(
                reading.question,
                reading.choices,
                index=None,
                key=f"matrices_choice_{name}",
                placeholder="Choose one",
                format_func=lambda choice: _described(choice, reading.choices[choice]),
                on_change=_answer_question,
                args=(name,),
            )
            return True
    return False


def _described(choice: str, value: Matrix | Stack) -> str:
    rows = as_stack(value)[0]
    beginning = ", ".join(f"{number:g}" for number in rows[0][:4]) + (", …" if len(rows[0]) > 4 else "")
    return f"{choice}: {Shape.of(value)}, begins with {beginning}"


def full_text(name: str) -> str:
    """The full text of a matrix of any length."""
    return session().state.texts.get(name, str(KNOBS[name].default))


# A browser whose server was lost sends the fields that it still shows to another one. Streamlit then also calls back for a field that the
# new server does not have, and whose value is None.


def _paste_again(name: str) -> None:
    text = st.session_state.get(f"matrices_again_{name}")
    if text is None:
        return
    count_action()
    store(name, str(text))


def _paste(name: str) -> None:
    """Stores pasted text in the short notation if it can be parsed; otherwise unchanged, and its tab shows the error."""
    value = st.session_state.get(name)
    if value is None or is_late(name, str(value)):
        return
    count_action()
    session().upload_problems.pop(name, None)
    text = str(value)
    try:
        _store_parsed(name, read_text(text, SYMBOLS[name]))
    except AttentionError:
        store(name, text if text.strip() else "")


def _upload(name: str) -> None:
    """Reads the uploaded file of a matrix. An error is stored for its tab."""
    count_action()
    file = st.session_state.get(f"matrices_file_{name}")
    session().upload_problems.pop(name, None)
    if file is None:
        return
    try:
        content, symbol = uploads.content(file), SYMBOLS[name]
        cost, words = reading_cost(content, file.name), f"Reading {symbol}"
        _store_parsed(name, uploads.read(read_file, content, file.name, symbol, cost=cost, words=words))
    except AttentionError as error:
        # A copy, since the traceback references the whole text.
        session().upload_problems[name] = type(error)(str(error))


def _store_parsed(name: str, read: ReadText, pick: str | None = None) -> None:
    """Stores the parsed matrix, or each of several in its own field. An ambiguous text is stored unchanged until the user picks an answer."""
    text, reading = read
    if pick is None and _fill(name, reading):
        return
    notes = reading.notes
    if not reading.question or pick is not None:
        chosen = reading.choose(pick, SYMBOLS[name])
        notes = (*notes, *_name_tokens(name, chosen, reading))
        text = text if pick is None else format_matrix(chosen)
    store(name, text)
    session().matrix_notes[name] = text, notes


def _fill(name: str, reading: ParsedText) -> bool:
    """Fills the fields that the matrices of a text name. Returns whether there are any."""
    matrices = matrices_by_field(reading)
    kind = kind_of_fields(matrices, str(current_value(MATRIX_KIND.key))) if matrices else ""
    if not kind:
        return False
    matrices, parts = fields_of_kind(matrices, kind), {field_of_label(part.label): part for part in reading.parts}
    symbols = [SYMBOLS[field] for field in matrices]
    for field, matrix in matrices.items():
        note = f"{', '.join(symbols[:-1])} and {symbols[-1]} come from one pasted text."
        notes = (note, *parts[field].notes, *_name_tokens(field, matrix, parts[field]))
        store(field, format_matrix(matrix))
        session().matrix_notes[field] = format_matrix(matrix), notes
    _set_knob(MATRIX_KIND, kind)
    return True


def _name_tokens(name: str, matrix: Matrix | Stack, reading: ParsedText) -> tuple[str, ...]:
    """Uses the row names of a table as token names, unless the user has already named all tokens. Returns a note about it."""
    n_names = len(reading.names)
    labels = " ".join("_".join(row_name.split()) for row_name in reading.names)
    fits = name in ("x", QUERY, SCORES) and n_names == len(matrix) and LABELS.range.accepts(labels)
    if not n_names or not fits or len(str(current_value(LABELS.key)).split()) == n_names:
        return ()
    _set_knob(LABELS, labels)
    return ("The row names are now the names of the tokens.",)


def _answer_question(name: str) -> None:
    count_action()
    text, pick = full_text(name), st.session_state.get(f"matrices_choice_{name}")
    if pick is not None:
        _store_parsed(name, read_text(text, SYMBOLS[name]), pick)


def _notes_of(name: str) -> tuple[str, ...]:
    """The notes from parsing the pasted matrix, as long as it is unchanged."""
    text, notes = session().matrix_notes.get(name, ("", ()))
    return notes if text and text == full_text(name) else ()


def _remove(name: str) -> None:
    count_action()
    store(name, "")


def _store_resized(matrices: Mapping[str, Matrix | Stack]) -> None:
    count_action()
    for name, matrix in matrices.items():
        store(name, format_matrix(matrix))


def store(name: str, text: str) -> None:
    """Stores the text of a matrix, of which a link may have had only the size."""
    forget_size(name)
    _set_knob(KNOBS[name], text)


def _set_knob(knob: Knob, text: str) -> None:
    act(Set({knob.key: None if text == knob.default else text}, "A"))
