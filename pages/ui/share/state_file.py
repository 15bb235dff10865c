"""State files, which hold what is too long for a link, and files of the user's own lessons."""

from __future__ import annotations

import json
import re

import streamlit as st

from attention import AttentionError, FileError
from attention.io.arrays import quote
from attention.lessons import link_codec
from attention.lessons.markdown import read_many
from pages.ui.server import scheduler, uploads
from pages.ui.server.limits import STATE_FILE_MB
from pages.ui.state import knob_state
from pages.ui.state.knob_table import DEFAULTS
from pages.ui.state.notices import plain
from pages.ui.state.session import count_action, session

OPENED = "lessons_open"
"""The key of the lesson that is open."""
_MARK = "attention lab"  # the first key of the file; its value is the version of the format
_OF_A_PAGE = re.compile(r"[a-z]{1,40}_[a-z0-9_]{1,40}")  # the keys of a page's own knobs begin with its name
_KEY = "open_state"
_STRING = re.compile(r'"(?:[^"\\]++|\\.?)*+"?', re.DOTALL)  # a JSON string, also an unterminated one
_MOST_STRINGS = 1000  # in a file, which has two for each knob
_MOST_STRUCTURE = 10_000  # characters outside of strings


def write(page: str, state: dict[str, str]) -> str:
    """The text of a state file: the page's title, and the URL values of the knobs that differ from their defaults.

    Raises:
        FileError: the file would be too large to open again.
    """
    text = json.dumps({_MARK: 1, "page": page, "state": state}, ensure_ascii=False, indent=1)
    if len(text.encode(errors="replace")) > STATE_FILE_MB * 2**20:
        raise FileError(
            f"A state file has at most {STATE_FILE_MB} MB; this state has more: save the files of your matrices instead."
        )
    return text


def read(content: bytes) -> tuple[str, dict[str, str]]:
    """The page's title and the knobs of a state file; unknown knobs are ignored.

    Raises:
        FileError: it is not a state file.
    """
    if len(content) > STATE_FILE_MB * 2**20:
        raise FileError(
            f"A state file has at most {STATE_FILE_MB} MB; got {len(content):,} bytes: open a file that was saved with Share."
        )
    try:
        text = content.decode("utf-8-sig")
        # Parsed JSON with millions of braces would take a hundred times the memory of its text.
        file = json.loads(text) if len(_STRING.sub("", text, _MOST_STRINGS)) <= _MOST_STRUCTURE else {}
        page, state = file["page"], file["state"]
        is_valid = file[_MARK] == 1 and isinstance(page, str) and all(isinstance(text, str) for text in state.values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        is_valid = False
    if not is_valid:
        raise FileError("A state file is a .json file saved with Share; got something else: open one saved there.")
    # A lone surrogate cannot be sent to a browser.
    clean = {key: text.encode("utf-8", "replace").decode() for key, text in state.items()}
    return page, {key: text for key, text in clean.items() if key in DEFAULTS or _OF_A_PAGE.fullmatch(key)}


def upload_field() -> None:
    """Draws the upload field for state files and lessons.

    A state file sets every knob to its value in the file or to its default. A file of lessons opens its first lesson.
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
            ours.lessons, ours.lessons_file = read_many(content), quote(file.name)
            count_action()
            ours.next_page, st.session_state[OPENED] = "Lessons", next(iter(ours.lessons))
            ours.state_files += 1
            ours.address.pop(link_codec.KEY, None)
            return
        with scheduler.without_turn():  # any large file takes a moment to read
            page, state = read(content)
    except AttentionError as error:
        ours.state_file_problem = str(error)
        return
    ours.state_files += 1
    knob_state.open_page(state, page)
