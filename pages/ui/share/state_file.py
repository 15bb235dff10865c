"""The state as a file: what a link is too short for, opened again to the same digits; and lessons of a person's own."""

from __future__ import annotations

import json
import re

import streamlit as st

from attention import AttentionError, FileError
from attention.lessons import asked
from attention.lessons.files import several
from attention.sources.archive import quoted
from attention.sources.link_aliases import with_current_keys
from pages.ui.knobs import inputs
from pages.ui.knobs.session import acted, session
from pages.ui.knobs.table import DEFAULTS
from pages.ui.notes import plain
from pages.ui.server import turns, uploads
from pages.ui.server.limits import STATE_FILE_MB

OPENED = "lessons_open"
"""The key of the lesson that is open."""
_MARK = "attention lab"  # the first key of the file; its value is the version of the format
_OF_A_PAGE = re.compile(r"(?:lab|lessons|heads|masks|softmax|reference|compare|train)_[a-z_]{1,40}")
_KEY = "open_state"
_TEXT = re.compile(r'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)  # in JSON; without an end it goes on to the end
_TEXTS = 1000  # of a file, which has two for each knob
_AROUND = 10_000  # characters around them


def write(page: str, state: dict[str, str]) -> str:
    """The state file: the page's title, and the knobs that differ from their defaults, as they stand in a URL.

    Raises:
        FileError: it would be larger than what is opened again.
    """
    text = json.dumps({_MARK: 1, "page": page, "state": state}, ensure_ascii=False, indent=1)
    if len(text.encode(errors="replace")) > STATE_FILE_MB * 2**20:
        raise FileError(
            f"A state file has at most {STATE_FILE_MB} MB; this state has more: keep the files of your matrices instead."
        )
    return text


def read(content: bytes) -> tuple[str, dict[str, str]]:
    """The title of the page and the knobs of a state file; knobs it does not know are left out.

    Raises:
        FileError: it is no state file.
    """
    if len(content) > STATE_FILE_MB * 2**20:
        raise FileError(
            f"A state file has at most {STATE_FILE_MB} MB; got {len(content):,} bytes: open one that Share has saved."
        )
    try:
        text = content.decode("utf-8-sig")
        # JSON of millions of braces would become a hundred times as large when it is read.
        file = json.loads(text) if len(_TEXT.sub("", text, _TEXTS)) <= _AROUND else {}
        page, state = file["page"], file["state"]
        of_ours = file[_MARK] == 1 and isinstance(page, str) and all(isinstance(text, str) for text in state.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        of_ours = False
    if not of_ours:
        raise FileError(
            "A state file is the .json file that Share saves; got something else: save one there, and open that."
        )
    # A lone surrogate cannot be sent to a browser.
    clean = with_current_keys({key: text.encode("utf-8", "replace").decode() for key, text in state.items()}).texts
    return page, {key: text for key, text in clean.items() if key in DEFAULTS or _OF_A_PAGE.fullmatch(key)}


def opener() -> None:
    """The field of the sidebar that opens a state file; every knob then gets what the file says, or its default.

    A file of lessons opens its first one.
    """
    with st.expander("Open a state or lessons"):
        st.file_uploader(
            "Open a state file (.json) or lessons (.md)",
            type=["json", "md"],
            key=f"{_KEY}_{session().state_files}",  # a new field each time, so that a file can be opened twice
            on_change=_opened,
            max_upload_size=STATE_FILE_MB,
        )
        if problem := session().state_file_problem:
            st.error(plain(problem))


def _opened() -> None:
    ours = session()
    file = st.session_state[f"{_KEY}_{ours.state_files}"]
    ours.state_file_problem = ""
    if file is None:
        return
    try:
        content = uploads.content(file)
        if file.name.lower().endswith(".md"):
            ours.lessons, ours.lessons_file = several(content), quoted(file.name)
            acted()
            ours.next_page, st.session_state[OPENED] = "Lessons", next(iter(ours.lessons))
            ours.state_files += 1
            ours.address.pop(asked.KEY, None)
            return
        with turns.aside():  # as a large file takes a moment, whatever it holds
            page, state = read(content)
    except AttentionError as error:
        ours.state_file_problem = str(error)
        return
    ours.state_files += 1
    inputs.ask_for(state, page)
