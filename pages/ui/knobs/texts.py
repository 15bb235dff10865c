"""The texts of the user's matrices: where each is stored, and how a paste, an upload or an answer changes it."""

from __future__ import annotations

from collections.abc import Mapping

import streamlit as st

from attention import AttentionError
from attention.formula.names import QUERY, SCORES
from attention.sources import link
from attention.sources.cutting import SYMBOLS
from attention.sources.knobs import GIVES, LABELS, LONGEST_MATRIX, UPLOADED
from attention.sources.reading.files import file_text
from attention.sources.reading.matrix import Matrix, Stack
from attention.sources.reading.named import field_of, filled, given_by, named
from attention.sources.reading.reading import Reading
from attention.sources.reading.text import look, parse, write
from pages.ui.knobs.session import acted, session
from pages.ui.knobs.table import KNOBS
from pages.ui.server import turns, uploads

LONGEST_IN_LINK = 500  # characters of one matrix; five such matrices already make a long link


def whole_text(name: str) -> str | None:
    """The full text of a matrix of any length; None if this session has never drawn it."""
    ours = session()
    text = ours.asked_for.get(name, ours.large.get(name) or st.session_state.get(name))
    return None if text is None else str(text)


def too_long(name: str) -> bool:
    """Whether the matrix is too long for the link, which then has only its size."""
    text = whole_text(name)
    return text is not None and len(text) > LONGEST_IN_LINK


def forget_uploads() -> None:
    """Removes the sizes of long matrices from the address. Call it for all other sources."""
    say_sizes({})


def sizes_in_link() -> dict[str, str]:
    """The sizes of the matrices that are too long for the link, by name."""
    return link.sizes(session().address.get(UPLOADED, ""))


def say_sizes(sizes: dict[str, str]) -> None:
    """Writes the sizes of long matrices into the address."""
    address = session().address
    address.pop(UPLOADED, None)
    if sizes:
        address[UPLOADED] = ",".join(f"{name}:{size}" for name, size in sizes.items())


def read(name: str, optional: bool) -> Matrix | Stack:
    """The parsed matrix. Draws nothing.

    Raises:
        MatrixError: it cannot be parsed, or the link has only its size.
    """
    ours = session()
    ours.read.add(name)
    ours.defaults[name] = str(KNOBS[name].default)
    if name in ours.asked_for:
        ours.taken[name] = ours.asked_for[name]
        keep(name, ours.taken[name])
        if replaced := ours.replaced.get(name):
            replaced.value, replaced.set = ours.taken[name], True
    text = whole_text(name)
    if text is None and name in sizes_in_link():
        raise link.too_long(name, sizes_in_link()[name])
    text = KNOBS[name].default if text is None else text
    return parse(text, SYMBOLS[name]) if text.strip() or not optional else ()


def paste_again(name: str) -> None:
    """Stores the text pasted for a matrix of which the link had only the size."""
    acted()
    keep(name, str(st.session_state[f"matrices_again_{name}"]))


def paste(name: str) -> None:
    """Stores pasted text in the short notation if it can be parsed; otherwise unchanged, and its tab shows the error."""
    acted()
    session().problems.pop(name, None)
    text = str(st.session_state[name])
    try:
        _take(name, text, look(text, SYMBOLS[name]))
    except AttentionError:
        keep(name, text if text.strip() else "")


def upload(name: str) -> None:
    """Reads the uploaded file of a matrix. An error is stored for its tab."""
    acted()
    file = st.session_state[f"matrices_file_{name}"]
    session().problems.pop(name, None)
    if file is None:
        return
    try:
        content = uploads.content(file)
        with turns.aside():  # any large file takes half a second to read
            text = file_text(content, file.name, SYMBOLS[name])
            reading = look(text, SYMBOLS[name])
        _take(name, text, reading)
    except AttentionError as error:
        session().problems[name] = type(error)(str(error))  # a copy, since the traceback references the whole text


def _take(name: str, text: str, reading: Reading, pick: str | None = None) -> None:
    """Stores the parsed matrix. An ambiguous text is stored unchanged until the user picks an answer.

    If the text has several matrices named after fields, each goes into its own field.
    """
    if pick is None and _fill(name, reading):
        return
    notes = reading.notes
    if not reading.question or pick is not None:
        chosen = reading.chosen(pick, SYMBOLS[name])
        text, notes = write(chosen), (*notes, *_labelled(name, chosen, reading))
    keep(name, text)
    session().readings[name] = text, notes


def _fill(name: str, reading: Reading) -> bool:
    """Fills the fields named by the matrices of a text. Returns whether there are any."""
    matrices = named(reading)
    kind = given_by(matrices, str(st.session_state.get(GIVES.key, GIVES.default))) if matrices else ""
    if not kind:
        return False
    matrices, parts = filled(matrices, kind), {field_of(part.label): part for part in reading.parts}
    if name not in matrices:  # the field that received the paste gets its earlier text back
        keep(name, str(session().kept.get(name, KNOBS[name].default)))
    symbols = [SYMBOLS[field] for field in matrices]
    for field, matrix in matrices.items():
        note = f"{', '.join(symbols[:-1])} and {symbols[-1]} come from one pasted text."
        notes = (note, *parts[field].notes, *_labelled(field, matrix, parts[field]))
        keep(field, write(matrix))
        session().readings[field] = write(matrix), notes
    st.session_state[GIVES.key] = kind
    return True


def _labelled(name: str, matrix: Matrix | Stack, reading: Reading) -> tuple[str, ...]:
    """Uses the row names of a table as token names, unless the user has already named all tokens. Returns a note about it."""
    n_names = len(reading.names)
    labels = " ".join("_".join(row_name.split()) for row_name in reading.names)
    fits = name in ("x", QUERY, SCORES) and n_names == len(matrix) and LABELS.range.takes(labels)
    if not n_names or not fits or len(str(st.session_state.get(LABELS.key, "")).split()) == n_names:
        return ()
    st.session_state[LABELS.key] = labels
    return ("The row names are now the names of the tokens.",)


def answer(name: str) -> None:
    """Parses an ambiguous text with the answer that the user picked."""
    acted()
    text, pick = whole_text(name) or "", st.session_state[f"matrices_choice_{name}"]
    if pick is not None:
        _take(name, text, look(text, SYMBOLS[name]), pick)


def notes_of(name: str) -> tuple[str, ...]:
    """The notes from parsing the pasted matrix, as long as it is unchanged."""
    text, notes = session().readings.get(name, ("", ()))
    return notes if text and text == whole_text(name) else ()


def remove(name: str) -> None:
    """Removes the matrix. For callbacks."""
    acted()
    keep(name, "")


def fit(matrices: Mapping[str, Matrix | Stack]) -> None:
    """Stores resized matrices by name. For callbacks."""
    acted()
    for name, matrix in matrices.items():
        keep(name, write(matrix))


def keep(name: str, text: str) -> None:
    """Stores the text of a matrix: in its field, or in the session if it is too long for a field."""
    ours = session()
    ours.asked_for.pop(name, None)
    ours.large[name] = text if len(text) > LONGEST_MATRIX else ""
    if len(text) <= LONGEST_MATRIX:
        st.session_state[name] = text
