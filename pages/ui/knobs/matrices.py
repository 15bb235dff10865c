"""The person's own matrices: pasted, edited in a grid, or uploaded. Each one's truth is one text, bound to the URL."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError
from attention.sources import link
from attention.sources.given import fitted, said
from attention.sources.knobs import LONGEST_MATRIX, UPLOADED
from attention.sources.matrices import SYMBOLS
from attention.sources.reading.files import ENDINGS, file_text
from attention.sources.reading.matrix import Matrix
from attention.sources.reading.reading import Reading, rounding
from attention.sources.reading.text import look, parse, write
from pages.ui.knobs.session import session
from pages.ui.knobs.table import KNOBS
from pages.ui.knobs.widgets import Knobs
from pages.ui.server import uploads

LONGEST_IN_LINK = 500  # characters of one matrix; five of them are a long link already
GRID_UP_TO = 64  # rows or columns
EDITOR = "matrices_editor"  # whether the editor is unfolded


def matrices(knobs: Knobs, fields: Sequence[str]) -> dict[str, Matrix]:
    """A tab for each of the `fields`, with a grid, a field to paste into and an upload; what they hold. The last may be empty.

    Raises:
        AttentionError: one of them cannot be read; all the tabs have been drawn by then.
    """
    found: dict[str, Matrix] = {}
    problems: dict[str, AttentionError] = {}
    for name in fields:
        try:
            found[name] = _read(name, optional=name == fields[-1])
        except AttentionError as error:
            problems[name] = error
    if not knobs.locked:
        # A file that could not be read; where there is another matrix, that one is used.
        refused = {name: problem for name, problem in knobs.session.problems.items() if name in fields}
        fits = found if problems else fitted(found)
        with _editor(said(found), wrong=bool(problems or refused) or fits != found):
            if fits != found:
                st.button(
                    f"Fit the others to {SYMBOLS[fields[0]]}",
                    key="matrices_fit",
                    on_click=_keep_all,
                    args=(fits,),
                    help="Makes their sizes fit. A number that has a place keeps it; a new place is 0.",
                )
            for tab, name in zip(st.tabs([SYMBOLS[name] for name in fields]), fields, strict=True):
                with tab:
                    _one(knobs, name, found.get(name, ()), refused.get(name) or problems.get(name))
        problems = {name: error for name, error in {**problems, **refused}.items() if not found.get(name)}
    sizes = {name: f"{len(found[name])}x{len(found[name][0])}" for name in found if too_long(name)}
    _say_uploaded({**{name: size for name, size in _uploaded_sizes().items() if name not in found}, **sizes})
    for name in fields:
        if name in problems:
            raise problems[name]
    return found


def _editor(sizes: str, wrong: bool) -> DeltaGenerator:
    """Where the matrices are edited: folded away under their `sizes`, unless something is `wrong` or they are here to be typed."""
    # Who opens a link comes to look; who chooses this source comes to type. What a hand has unfolded stays so.
    unfolded = bool(st.session_state.get(EDITOR, session().page))
    if wrong and not unfolded:
        session().unfolded_by_us = unfolded = True
    elif not wrong and session().unfolded_by_us:
        session().unfolded_by_us = unfolded = False
    st.session_state[EDITOR] = unfolded
    return st.expander(f"Your matrices: {sizes}" if sizes else "Your matrices", key=EDITOR, on_change="rerun")


def whole_text(name: str) -> str | None:
    """The whole text of a matrix, however long; None where it was never drawn here."""
    text = session().large.get(name) or st.session_state.get(name, st.query_params.get(name))
    return None if text is None else str(text)


def too_long(name: str) -> bool:
    """Whether the link holds only the size of this matrix."""
    text = whole_text(name)
    return text is not None and len(text) > LONGEST_IN_LINK


def forget_uploads() -> None:
    """Takes the sizes of long matrices out of the address; another source has none."""
    _say_uploaded({})


def _uploaded_sizes() -> dict[str, str]:
    """The matrices that the link holds only the size of, by name."""
    return link.sizes(st.query_params.get(UPLOADED, ""))


def _say_uploaded(sizes: dict[str, str]) -> None:
    text = ",".join(f"{name}:{size}" for name, size in sizes.items())
    if text and text != st.query_params.get(UPLOADED):
        st.query_params[UPLOADED] = text
    elif not text and UPLOADED in st.query_params:
        del st.query_params[UPLOADED]


def _read(name: str, optional: bool) -> Matrix:
    """The matrix as it is known here, without anything drawn.

    Raises:
        MatrixError: it cannot be read, or the link holds only its size.
    """
    if name in session().asked_for:
        keep(name, session().asked_for.pop(name))
    text = whole_text(name)
    if text is None and name in _uploaded_sizes():
        raise link.too_long(name, _uploaded_sizes()[name])
    text = KNOBS[name].default if text is None else text
    return parse(text, SYMBOLS[name]) if text.strip() or not optional else ()


def _one(knobs: Knobs, name: str, matrix: Matrix, problem: AttentionError | None) -> None:
    symbol = SYMBOLS[name]
    grid, field = st.columns(2)
    with grid:
        if problem and not _ask(name):
            knobs.notes.error(str(problem), here=True)
        for note in dict.fromkeys((*_notes(name), rounding(matrix))):
            if note:
                st.caption(note)
        if matrix and max(len(matrix), len(matrix[0])) <= GRID_UP_TO:
            _grid(name, matrix)
        elif matrix:
            st.info(f"{symbol} is {len(matrix)} × {len(matrix[0])}: too large for a grid, but it is used.")
    with field:
        if session().large.get(name):
            st.caption(f"{symbol} was uploaded. It is too large for the link, so it stays in this browser tab.")
            st.button("Remove it", key=f"matrices_remove_{name}", on_click=keep, args=(name, ""))
        else:
            _field(knobs, name)
        st.file_uploader(
            f"Upload {symbol} ({', '.join(ENDINGS)})",
            key=f"matrices_file_{name}",
            type=[ending.removeprefix(".") for ending in ENDINGS],
            on_change=_uploaded,
            args=(name,),
        )


def _grid(name: str, matrix: Matrix) -> None:
    """The matrix as a grid; an edit becomes the text, and everything begins anew from that."""
    import pandas as pd  # where nobody edits a grid, nobody waits for it

    text = write(matrix)
    key = f"matrices_grid_{name}_{abs(hash(text))}"
    edited = st.data_editor(pd.DataFrame(matrix), key=key, num_rows="dynamic", width="stretch", hide_index=True)
    changed = write(edited.fillna(0.0).to_numpy().tolist()) if len(edited) else text
    if changed != text:
        keep(name, changed)
        st.rerun()


def _field(knobs: Knobs, name: str) -> None:
    knob, text = KNOBS[name], whole_text(name)
    changed: dict[str, Any] = {"on_change": _pasted, "args": (name,)}
    unbound = {"label": knob.label, "help": knob.help, "height": 120, "max_chars": LONGEST_MATRIX, **changed}
    if text is None and name in _uploaded_sizes():
        st.text_area(key=f"matrices_again_{name}", **{**unbound, "on_change": _pasted_again})
    elif not too_long(name):
        knobs.value(knob, **changed)
    else:
        st.session_state.setdefault(name, text)
        st.text_area(key=name, **unbound)
        st.caption(
            f"{SYMBOLS[name]} has {len(text or ''):,} characters, too many for the link, which holds only its size. A state file holds it all."
        )


def _pasted_again(name: str) -> None:
    keep(name, str(st.session_state[f"matrices_again_{name}"]))


def _pasted(name: str) -> None:
    """Writes what was pasted the short way, if it can be read; otherwise it stays as it is, and its tab says why."""
    session().problems.pop(name, None)
    text = str(st.session_state[name])
    try:
        _take(name, text, look(text, SYMBOLS[name]))
    except AttentionError:
        keep(name, text if text.strip() else "")


def _uploaded(name: str) -> None:
    file = st.session_state[f"matrices_file_{name}"]
    session().problems.pop(name, None)
    if file is None:
        return
    try:
        text = file_text(uploads.content(file), file.name, SYMBOLS[name])
        _take(name, text, look(text, SYMBOLS[name]))
    except AttentionError as error:
        session().problems[name] = type(error)(str(error))  # its traceback holds the whole text


def _take(name: str, text: str, reading: Reading, pick: str | None = None) -> None:
    """Makes what was read the matrix; where something is open and nothing was picked, the text stays until somebody answers."""
    if not reading.question or pick is not None:
        text = write(reading.chosen(pick, SYMBOLS[name]))
    keep(name, text)
    session().readings[name] = text, reading.notes


def _ask(name: str) -> bool:
    """Asks in place what the text of this matrix leaves open; whether it leaves anything open."""
    with suppress(AttentionError):
        reading = look(whole_text(name) or "", SYMBOLS[name])
        if reading.question:
            st.selectbox(
                reading.question,
                reading.choices,
                index=None,
                key=f"matrices_choice_{name}",
                placeholder="Choose one",
                format_func=lambda choice: _described(choice, reading.choices[choice]),
                on_change=_answered,
                args=(name,),
            )
            return True
    return False


def _described(choice: str, rows: Matrix) -> str:
    begins = ", ".join(f"{number:g}" for number in rows[0][:4]) + (", …" if len(rows[0]) > 4 else "")
    return f"{choice}: {len(rows)} × {len(rows[0])}, from {begins}"


def _answered(name: str) -> None:
    text, pick = whole_text(name) or "", st.session_state[f"matrices_choice_{name}"]
    if pick is not None:
        _take(name, text, look(text, SYMBOLS[name]), pick)


def _notes(name: str) -> tuple[str, ...]:
    """What was said of the matrix when it was pasted, while it is the same."""
    text, notes = session().readings.get(name, ("", ()))
    return notes if text and text == whole_text(name) else ()


def _keep_all(matrices: dict[str, Matrix]) -> None:
    for name, matrix in matrices.items():
        keep(name, write(matrix))


def keep(name: str, text: str) -> None:
    """Makes `text` the matrix: in its field, or beside it where it is too long for one."""
    session().large[name] = text if len(text) > LONGEST_MATRIX else ""
    if len(text) <= LONGEST_MATRIX:
        st.session_state[name] = text
