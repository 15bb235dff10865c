"""The attention file that the user uploads. It stays in the session; the address has its name and digest."""

from __future__ import annotations

from contextlib import nullcontext, suppress

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError, File
from attention.base.errors import AxesError
from attention.files.archives import quote
from attention.files.opening import EXTENSIONS
from attention.sources.file_source import FILE, link_name
from pages.ui.server import scheduler, uploads
from pages.ui.server.limits import ALLOW_LOCAL_MODELS, LIMITS
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, progress_bar, show_later
from pages.ui.state.session import session

_KEY = "file_upload"
_LONGEST_NAME = 200  # characters in the address
_PLAN_LINES = 30


def attention_file(asked: str, wide: DeltaGenerator, locked: bool) -> None:
    """Draws the upload field of the attention file: in `wide`, above the maps, while the requested file is missing.

    Args:
        asked: the requested file as name:digest.
        wide: the container above the maps.
        locked: whether the page has no fields, unless the file is missing.
    """
    uploaded = session().file
    is_present = uploaded is not None and asked == link_name(uploaded)
    if not (is_present and locked):
        with nullcontext() if is_present else wide:
            st.file_uploader(
                "Another file" if is_present else "Attention file",
                key=_KEY,
                type=[ending.removeprefix(".") for ending in EXTENSIONS],
                on_change=_uploaded,
                help="Weights under any of their usual names, of one layer or all, of one sentence or several; or query, key and value; or scores; a table with or without labels (.csv, .tsv, .txt); an alignment of words; or a file exported from Attention Lab.",
            )
            if problem := session().file_problem:
                st.error(plain(problem))
    if uploaded is not None and is_present and not locked:
        size = f"{len(uploaded.content):,} bytes"
        st.caption(
            plain(f"{quote(uploaded.name)} ({size}) stays in this browser tab. The link has only its name and digest.")
        )


def show_plan(file: File) -> None:
    """Draws what each array of the file is, in an expander; nothing if that is unknown, which the page then says."""
    with suppress(AttentionError):  # the page says it
        lines = file.plan().text().split("\n")
        with st.expander("How the file is read"):
            st.caption(plain("\n\n".join(lines[:_PLAN_LINES] + ["…"] * (len(lines) > _PLAN_LINES))))


def _uploaded() -> None:
    """Stores the uploaded file, unless the names and sizes of its arrays show that it cannot be used."""
    chosen, ours = st.session_state[_KEY], session()
    ours.file_problem = ""
    if chosen is None:
        return
    try:
        content = uploads.content(chosen)
        with scheduler.without_turn(), progress_bar():  # any large file takes a moment to read
            uploaded = File.of(_short(chosen.name), content, LIMITS.trace_bytes, LIMITS.tokens, ALLOW_LOCAL_MODELS)
            with suppress(AxesError):  # the page asks for the names of the axes
                uploaded.memory_bytes()
    except AttentionError as error:
        ours.file_problem = str(error)
        return
    name, _, digest = str(knob_state.current_value(FILE.key)).rpartition(":")
    if ours.file is None and name == uploaded.name and digest != uploaded.digest:
        show_later(f"The uploaded {quote(name)} is not the same file as in the link. The page shows the uploaded one.")
    ours.file = uploaded
    uploads.count_file(uploaded)
    knob_state.hold({FILE.key: link_name(uploaded)})


def _short(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME // 2]}…{name[-_LONGEST_NAME // 2 :]}"
