"""What one session remembers beside the knobs themselves: one object, under one key."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import streamlit as st

from attention import AttentionError, File
from attention.lessons.lesson import Lesson
from attention.sources.link_aliases import with_current_keys
from attention.training import Plan

if TYPE_CHECKING:
    import pandas as pd

_KEY = "session"
Handlers = tuple[Callable[[str, int, int], None] | None, Callable[[dict[str, Any]], None] | None]
"""What is done when a cell is clicked (its step, x and y), and when a knob is turned."""


@dataclass
class Watched:
    """A film of a training, as one tab watches it.

    Attributes:
        plan: what is trained.
        step: the one that is shown; None: nobody has trained it yet.
        playing: it goes on by itself.
        opening: a link asked for the step, and it is trained up to there.
    """

    plan: Plan
    step: int | None = None
    playing: bool = False
    opening: bool = False


@dataclass
class Replaced:
    """A widget that was given a value: what it may still say that it shows, and what it was set to, once it was."""

    before: list[Any] = field(default_factory=list)
    value: Any = None
    set: bool = False


@dataclass
class Session:
    """What is remembered of one browser tab.

    Attributes:
        page: the title of the page that was shown last; empty before the first was.
        source: the name of the source that was shown last.
        laid_by: the knobs after the scores as they were left, of sources that bring their own formula (True) and of the others.
        kept: the knobs of the sidebar as they were last drawn, for the next page.
        turned: the held knobs that a hand has turned since the page last ran as a whole.
        address: what the address says, by key: of the link that began the session, then of the last answer to the page.
        asked_for: what a link, Back or an opened state file asks for, by key, as in the URL; each knob takes its own out.
        taken: what knobs have taken out of it in a run that has not ended; one that is stopped leaves it to the next.
        restoring: what is asked for is a whole state.
        number: of the last act of the page that was taken, see `pages.ui.knobs.acts`.
        server_acts: how many acts of a person were heard of that have no such number.
        taking: such an act is being taken.
        answers: how many answers the page was sent.
        handlers: what a click on the figures of a component does, and a turn of its controls, by its key.
        replaced: of widgets that Back has set: what they showed before, and what they were set to. Until the page has seen
            the answer `replaced_in`, it goes on sending the former.
        defaults: what every knob that was drawn is by default, as in the URL.
        read: the knobs that this run has read; another source has others.
        ranges: what a widget was drawn with, by key; Streamlit makes one with another range another widget.
        wishes: the numbers of heads that were wished, by key, and those that were settled on.
        waited: somebody has waited for a trace; later the last picture stands until the next.
        notes: what links got wrong, until it is dismissed.
        next_page: the title of the page that an opened state file names; empty where none waits.
        state_files: how many state files were opened.
        state_file_problem: what is wrong with the last one.
        switched_off: the changes inside the model that were switched off, as in a link: a switch brings them back.
        matters: what somebody has asked which heads matter for, see `pages.ui.matters`; None: nothing.
        head_opened: a head was clicked, which the Lab shows.
        head_place: which place it has among all heads, to be said there.
        large: the matrices that are too long for a field, by name.
        problems: what is wrong with the last upload of a matrix, by name.
        readings: what was pasted or uploaded as a matrix, by name, and what was said of it.
        file: the uploaded file with attention, and what is wrong with the last one.
        unfolded_by_us: the matrices' editor is unfolded because something is wrong.
        first: the first of two compared states, as the page about them last had it; None before it had any.
        states: what could be compared, before the last knob was turned and now.
        name: what tells it from other sessions.
        pictures: how many pictures each film has shown, by the key of its component.
        windows: the cells that a map was zoomed to, [top, bottom, left, right), by component and ``layout.uirevision``.
        watched: the film of a training that was watched last.
        seeds_run: of what many seeds are trained now; `seeds_shown` of what they were.
        grids: the table that a grid to edit began with, by its key, and how many grids there were before it.
        guesses: what was answered, by the name of the lesson.
        exports: what the links to files of this tab need, see `pages.ui.exports.tokens`.
        lessons: those of the file of lessons that was opened, by name, and what the file is called.
    """

    page: str = ""
    source: str = ""
    laid_by: dict[bool, dict[str, Any]] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    turned: dict[str, Any] = field(default_factory=dict)
    address: dict[str, str] = field(default_factory=dict)
    asked_for: dict[str, str] = field(default_factory=dict)
    taken: dict[str, str] = field(default_factory=dict)
    restoring: bool = False
    number: int = 0
    server_acts: int = 0
    taking: bool = False
    answers: int = 0
    handlers: dict[str, Handlers] = field(default_factory=dict)
    replaced: dict[str, Replaced] = field(default_factory=dict)
    replaced_in: int = 0
    defaults: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    ranges: dict[str, object] = field(default_factory=dict)
    wishes: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    waited: bool = False
    notes: list[str] = field(default_factory=list)
    next_page: str = ""
    state_files: int = 0
    state_file_problem: str = ""
    switched_off: list[str] = field(default_factory=list)
    matters: Any = None
    head_opened: bool = False
    head_place: str = ""
    large: dict[str, str] = field(default_factory=dict)
    problems: dict[str, AttentionError] = field(default_factory=dict)
    readings: dict[str, tuple[str, tuple[str, ...]]] = field(default_factory=dict)
    file: File | None = None
    file_problem: str = ""
    unfolded_by_us: bool = False
    first: dict[str, str] | None = None
    states: list[dict[str, str]] = field(default_factory=list)
    name: str = field(default_factory=lambda: secrets.token_hex(4))
    pictures: Counter[str] = field(default_factory=Counter)
    windows: dict[str, dict[str, list[int] | None]] = field(default_factory=dict)
    grids: dict[str, tuple[pd.DataFrame, int]] = field(default_factory=dict)
    watched: Watched | None = None
    seeds_run: Plan | None = None
    seeds_shown: Plan | None = None
    guesses: dict[str, list[Any]] = field(default_factory=dict)
    exports: Any = None
    lessons: dict[str, Lesson] = field(default_factory=dict)
    lessons_file: str = ""


def session() -> Session:
    """What this session remembers. The address of its first run is a link; from then on the page says what it does."""
    try:
        found: Session = st.session_state[_KEY]
    except KeyError:
        link, notes = with_current_keys(st.query_params.to_dict())
        found = st.session_state[_KEY] = Session(address=link, asked_for=dict(link), notes=list(notes))
    return found


def begin_anew(address: dict[str, str]) -> None:
    """Forgets everything but the page itself, which is at this `address` now."""
    before = session()
    st.session_state.clear()
    st.session_state[_KEY] = Session(
        address=address, name=before.name, number=before.number, server_acts=before.server_acts, answers=before.answers
    )


def acted() -> None:
    """Counts an act that the page does not number: of a widget or a button. For callbacks.

    Streamlit may stop a run, and a callback with it, whenever the session is read: that is all that happens here.
    """
    ours = session()
    ours.server_acts += not ours.taking
