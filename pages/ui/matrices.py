"""The person's own matrices: pasted, edited in a grid, or uploaded. Each one's truth is one text, bound to the URL."""

from __future__ import annotations

from typing import Any

import pandas as pd
import streamlit as st

from attention import AttentionError
from attention.matrix import Matrix
from attention.matrix_text import ENDINGS, parse, read, write
from attention.sources.matrices import SYMBOLS
from pages.ui.knobs import Knobs

LONGEST_IN_LINK = 500  # characters of one matrix; five of them are a long link already
LONGEST_IN_FIELD = 20_000  # characters; more would make the field slow, and is shown by its size only
GRID_UP_TO = 64  # rows or columns


def matrices(knobs: Knobs, fields: tuple[str, ...], optional: str) -> dict[str, Any]:
    """A tab for each of the `fields`, with a grid, a field to paste into and an upload; what they hold.

    Raises:
        AttentionError: one of them cannot be read; all the tabs have been drawn by then.
    """
    found: dict[str, Any] = {}
    problems: list[AttentionError] = []
    with st.expander("Your matrices", expanded=True):
        for tab, name in zip(st.tabs([SYMBOLS[name] for name in fields]), fields, strict=True):
            with tab:
                try:
                    found[name] = _one(knobs, name, optional=name == optional)
                except AttentionError as error:
                    problems.append(error)
    if problems:
        raise problems[0]
    return found


def _one(knobs: Knobs, name: str, optional: bool) -> Matrix:
    symbol, large = SYMBOLS[name], st.session_state.get(f"matrices_large_{name}")
    text = large or st.session_state.get(name, st.query_params.get(name, knobs.defaults[name]))
    matrix: Matrix = ()
    problem: AttentionError | None = st.session_state.get(f"matrices_problem_{name}")
    if text.strip() or not optional:
        try:
            matrix = parse(text, symbol)
        except AttentionError as error:
            problem = problem or error
    grid, field = st.columns(2)
    with grid:
        if problem:
            knobs.notes.error(str(problem), here=True)
        if matrix and max(len(matrix), len(matrix[0])) <= GRID_UP_TO:
            _grid(name, matrix)
        elif matrix:
            st.info(f"{symbol} is {len(matrix)} × {len(matrix[0])}: too large for a grid, but it is used.")
    with field:
        if large:
            st.caption(f"{symbol} was uploaded. It is too large for the link, so it stays in this browser tab.")
            st.button("Remove it", key=f"matrices_remove_{name}", on_click=_keep, args=(name, ""))
        else:
            _field(knobs, name, text)
        st.file_uploader(
            f"Upload {symbol} ({', '.join(ENDINGS)})",
            key=f"matrices_file_{name}",
            type=[ending.removeprefix(".") for ending in ENDINGS],
            on_change=_uploaded,
            args=(name,),
        )
    if problem and not matrix:
        raise problem
    return matrix


def _grid(name: str, matrix: Matrix) -> None:
    """The matrix as a grid; an edit becomes the text, and everything begins anew from that."""
    text = write(matrix)
    key = f"matrices_grid_{name}_{abs(hash(text))}"
    edited = st.data_editor(pd.DataFrame(matrix), key=key, num_rows="dynamic", width="stretch", hide_index=True)
    changed = write(edited.fillna(0.0).to_numpy().tolist()) if len(edited) else text
    if changed != text:
        _keep(name, changed)
        st.rerun()


def _field(knobs: Knobs, name: str, text: str) -> None:
    symbol = SYMBOLS[name]
    more: dict[str, Any] = {"max_chars": LONGEST_IN_FIELD, "height": 120, "on_change": _pasted, "args": (name,)}
    advice = "CSV, cells of a spreadsheet, or a list such as [[1, 0], [0, 1]] as Python, NumPy and torch print it."
    if len(text) <= LONGEST_IN_LINK:
        expected = "a matrix such as 1,0;0,1"
        knobs.bound(st.text_area, f"Paste {symbol}", name, expected, value=knobs.defaults[name], help=advice, **more)
    else:
        st.text_area(f"Paste {symbol}", key=name, value=knobs.defaults[name], help=advice, **more)
        st.caption(
            f"{symbol} has {len(text):,} characters, too many for the link: who opens the link sees the default instead."
        )


def _pasted(name: str) -> None:
    """Writes what was pasted the short way, if it can be read; otherwise it stays as it is, and its tab says why."""
    st.session_state.pop(f"matrices_problem_{name}", None)
    text = str(st.session_state[name])
    try:
        st.session_state[name] = write(parse(text, SYMBOLS[name])) if text.strip() else ""
    except AttentionError:
        return


def _uploaded(name: str) -> None:
    file = st.session_state[f"matrices_file_{name}"]
    st.session_state.pop(f"matrices_problem_{name}", None)
    if file is None:
        return
    try:
        _keep(name, write(read(file.getvalue(), file.name, SYMBOLS[name])))
    except AttentionError as error:
        st.session_state[f"matrices_problem_{name}"] = error


def _keep(name: str, text: str) -> None:
    """Makes `text` the matrix: in its field, or beside it where it is too long for one."""
    st.session_state[f"matrices_large_{name}"] = text if len(text) > LONGEST_IN_FIELD else ""
    if len(text) <= LONGEST_IN_FIELD:
        st.session_state[name] = text
