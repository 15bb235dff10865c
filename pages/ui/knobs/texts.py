"""The texts of a person's matrices: where each is kept, and what a paste, an upload or an answer makes of it."""

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

LONGEST_IN_LINK = 500  # characters of one matrix; five of them are a long link already


def whole_text(name: str) -> str | None:
    """The whole text of a matrix, however long; None where it was never drawn here."""
    ours = session()
    text = ours.asked_for.get(name, ours.large.get(name) or st.session_state.get(name))
    return None if text is None else str(text)


def too_long(name: str) -> bool:
    """Whether the link holds only the size of this matrix."""
    text = whole_text(name)
    return text is not None and len(text) > LONGEST_IN_LINK


def forget_uploads() -> None:
    """Takes the sizes of long matrices out of the address; another source has none."""
    say_sizes({})


def sizes_in_link() -> dict[str, str]:
    """The matrices that the link holds only the size of, by name."""
    return link.sizes(session().address.get(UPLOADED, ""))


def say_sizes(sizes: dict[str, str]) -> None:
    """Writes the sizes of the matrices that are too long for a link into the address."""
    address = session().address
    address.pop(UPLOADED, None)
    if sizes:
        address[UPLOADED] = ",".join(f"{name}:{size}" for name, size in sizes.items())


def read(name: str, optional: bool) -> Matrix | Stack:
    """The matrix as it is known here, without anything drawn.

    Raises:
        MatrixError: it cannot be read, or the link holds only its size.
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
    """Takes what was pasted in the place of a matrix whose size alone came with the link."""
    acted()
    keep(name, str(st.session_state[f"matrices_again_{name}"]))


def paste(name: str) -> None:
    """Writes what was pasted the short way, if it can be read; otherwise it stays as it is, and its tab says why."""
    acted()
    session().problems.pop(name, None)
    text = str(st.session_state[name])
    try:
        _take(name, text, look(text, SYMBOLS[name]))
    except AttentionError:
        keep(name, text if text.strip() else "")


def upload(name: str) -> None:
    """Takes the file that was chosen; what is wrong with it is kept for its tab."""
    acted()
    file = st.session_state[f"matrices_file_{name}"]
    session().problems.pop(name, None)
    if file is None:
        return
    try:
        content = uploads.content(file)
        with turns.aside():  # a large file takes half a second, whatever it holds
            text = file_text(content, file.name, SYMBOLS[name])
            reading = look(text, SYMBOLS[name])
        _take(name, text, reading)
    except AttentionError as error:
        session().problems[name] = type(error)(str(error))  # its traceback holds the whole text


def _take(name: str, text: str, reading: Reading, pick: str | None = None) -> None:
    """Makes what was read the matrix; where something is open and nothing was picked, the text stays until somebody answers.

    Of several that are called after fields each goes into its own.
    """
    if pick is None and _fill(name, reading):
        return
    notes = reading.notes
    if not reading.question or pick is not None:
        chosen = reading.choose(pick, SYMBOLS[name])
        text, notes = write(chosen), (*notes, *_labelled(name, chosen, reading))
    keep(name, text)
    session().readings[name] = text, notes


def _fill(name: str, reading: Reading) -> bool:
    """Fills the fields that the matrices of a text are called after; whether there are any."""
    found = named(reading)
    gives = given_by(found, str(st.session_state.get(GIVES.key, GIVES.default))) if found else ""
    if not gives:
        return False
    found, parts = filled(found, gives), {field_of(part.label): part for part in reading.parts}
    if name not in found:  # where it was pasted is what was there before
        keep(name, str(session().kept.get(name, KNOBS[name].default)))
    symbols = [SYMBOLS[field] for field in found]
    for field, matrix in found.items():
        said = f"{', '.join(symbols[:-1])} and {symbols[-1]} were read from one text."
        notes = (said, *parts[field].notes, *_labelled(field, matrix, parts[field]))
        keep(field, write(matrix))
        session().readings[field] = write(matrix), notes
    st.session_state[GIVES.key] = gives
    return True


def _labelled(name: str, matrix: Matrix | Stack, reading: Reading) -> tuple[str, ...]:
    """Makes the names of the rows of a table those of the tokens, where nobody has given them others that fit; and says so."""
    many = len(reading.names)
    labels = " ".join("_".join(one.split()) for one in reading.names)
    fits = name in ("x", QUERY, SCORES) and many == len(matrix) and LABELS.range.takes(labels)
    if not many or not fits or len(str(st.session_state.get(LABELS.key, "")).split()) == many:
        return ()
    st.session_state[LABELS.key] = labels
    return ("They are the names of the tokens now.",)


def answer(name: str) -> None:
    """Makes the picked answer to what a text leaves open the matrix."""
    acted()
    text, pick = whole_text(name) or "", st.session_state[f"matrices_choice_{name}"]
    if pick is not None:
        _take(name, text, look(text, SYMBOLS[name]), pick)


def notes_of(name: str) -> tuple[str, ...]:
    """What was said of the matrix when it was pasted, while it is the same."""
    text, notes = session().readings.get(name, ("", ()))
    return notes if text and text == whole_text(name) else ()


def remove(name: str) -> None:
    """Takes the matrix away. For callbacks."""
    acted()
    keep(name, "")


def fit(matrices: Mapping[str, Matrix | Stack]) -> None:
    """Makes each of these the matrix of its name. For callbacks."""
    acted()
    for name, matrix in matrices.items():
        keep(name, write(matrix))


def keep(name: str, text: str) -> None:
    """Makes `text` the matrix: in its field, or beside it where it is too long for one."""
    ours = session()
    ours.asked_for.pop(name, None)
    ours.large[name] = text if len(text) > LONGEST_MATRIX else ""
    if len(text) <= LONGEST_MATRIX:
        st.session_state[name] = text
