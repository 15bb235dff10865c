"""Session state beside the values of the knobs: one object under one key of `st.session_state`."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import streamlit as st

from attention import AttentionError, File
from attention.files.picture import Picture
from attention.sources.state import State

if TYPE_CHECKING:
    import pandas as pd

_KEY = "session"
Slot = TypeVar("Slot")
Handlers = tuple[Callable[[str, int, int], None] | None, Callable[[dict[str, Any]], None] | None]
"""The callbacks for a clicked cell (step, x, y) and for changed controls."""


@dataclass(frozen=True)
class UploadedPicture:
    """An uploaded picture, and a small PNG of it as a preview."""

    picture: Picture
    preview: bytes = field(repr=False)

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return self.picture.content


class Drawn(NamedTuple):
    """A widget as it was drawn last.

    Attributes:
        knob: the key of its knob.
        of: the state that the knob belongs to, "A" or "B"; empty: its own callback says what a change means.
        text: the text of its value, or of what the user has changed it to since.
        default: the text of its default.
        arguments: range, default and fixed text; with others it is another widget to Streamlit.
        run: the number of the run that drew it.
    """

    knob: str
    of: str
    text: str
    default: str
    arguments: tuple[Any, ...]
    run: int


@dataclass
class Session:
    """The state of one browser tab.

    Attributes:
        state: what the tab shows: the only place of the knobs' values, see `attention.sources.state`.
        drawn: every widget of a knob as it was drawn last, by its key.
        replaced: the earlier texts of widgets that Back replaced, by key. The page may send them until it has seen answer
            number `replaced_in`.
        runs: the number of full runs of pages.
        read: the keys of the knobs that this run has read; they depend on the source.
        kept: those of the run before, and those that wait.
        last_action: the number of the last applied action of the page, see `pages.ui.address`.
        server_actions: the number of user actions that reached the server through widgets, which have no such number.
        applying_action: whether a numbered action is being applied.
        answers_sent: the number of answers sent to the page.
        handlers: the callbacks of each figure component, by its key.
        defaults: the default of every knob drawn so far, as in the URL.
        has_waited: whether the user has waited for a trace; from then on the last picture stays until the next.
        notes: messages about bad links, shown until they are dismissed.
        next_page: the title of the page to open next; empty for none.
        state_files: the number of opened state files.
        state_file_problem: the error of the last state file.
        switched_off: codes of the interventions that were switched off and can be switched on again.
        head_opened: whether a head was clicked that the Lab must now open.
        head_rank: the rank of that head among all heads, shown in the Lab.
        upload_problems: the error of the last upload of each matrix, by name.
        matrix_notes: the text of each pasted or uploaded matrix and the notes about how it was parsed, by name.
        file: the uploaded attention file.
        file_problem: the error of the last uploaded file.
        uploaded_pictures: the uploaded pictures by their values of `image`, the oldest first.
        opened_for_problem: whether the matrix editor was unfolded to show an error.
        recent_states: the comparable state before the last change and the one now.
        name: the random id of this session.
        pictures: the number of pictures shown by each film, by component key.
        windows: the zoom window of each map, [top, bottom, left, right), by component and ``layout.uirevision``.
        grids: the initial table of each editable grid and the number of grids before it, by key.
        exports: the tab's export token and offers, see `pages.ui.exports.links`.
        slots: what single panels keep, by their own class, see `of`.
    """

    state: State = field(default_factory=State)
    drawn: dict[str, Drawn] = field(default_factory=dict)
    replaced: dict[str, set[str]] = field(default_factory=dict)
    runs: int = 0
    read: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    last_action: int = 0
    server_actions: int = 0
    applying_action: bool = False
    answers_sent: int = 0
    handlers: dict[str, Handlers] = field(default_factory=dict)
    replaced_in: int = 0
    defaults: dict[str, str] = field(default_factory=dict)
    has_waited: bool = False
    notes: list[str] = field(default_factory=list)
    next_page: str = ""
    state_files: int = 0
    state_file_problem: str = ""
    switched_off: list[str] = field(default_factory=list)
    head_opened: bool = False
    head_rank: str = ""
    upload_problems: dict[str, AttentionError] = field(default_factory=dict)
    matrix_notes: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    file: File | None = None
    file_problem: str = ""
    uploaded_pictures: dict[str, UploadedPicture] = field(default_factory=dict)
    opened_for_problem: bool = False
    recent_states: list[dict[str, str]] = field(default_factory=list)
    name: str = field(default_factory=lambda: secrets.token_hex(4))
    pictures: Counter[str] = field(default_factory=Counter)
    windows: dict[str, dict[str, list[int] | None]] = field(default_factory=dict)
    grids: dict[str, tuple[pd.DataFrame, int]] = field(default_factory=dict)
    exports: Any = None
    slots: dict[type, Any] = field(default_factory=dict)

    def of(self, kind: type[Slot]) -> Slot:
        """What a panel keeps in this tab: one object of its own class, made without arguments at first use."""
        if kind not in self.slots:
            self.slots[kind] = kind()
        slot: Slot = self.slots[kind]
        return slot


def session() -> Session:
    """The state of this session. The address of its first run is a link; later the page reports each action."""
    try:
        state: Session = st.session_state[_KEY]
    except KeyError:
        state = st.session_state[_KEY] = Session(state=State.of_link(st.query_params.to_dict()))
    return state


def count_action() -> None:
    """Counts an action that the page does not number, such as a click on a button. For callbacks.

    Does nothing else: Streamlit may stop a run, and its callbacks, at any access to the session state.
    """
    state = session()
    state.server_actions += not state.applying_action
