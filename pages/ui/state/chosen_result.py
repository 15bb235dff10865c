"""The results of runs over many texts that the page Heads shows: the knobs that name them, and the uploaded ones of this tab."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import streamlit as st

from attention.errors import AttentionError, AwaitedError
from attention.io.arrays import quote
from attention.params.knob import Knob
from attention.params.ranges import Choice, Text
from pages.ui.server import results, scheduler, uploads
from pages.ui.state import knob_state
from pages.ui.state.session import UploadedResult, session
from pages.ui.state.widgets import Knobs, standing

if TYPE_CHECKING:
    from attention.corpus.heads_result import HeadsResult

ONE, MANY = "this text", "many texts"
OVER = Knob("heads_over", ONE, Choice((ONE, MANY)), "Heads over", "This text: the source in the sidebar. Many texts: the result of a run of attention.corpus.", inline=True)  # fmt: skip
RESULT = Knob("heads_result", "", Text(300), "Result", "A result of attention.corpus: a name on offer here, a path where paths are allowed, or an uploaded file as name:digest.", inline=True)  # fmt: skip
OTHER = Knob("heads_result_b", "", Text(300), "Compared with", "A second result; changes are this one minus the first.", inline=True)  # fmt: skip
LONGEST_NAME = 200  # characters in the address
_UPLOADED = re.compile(r"(.+):([0-9a-f]{32})", re.DOTALL)


def is_many() -> bool:
    """Whether the page Heads shows a result over many texts."""
    return standing(OVER.key) == MANY


@dataclass(frozen=True)
class Opened:
    """The results that the address names.

    Attributes:
        result: the first one; None if the address names none, or it cannot be opened.
        other: the second one.
        problems: why one cannot be opened, by the key of its knob.
    """

    result: HeadsResult | None
    other: HeadsResult | None
    problems: dict[str, AttentionError]


def open_both(knobs: Knobs) -> Opened:
    """Opens the results that the address names."""
    opened: dict[str, HeadsResult | None] = {RESULT.key: None, OTHER.key: None}
    problems: dict[str, AttentionError] = {}
    for knob in (RESULT, OTHER):
        try:
            with scheduler.without_turn():
                opened[knob.key] = _result_of(str(knobs.value(knob)).strip())
        except AttentionError as error:
            problems[knob.key] = error
    return Opened(opened[RESULT.key], opened[OTHER.key], problems)


def _result_of(asked: str) -> HeadsResult | None:
    """The result that the value of a knob names; None if it names none.

    Raises:
        AwaitedError: it is an upload that this tab does not have.
        FileError: there is no such result, or it cannot be read.
    """
    if not asked:
        return None
    found = _UPLOADED.fullmatch(asked)
    if found is None:
        return results.of_name(asked)
    for uploaded in session().results.values():
        if uploaded.link_name == asked:
            return results.of_bytes(uploaded.name, uploaded.digest, uploaded.content)
    raise AwaitedError(
        f"The link shows the result {quote(found[1])} (digest {found[2][:8]}…), which is not on this server: upload it to open the link."
    )


def upload_field(knob: Knob, label: str) -> None:
    """Draws a field that takes an upload as the result of a knob."""
    key = f"{knob.key}_upload"
    st.file_uploader(label, type=["parquet"], key=key, on_change=_uploaded, args=(knob, key), help=f"The {results.TABLE} that a run writes. It stays in this browser tab; the link has only its name and digest.")  # fmt: skip


def missing_words() -> str:
    """A sentence about uploaded results, which are not in the link; empty if there are none."""
    names = [
        quote(found[1]) for knob in (RESULT, OTHER) if (found := _UPLOADED.fullmatch(standing(knob.key))) is not None
    ]
    them = "the file" if len(names) == 1 else "the files"
    return (
        f"{' and '.join(names)} {'is' if len(names) == 1 else 'are'} not in the link: send {them} too, because the page will ask for {'it' if len(names) == 1 else 'them'}."
        if names
        else ""
    )


def short_name(asked: str) -> str:
    """The value of a knob without a digest."""
    found = _UPLOADED.fullmatch(asked)
    return found[1] if found else asked


def _uploaded(knob: Knob, key: str) -> None:
    """Keeps the uploaded file, unless it is no result."""
    chosen, ours = st.session_state[key], session()
    ours.result_problem = ""
    if chosen is None:
        return
    try:
        content = uploads.content(chosen)
        name = chosen.name if len(chosen.name) <= LONGEST_NAME else f"…{chosen.name[-LONGEST_NAME:]}"
        with scheduler.without_turn():
            digest = _digest(content)
        results.of_bytes(name, digest, content)
    except AttentionError as error:
        ours.result_problem = str(error)
        return
    uploaded = ours.results[knob.key] = UploadedResult(name, digest, content)
    uploads.count_file(uploaded, knob.key)
    knob_state.hold({knob.key: uploaded.link_name, OVER.key: MANY})


def _digest(content: bytes) -> str:
    from hashlib import blake2b

    return blake2b(content, digest_size=16).hexdigest()
