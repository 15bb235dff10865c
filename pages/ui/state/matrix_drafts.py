"""The texts of the user's matrices: where each is stored, and how a paste, an upload or an answer changes it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from attention import AttentionError
from attention.core.names import QUERY, SCORES
from attention.io.text.matrix import Matrix, Stack
from attention.io.text.matrix_text import format_matrix, parse_matrix, parse_text
from attention.io.text.parsed import ParsedText
from attention.io.text.uploaded import file_text
from attention.sources.kinds.matrices_source import (
    LABELS,
    MATRIX_KIND,
    MAX_MATRIX_CHARACTERS,
    UPLOADED,
    matrix_too_long_error,
    uploaded_sizes,
)
from attention.sources.named_matrices import field_of_label, fields_of_kind, kind_of_fields, matrices_by_field
from attention.sources.split_heads import SYMBOLS
from pages.ui.server import scheduler, uploads
from pages.ui.state.knob_table import KNOBS
from pages.ui.state.session import count_action, session

LONGEST_IN_LINK = 500  # characters of one matrix; five such matrices already make a long link


def full_text(name: str) -> str | None:
    """The full text of a matrix of any length; None if this session has never drawn it."""
    ours = session()
    text = ours.requested.get(name, ours.long_matrices.get(name) or st.session_state.get(name))
    return None if text is None else str(text)


def too_long(name: str) -> bool:
    """Whether the matrix is too long for the link, which then has only its size."""
    text = full_text(name)
    return text is not None and len(text) > LONGEST_IN_LINK


def forget_uploads() -> None:
    """Removes the sizes of long matrices from the address. Call it for all other sources."""
    write_sizes({})


def sizes_in_link() -> dict[str, str]:
    """The sizes of the matrices that are too long for the link, by name."""
    return uploaded_sizes(session().address.get(UPLOADED, ""))


def write_sizes(sizes: dict[str, str]) -> None:
    """Writes the sizes of long matrices into the address."""
    address = session().address
    address.pop(UPLOADED, None)
    if sizes:
        address[UPLOADED] = ",".join(f"{name}:{size}" for name, size in sizes.items())


def read_matrix(name: str, optional: bool) -> Matrix | Stack:
    """The parsed matrix. Draws nothing.

    Raises:
        MatrixError: it cannot be parsed, or the link has only its size.
    """
    ours = session()
    ours.knobs_read.add(name)
    ours.defaults[name] = str(KNOBS[name].default)
    if name in ours.requested:
        ours.consumed[name] = ours.requested[name]
        store(name, ours.consumed[name])
        if replaced := ours.replaced_widgets.get(name):
            replaced.value, replaced.is_applied = ours.consumed[name], True
    text = full_text(name)
    if text is None and name in sizes_in_link():
        raise matrix_too_long_error(name, sizes_in_link()[name])
    text = KNOBS[name].default if text is None else text
    return parse_matrix(text, SYMBOLS[name]) if text.strip() or not optional else ()


def paste_again(name: str) -> None:
    """Stores the text pasted for a matrix of which the link had only the size."""
    text = _value(f"matrices_again_{name}")
    if text is None:
        return
    count_action()
    store(name, str(text))


def paste(name: str) -> None:
    """Stores pasted text in the short notation if it can be parsed; otherwise unchanged, and its tab shows the error."""
    value = _value(name)
    if value is None:
        return
    count_action()
    session().upload_problems.pop(name, None)
    text = str(value)
    try:
        _store_parsed(name, text, parse_text(text, SYMBOLS[name]))
    except AttentionError:
        store(name, text if text.strip() else "")


def upload(name: str) -> None:
    """Reads the uploaded file of a matrix. An error is stored for its tab."""
    count_action()
    file = _value(f"matrices_file_{name}")
    session().upload_problems.pop(name, None)
    if file is None:
        return
    try:
        content = uploads.content(file)
        with scheduler.without_turn():  # any large file takes half a second to read
            text = file_text(content, file.name, SYMBOLS[name])
            reading = parse_text(text, SYMBOLS[name])
        _store_parsed(name, text, reading)
    except AttentionError as error:
        session().upload_problems[name] = type(error)(
            str(error)
        )  # a copy, since the traceback references the whole text


def _value(key: str) -> Any:
    """The value of a field whose change called back; None if the field is not there.

    A browser whose server was lost sends the fields that it still shows to another one. Streamlit then also calls back for a
    field that the new server no longer has.
    """
    return st.session_state.get(key)


def _store_parsed(name: str, text: str, reading: ParsedText, pick: str | None = None) -> None:
    """Stores the parsed matrix. An ambiguous text is stored unchanged until the user picks an answer.

    If the text has several matrices named after fields, each goes into its own field.
    """
    if pick is None and _fill(name, reading):
        return
    notes = reading.notes
    if not reading.question or pick is not None:
        choose = reading.choose(pick, SYMBOLS[name])
        text, notes = format_matrix(choose), (*notes, *_name_tokens(name, choose, reading))
    store(name, text)
    session().matrix_notes[name] = text, notes


def _fill(name: str, reading: ParsedText) -> bool:
    """Fills the fields named by the matrices of a text. Returns whether there are any."""
    matrices = matrices_by_field(reading)
    kind = kind_of_fields(matrices, str(st.session_state.get(MATRIX_KIND.key, MATRIX_KIND.default))) if matrices else ""
    if not kind:
        return False
    matrices, parts = fields_of_kind(matrices, kind), {field_of_label(part.label): part for part in reading.parts}
    if name not in matrices:  # the field that received the paste gets its earlier text back
        store(name, str(session().carried_knobs.get(name, KNOBS[name].default)))
    symbols = [SYMBOLS[field] for field in matrices]
    for field, matrix in matrices.items():
        note = f"{', '.join(symbols[:-1])} and {symbols[-1]} come from one pasted text."
        notes = (note, *parts[field].notes, *_name_tokens(field, matrix, parts[field]))
        store(field, format_matrix(matrix))
        session().matrix_notes[field] = format_matrix(matrix), notes
    st.session_state[MATRIX_KIND.key] = kind
    return True


def _name_tokens(name: str, matrix: Matrix | Stack, reading: ParsedText) -> tuple[str, ...]:
    """Uses the row names of a table as token names, unless the user has already named all tokens. Returns a note about it."""
    n_names = len(reading.names)
    labels = " ".join("_".join(row_name.split()) for row_name in reading.names)
    fits = name in ("x", QUERY, SCORES) and n_names == len(matrix) and LABELS.range.accepts(labels)
    if not n_names or not fits or len(str(st.session_state.get(LABELS.key, "")).split()) == n_names:
        return ()
    st.session_state[LABELS.key] = labels
    return ("The row names are now the names of the tokens.",)


def answer_question(name: str) -> None:
    """Parses an ambiguous text with the answer that the user picked."""
    count_action()
    text, pick = full_text(name) or "", _value(f"matrices_choice_{name}")
    if pick is not None:
        _store_parsed(name, text, parse_text(text, SYMBOLS[name]), pick)


def notes_of(name: str) -> tuple[str, ...]:
    """The notes from parsing the pasted matrix, as long as it is unchanged."""
    text, notes = session().matrix_notes.get(name, ("", ()))
    return notes if text and text == full_text(name) else ()


def remove(name: str) -> None:
    """Removes the matrix. For callbacks."""
    count_action()
    store(name, "")


def store_resized(matrices: Mapping[str, Matrix | Stack]) -> None:
    """Stores resized matrices by name. For callbacks."""
    count_action()
    for name, matrix in matrices.items():
        store(name, format_matrix(matrix))


def store(name: str, text: str) -> None:
    """Stores the text of a matrix: in its field, or in the session if it is too long for a field."""
    ours = session()
    ours.requested.pop(name, None)
    ours.long_matrices[name] = text if len(text) > MAX_MATRIX_CHARACTERS else ""
    if len(text) <= MAX_MATRIX_CHARACTERS:
        st.session_state[name] = text
