"""Session state beside the values of the knobs: one object under one key of `st.session_state`."""

from __future__ import annotations

import secrets
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import streamlit as st

from attention import AttentionError, File
from attention.sources.reader import Field
from attention.sources.state import State

if TYPE_CHECKING:
    import pandas as pd

_KEY = "session"
_Slot = TypeVar("_Slot")
_Handlers = tuple[Callable[[str, int, int], None] | None, Callable[[dict[str, Any]], None] | None]
"""The callbacks for a clicked cell (step, x, y) and for changed controls."""


@dataclass(frozen=True)
class UploadedInput:
    """An uploaded input of a medium, and a small PNG of it as a preview."""

    given: Any
    preview: bytes = field(repr=False)

    @property
    def nbytes(self) -> int:
        """The bytes that it takes: of its file, and of what was read from it."""
        n_bytes: int = getattr(self.given, "nbytes", len(self.given.content))
        return n_bytes


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
    """The state of one browser tab."""

    # What the tab shows: the only place of the knobs' values, see `attention.sources.state`.
    state: State = field(default_factory=State)
    drawn: dict[str, Drawn] = field(default_factory=dict)  # every widget of a knob as it was drawn last, by its key
    # The earlier texts of widgets that Back, or an act in a figure, replaced, by key. The page may send them until it has seen answer number `replaced_in`.
    replaced: dict[str, set[str]] = field(default_factory=dict)
    runs: int = 0  # the number of full runs of pages
    # The keys of the knobs that this run has read; they depend on the source.
    read: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)  # those of the run before, and those that wait
    last_action: int = 0  # the number of the last applied action of the page, see `pages.ui.address`
    # The number of user actions that reached the server through widgets, which have no such number.
    server_actions: int = 0
    applying_action: bool = False  # whether a numbered action is being applied
    answers_sent: int = 0  # the number of answers sent to the page
    handlers: dict[str, _Handlers] = field(default_factory=dict)  # the callbacks of each figure component, by its key
    replaced_in: int = 0  # the number of the answer that the page must have seen
    defaults: dict[str, str] = field(default_factory=dict)  # the default of every knob drawn so far, as in the URL
    fields: dict[str, Field] = field(default_factory=dict)  # every knob as it was read last
    # Whether the user has waited for a trace; from then on the last picture stays until the next.
    has_waited: bool = False
    notes: list[str] = field(default_factory=list)  # messages about bad links, shown until they are dismissed
    next_page: str = ""  # the title of the page to open next; empty for none
    state_files: int = 0  # the number of opened state files
    state_file_problem: str = ""  # the error of the last state file
    # Codes of the interventions that were switched off and can be switched on again.
    switched_off: list[str] = field(default_factory=list)
    head_opened: bool = False  # whether a head was clicked that Explore must now open
    head_rank: str = ""  # the rank of that head among all heads, shown in Explore
    # The error of the last upload of each matrix, by name.
    upload_problems: dict[str, AttentionError] = field(default_factory=dict)
    # The text of each pasted or uploaded matrix and the notes about how it was parsed, by name.
    matrix_notes: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    file: File | None = None  # the uploaded attention file
    file_problem: str = ""  # the error of the last uploaded file
    # The uploaded inputs of media by their field and their name in links, the oldest first.
    uploaded_inputs: dict[tuple[str, str], UploadedInput] = field(default_factory=dict)
    opened_for_problem: bool = False  # whether the matrix editor was unfolded to show an error
    # The comparable state before the last change and the one now.
    recent_states: list[dict[str, str]] = field(default_factory=list)
    name: str = field(default_factory=lambda: secrets.token_hex(4))  # the random id of this session
    # The number of pictures shown by each film, by component key.
    pictures: Counter[str] = field(default_factory=Counter)
    # How long the last traces of each class of source took, which the first screen asks before it answers while one types.
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    # The zoom window of each map, [top, bottom, left, right), by component and ``layout.uirevision``.
    windows: dict[str, dict[str, list[int] | None]] = field(default_factory=dict)
    # The initial table of each editable grid and the number of grids before it, by key.
    grids: dict[str, tuple[pd.DataFrame, int]] = field(default_factory=dict)
    exports: Any = None  # the tab's export token and offers, see `pages.ui.exports.links`
    slots: dict[type, Any] = field(default_factory=dict)  # what single panels keep, by their own class, see `of`

    def of(self, kind: type[_Slot]) -> _Slot:
        """What a panel keeps in this tab: one object of its own class, made without arguments at first use."""
        if kind not in self.slots:
            self.slots[kind] = kind()
        slot: _Slot = self.slots[kind]
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
