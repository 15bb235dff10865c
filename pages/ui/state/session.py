"""Session state beside the values of the knobs: one object under one key of `st.session_state`."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import streamlit as st

from attention import AttentionError, File
from attention.files.picture import Picture

if TYPE_CHECKING:
    import pandas as pd

_KEY = "session"
Slot = TypeVar("Slot")
Handlers = tuple[Callable[[str, int, int], None] | None, Callable[[dict[str, Any]], None] | None]
"""The callbacks for a clicked cell (step, x, y) and for changed controls."""


@dataclass(frozen=True)
class UploadedPicture:
    """An uploaded picture.

    Attributes:
        picture: the picture.
        preview: a small PNG of it.
    """

    picture: Picture
    preview: bytes = field(repr=False)

    @property
    def content(self) -> bytes:
        """The bytes of the file."""
        return self.picture.content


@dataclass
class ReplacedWidget:
    """A widget whose value Back or Forward replaced.

    Attributes:
        earlier_values: the earlier values, which late messages of the page may still contain.
        value: the new value.
        is_applied: whether the new value has been applied.
    """

    earlier_values: list[Any] = field(default_factory=list)
    value: Any = None
    is_applied: bool = False


@dataclass
class Session:
    """The state of one browser tab.

    Attributes:
        page: the title of the page shown last; empty before the first one.
        source: the name of the source shown last.
        stashed: the values of the knobs after the scores that wait for the way back to a source: those for sources that bring
            their own formula at True, those for the others at False.
        carried_knobs: the sidebar's knobs at their last drawing, restored on the next page.
        pending_values: values of inline knobs that changed since the last full run of the page.
        address: the query parameters: first those of the link that began the session, then those of the last answer.
        requested: URL values that a link, Back or an opened state file requests, by key; each knob removes its own entry.
        consumed: entries removed from `requested` by the current run; a stopped run leaves them to the next run.
        restoring: whether `requested` describes a complete state.
        last_action: the number of the last applied action of the page, see `pages.ui.state.user_actions`.
        server_actions: the number of user actions that reached the server through widgets, which have no such number.
        applying_action: whether a numbered action is being applied.
        answers_sent: the number of answers sent to the page.
        handlers: the callbacks of each figure component, by its key.
        replaced_widgets: widgets whose values Back replaced. The page may send the earlier values until it has
            seen answer number `replaced_in`.
        defaults: the default of every knob drawn so far, as in the URL.
        knobs_read: the keys of the knobs read by this run; they depend on the source.
        widget_arguments: range, default and fixed text of each drawn widget, by key; Streamlit creates a new widget when they change.
        requested_heads: the requested number of heads and the number in use, by key.
        has_waited: whether the user has waited for a trace; from then on the last picture stays until the next.
        notes: messages about bad links, shown until they are dismissed.
        next_page: the title of the page to open next; empty for none.
        state_files: the number of opened state files.
        state_file_problem: the error of the last state file.
        switched_off: codes of the interventions that were switched off and can be switched on again.
        head_opened: whether a head was clicked that the Lab must now open.
        head_rank: the rank of that head among all heads, shown in the Lab.
        long_matrices: texts of the matrices that are too long for a field, by name.
        upload_problems: the error of the last upload of each matrix, by name.
        matrix_notes: the text of each pasted or uploaded matrix and the notes about how it was parsed, by name.
        file: the uploaded attention file.
        file_problem: the error of the last uploaded file.
        uploaded_pictures: the uploaded pictures by their values of `image`, the oldest first.
        opened_for_problem: whether the matrix editor was unfolded to show an error.
        first_state: the first of the two compared states at the last run of Compare; None before.
        recent_states: the comparable state before the last change and the one now.
        name: the random id of this session.
        pictures: the number of pictures shown by each film, by component key.
        windows: the zoom window of each map, [top, bottom, left, right), by component and ``layout.uirevision``.
        grids: the initial table of each editable grid and the number of grids before it, by key.
        exports: the tab's export token and offers, see `pages.ui.exports.links`.
        slots: what single panels keep, by their own class, see `of`.
    """

    page: str = ""
    source: str = ""
    stashed: dict[bool, dict[str, Any]] = field(default_factory=dict)
    carried_knobs: dict[str, Any] = field(default_factory=dict)
    pending_values: dict[str, Any] = field(default_factory=dict)
    address: dict[str, str] = field(default_factory=dict)
    requested: dict[str, str] = field(default_factory=dict)
    consumed: dict[str, str] = field(default_factory=dict)
    restoring: bool = False
    last_action: int = 0
    server_actions: int = 0
    applying_action: bool = False
    answers_sent: int = 0
    handlers: dict[str, Handlers] = field(default_factory=dict)
    replaced_widgets: dict[str, ReplacedWidget] = field(default_factory=dict)
    replaced_in: int = 0
    defaults: dict[str, str] = field(default_factory=dict)
    knobs_read: set[str] = field(default_factory=set)
    widget_arguments: dict[str, object] = field(default_factory=dict)
    requested_heads: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    has_waited: bool = False
    notes: list[str] = field(default_factory=list)
    next_page: str = ""
    state_files: int = 0
    state_file_problem: str = ""
    switched_off: list[str] = field(default_factory=list)
    head_opened: bool = False
    head_rank: str = ""
    long_matrices: dict[str, str] = field(default_factory=dict)
    upload_problems: dict[str, AttentionError] = field(default_factory=dict)
    matrix_notes: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    file: File | None = None
    file_problem: str = ""
    uploaded_pictures: dict[str, UploadedPicture] = field(default_factory=dict)
    opened_for_problem: bool = False
    first_state: dict[str, str] | None = None
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
        link = st.query_params.to_dict()
        state = st.session_state[_KEY] = Session(address=link, requested=dict(link))
    return state


def reset_session(address: dict[str, str]) -> None:
    """Resets the session to a page at this `address`; ids and counters stay."""
    before = session()
    st.session_state.clear()
    st.session_state[_KEY] = Session(
        address=address,
        name=before.name,
        last_action=before.last_action,
        server_actions=before.server_actions,
        answers_sent=before.answers_sent,
    )


def count_action() -> None:
    """Counts an action that the page does not number, such as a click on a button. For callbacks.

    Does nothing else: Streamlit may stop a run, and its callbacks, at any access to the session state.
    """
    state = session()
    state.server_actions += not state.applying_action
