"""The editor of a person's own matrices: pasted, edited in a grid, or uploaded. Each one's truth is one of the `texts`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import PARAMETERS, AttentionError
from attention.sources.cutting import SYMBOLS, Shape
from attention.sources.given import fitted, said
from attention.sources.knobs import LONGEST_MATRIX, MORE
from attention.sources.reading.files import ENDINGS
from attention.sources.reading.matrix import Matrix, Stack, of_heads
from attention.sources.reading.reading import rounding
from attention.sources.reading.text import look, write
from pages.ui.knobs import texts
from pages.ui.knobs.session import acted, session
from pages.ui.knobs.table import KNOBS
from pages.ui.knobs.widgets import Knobs

GRID_UP_TO = 64  # rows or columns
OPTIONAL = {name for names in MORE.values() for name in names}
_MEANINGS = {one.name: one.meaning for one in PARAMETERS}
EDITOR = "matrices_editor"  # whether the editor is unfolded


def matrices(knobs: Knobs, fields: Sequence[str]) -> dict[str, Matrix | Stack]:
    """A tab for each of the `fields`, with a grid, a field to paste into and an upload; what they hold. One whose default is empty may be left so.

    Raises:
        AttentionError: one of them cannot be read; all the tabs have been drawn by then.
    """
    found: dict[str, Matrix | Stack] = {}
    problems: dict[str, AttentionError] = {}
    for name in fields:
        try:
            found[name] = texts.read(name, optional=not KNOBS[name].default)
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
                    on_click=texts.fit,
                    args=(fits,),
                    help="Makes their sizes fit. A number that has a place keeps it; a new place is 0.",
                )
            shown = [name for name in fields if name not in OPTIONAL]
            _tabs(knobs, shown, found, {**problems, **refused})
        more = [name for name in fields if name in OPTIONAL]
        wrong = any(name in {**problems, **refused} for name in more)  # who opens a link comes to look
        with st.expander(f"More: {', '.join(SYMBOLS[name] for name in more)}", expanded=wrong):
            _tabs(knobs, more, found, {**problems, **refused})
        problems = {name: error for name, error in {**problems, **refused}.items() if not found.get(name)}
    sizes = {name: str(Shape.of(one)).replace(" × ", "x") for name, one in found.items() if texts.too_long(name)}
    texts.say_sizes({**{name: size for name, size in texts.sizes_in_link().items() if name not in found}, **sizes})
    for name in fields:
        if name in problems:
            raise problems[name]
    return found


def _tabs(
    knobs: Knobs, names: list[str], found: dict[str, Matrix | Stack], problems: dict[str, AttentionError]
) -> None:
    for tab, name in zip(st.tabs([SYMBOLS[name] for name in names]), names, strict=True):
        with tab:
            _one(knobs, name, found.get(name, ()), problems.get(name))


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


def _one(knobs: Knobs, name: str, matrix: Matrix | Stack, problem: AttentionError | None) -> None:
    symbol = SYMBOLS[name]
    grid, field = st.columns(2)
    with grid:
        if not matrix and name in _MEANINGS:
            st.caption(f"Not given. {symbol}: {_MEANINGS[name]}.")
        if problem and not _ask(name):
            knobs.notes.error(str(problem), here=True)
        for note in dict.fromkeys((*texts.notes_of(name), rounding(matrix))):
            if note:
                st.caption(note)
        if matrix and max(Shape.of(matrix)[1:]) <= GRID_UP_TO:
            _grid(name, matrix)
        elif matrix:
            st.info(f"{symbol} is {Shape.of(matrix)}: too large for a grid, but it is used.")
    with field:
        if session().large.get(name):
            st.caption(f"{symbol} was uploaded. It is too large for the link, so it stays in this browser tab.")
            st.button("Remove it", key=f"matrices_remove_{name}", on_click=texts.remove, args=(name,))
        else:
            _field(knobs, name)
        st.file_uploader(
            f"Upload {symbol} ({', '.join(ENDINGS)})",
            key=f"matrices_file_{name}",
            type=[ending.removeprefix(".") for ending in ENDINGS],
            on_change=texts.upload,
            args=(name,),
        )


def _grid(name: str, given: Matrix | Stack) -> None:
    """The matrix as a grid, of several heads one; an edit becomes the text, and everything begins anew from that."""
    import pandas as pd  # where nobody edits a grid, nobody waits for it

    many, text, head = Shape.of(given).stack, write(given), 0
    if many:
        head = st.selectbox("Head in the grid", range(many), key=f"matrices_head_{name}")
    key = f"matrices_grid_{name}_{head}_{abs(hash(text))}"
    matrix = of_heads(given)[head]
    rows: Literal["fixed", "dynamic"] = "fixed" if many else "dynamic"  # all heads are of one size
    edited = st.data_editor(pd.DataFrame(matrix), key=key, num_rows=rows, width="stretch", hide_index=True)
    changed = text
    if len(edited):
        now = tuple(map(tuple, edited.fillna(0.0).to_numpy().tolist()))
        changed = write((*of_heads(given)[:head], now, *of_heads(given)[head + 1 :]) if many else now)
    if changed != text:
        acted()
        texts.keep(name, changed)
        st.rerun()


def _field(knobs: Knobs, name: str) -> None:
    knob, text = KNOBS[name], texts.whole_text(name)
    changed: dict[str, Any] = {"on_change": texts.paste, "args": (name,)}
    unbound = {"label": knob.label, "help": knob.help, "height": 120, "max_chars": LONGEST_MATRIX, **changed}
    if text is None and name in texts.sizes_in_link():
        st.text_area(key=f"matrices_again_{name}", **{**unbound, "on_change": texts.paste_again})
    elif not texts.too_long(name):
        knobs.value(knob, **changed)
    else:
        st.session_state.setdefault(name, text)
        st.text_area(key=name, **unbound)
        st.caption(
            f"{SYMBOLS[name]} has {len(text or ''):,} characters, too many for the link, which holds only its size. A state file holds it all."
        )


def _ask(name: str) -> bool:
    """Asks in place what the text of this matrix leaves open; whether it leaves anything open."""
    with suppress(AttentionError):
        reading = look(texts.whole_text(name) or "", SYMBOLS[name])
        if reading.question:
            st.selectbox(
                reading.question,
                reading.choices,
                index=None,
                key=f"matrices_choice_{name}",
                placeholder="Choose one",
                format_func=lambda choice: _described(choice, reading.choices[choice]),
                on_change=texts.answer,
                args=(name,),
            )
            return True
    return False


def _described(choice: str, given: Matrix | Stack) -> str:
    rows = of_heads(given)[0]
    begins = ", ".join(f"{number:g}" for number in rows[0][:4]) + (", …" if len(rows[0]) > 4 else "")
    return f"{choice}: {Shape.of(given)}, from {begins}"
