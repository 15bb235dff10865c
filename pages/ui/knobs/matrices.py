"""The person's own matrices: pasted, edited in a grid, or uploaded. Each one's truth is one text, bound to the URL."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError, MatrixError
from attention.sources.given import fitted, said
from attention.sources.matrices import SYMBOLS
from attention.sources.reading.files import ENDINGS, file_text
from attention.sources.reading.matrix import Matrix
from attention.sources.reading.reading import Reading, rounding
from attention.sources.reading.text import look, parse, write
from pages.ui.knobs.widgets import Knobs, asked_for, locked
from pages.ui.server import uploads

LONGEST_IN_LINK = 500  # characters of one matrix; five of them are a long link already
LONGEST_IN_FIELD = 20_000  # characters; more would make the field slow, and is shown by its size only
GRID_UP_TO = 64  # rows or columns
EDITOR = "matrices_editor"  # whether the editor is unfolded
_UPLOADED = "uploaded"  # in the link: which matrices are too long for it, and their sizes, such as x:512x64,w_q:64x64


def matrices(knobs: Knobs, fields: tuple[str, ...], optional: str) -> dict[str, Any]:
    """A tab for each of the `fields`, with a grid, a field to paste into and an upload; what they hold.

    Raises:
        AttentionError: one of them cannot be read; all the tabs have been drawn by then.
    """
    found: dict[str, Matrix] = {}
    problems: dict[str, AttentionError] = {}
    for name in fields:
        try:
            found[name] = _read(knobs, name, optional=name == optional)
        except AttentionError as error:
            problems[name] = error
    if not locked():
        # A file that could not be read; where there is another matrix, that one is used.
        uploads = {name: st.session_state.get(f"matrices_problem_{name}") for name in fields}
        refused = {name: problem for name, problem in uploads.items() if problem}
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
    unfolded = bool(st.session_state.get(EDITOR, "page" in st.session_state))
    if wrong and not unfolded:
        st.session_state["matrices_unfolded_by_us"] = unfolded = True
    elif not wrong and st.session_state.pop("matrices_unfolded_by_us", False):
        unfolded = False
    st.session_state[EDITOR] = unfolded
    return st.expander(f"Your matrices: {sizes}" if sizes else "Your matrices", key=EDITOR, on_change="rerun")


def whole_text(name: str) -> str | None:
    """The whole text of a matrix, however long; None where it was never drawn here."""
    text = st.session_state.get(f"matrices_large_{name}") or st.session_state.get(name, st.query_params.get(name))
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
    sizes = (one.partition(":") for one in st.query_params.get(_UPLOADED, "").split(","))
    return {name: size[:20] for name, _, size in sizes if name in SYMBOLS}


def _say_uploaded(sizes: dict[str, str]) -> None:
    text = ",".join(f"{name}:{size}" for name, size in sizes.items())
    if text and text != st.query_params.get(_UPLOADED):
        st.query_params[_UPLOADED] = text
    elif not text and _UPLOADED in st.query_params:
        del st.query_params[_UPLOADED]


def _read(knobs: Knobs, name: str, optional: bool) -> Matrix:
    """The matrix as it is known here, without anything drawn.

    Raises:
        MatrixError: it cannot be read, or the link holds only its size.
    """
    if name in asked_for():
        keep(name, asked_for().pop(name))
    text = whole_text(name)
    if text is None and name in _uploaded_sizes():
        size = _uploaded_sizes()[name].replace("x", " × ")
        raise MatrixError(
            f"{SYMBOLS[name]} ({size}) is too long for a link, and this server does not have it: "
            "upload it again, or open a state file that holds it."
        )
    text = knobs.defaults[name] if text is None else text
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
        if st.session_state.get(f"matrices_large_{name}"):
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
    symbol, text = SYMBOLS[name], whole_text(name)
    more: dict[str, Any] = {"height": 120, "on_change": _pasted, "args": (name,)}
    advice = (
        "As it was published: CSV, cells of a spreadsheet, a list such as [[1, 0], [0, 1]], what NumPy, torch, TensorFlow, "
        "pandas or R print, LaTeX, a Markdown table, or a whole cell of a notebook."
    )
    if text is None and name in _uploaded_sizes():
        again = {**more, "on_change": _pasted_again}
        st.text_area(f"Paste {symbol}", key=f"matrices_again_{name}", max_chars=LONGEST_IN_FIELD, help=advice, **again)
    elif not too_long(name):
        knobs.text(f"Paste {symbol}", name, LONGEST_IN_FIELD, help=advice, **more)
    else:
        st.session_state.setdefault(name, text)
        st.text_area(f"Paste {symbol}", key=name, max_chars=LONGEST_IN_FIELD, help=advice, **more)
        st.caption(
            f"{symbol} has {len(text or ''):,} characters, too many for the link, which holds only its size. A state file holds it all."
        )


def _pasted_again(name: str) -> None:
    keep(name, str(st.session_state[f"matrices_again_{name}"]))


def _pasted(name: str) -> None:
    """Writes what was pasted the short way, if it can be read; otherwise it stays as it is, and its tab says why."""
    st.session_state.pop(f"matrices_problem_{name}", None)
    text = str(st.session_state[name])
    try:
        _take(name, text, look(text, SYMBOLS[name]))
    except AttentionError:
        keep(name, text if text.strip() else "")


def _uploaded(name: str) -> None:
    file = st.session_state[f"matrices_file_{name}"]
    st.session_state.pop(f"matrices_problem_{name}", None)
    if file is None:
        return
    try:
        text = file_text(uploads.content(file), file.name, SYMBOLS[name])
        _take(name, text, look(text, SYMBOLS[name]))
    except AttentionError as error:
        st.session_state[f"matrices_problem_{name}"] = type(error)(str(error))  # its traceback holds the whole text


def _take(name: str, text: str, reading: Reading, pick: str | None = None) -> None:
    """Makes what was read the matrix; where something is open and nothing was picked, the text stays until somebody answers."""
    if not reading.question or pick is not None:
        text = write(reading.chosen(pick, SYMBOLS[name]))
    keep(name, text)
    st.session_state[f"matrices_notes_{name}"] = text, reading.notes


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
    text, notes = st.session_state.get(f"matrices_notes_{name}", ("", ()))
    return notes if text and text == whole_text(name) else ()


def _keep_all(matrices: dict[str, Matrix]) -> None:
    for name, matrix in matrices.items():
        keep(name, write(matrix))


def keep(name: str, text: str) -> None:
    """Makes `text` the matrix: in its field, or beside it where it is too long for one."""
    st.session_state[f"matrices_large_{name}"] = text if len(text) > LONGEST_IN_FIELD else ""
    if len(text) <= LONGEST_IN_FIELD:
        st.session_state[name] = text
