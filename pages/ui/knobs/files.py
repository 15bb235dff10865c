"""The file with attention that a person uploads: it stays with the session, and the address has its name and its digest."""

from __future__ import annotations

from contextlib import nullcontext

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError, File
from attention.sources.archive import ENDINGS, quoted
from attention.sources.knobs import FILE
from attention.sources.link import not_here
from pages.ui.knobs import inputs
from pages.ui.knobs.session import session
from pages.ui.knobs.table import LIMITS
from pages.ui.knobs.widgets import Knobs
from pages.ui.notes import plain, say_later
from pages.ui.server import turns, uploads

_KEY = "file_upload"
_LONGEST_NAME = 200  # characters that stand in the address


def file(knobs: Knobs, asked: str, wide: DeltaGenerator) -> File:
    """The file that the address asks for, as name:digest, with the field that takes one: where one looks, as long as it is missing.

    Raises:
        AwaitedError: it is not here.
    """
    there = session().file
    here = there is not None and asked == _named(there)
    if not (here and knobs.locked):
        with nullcontext() if here else wide:
            st.file_uploader(
                "Another file" if here else "A file with attention",
                key=_KEY,
                type=[ending.removeprefix(".") for ending in ENDINGS],
                on_change=_uploaded,
                help="weights [head query key] or [layer head query key]; or query, key and value; or scores; or what was exported here.",
            )
            if problem := session().file_problem:
                st.error(plain(problem))
    if there is None or not here:
        raise not_here(asked)
    if not knobs.locked:
        size = f"{len(there.content):,} bytes"
        st.caption(
            plain(f"{quoted(there.name)} ({size}) stays in this browser tab. The link has its name and its digest.")
        )
    return there


def here(asked: str) -> File | None:
    """The file that was uploaded here, if it is called so, as name:digest."""
    there = session().file
    return there if there is not None and asked == _named(there) else None


def _uploaded() -> None:
    """Takes the file that was chosen, unless its names and sizes say that nothing can be shown of it."""
    chosen, ours = st.session_state[_KEY], session()
    ours.file_problem = ""
    if chosen is None:
        return
    try:
        content = uploads.content(chosen)
        with turns.aside():  # a large file takes a moment, whatever it holds
            found = File.of(_short(chosen.name), content, LIMITS.trace_mb * 2**20, LIMITS.tokens)
            _ = found.needs
    except AttentionError as error:
        ours.file_problem = str(error)
        return
    name, _, digest = str(inputs.now(FILE.key)).rpartition(":")
    if ours.file is None and name == found.name and digest != found.digest:
        say_later(f"The link shows another {quoted(name)}; the one that was uploaded has other bytes, and is shown.")
    ours.file = found
    uploads.hold(found)
    inputs.hold({FILE.key: _named(found)})


def _short(name: str) -> str:
    """The name of a file as it can stand in an address, with its ending."""
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME // 2]}…{name[-_LONGEST_NAME // 2 :]}"


def _named(file: File) -> str:
    """A file as it stands in the address."""
    return f"{file.name}:{file.digest}"
