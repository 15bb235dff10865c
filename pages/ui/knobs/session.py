"""What one session remembers beside the knobs themselves: one object, under one key."""

from __future__ import annotations

import secrets
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import streamlit as st

from attention import AttentionError, File
from attention.lessons.lesson import Lesson
from attention.training import Plan

if TYPE_CHECKING:
    import pandas as pd

_KEY = "session"


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
class Session:
    """What is remembered of one browser tab.

    Attributes:
        page: the title of the page that was shown last; empty before the first was.
        source: the name of the source that was shown last.
        laid_by: the knobs after the scores as they were left, of sources that bring their own formula (True) and of the others.
        kept: the knobs of the sidebar as they were last drawn, for the next page.
        turned: the held knobs that a hand has turned since the page last ran as a whole.
        asked_for: what an opened state file asks for, by key, as in the URL; each knob takes its own out.
        defaults: what every knob that was drawn is by default, as in the URL.
        read: the held knobs that this run has read; another source has others.
        named: what the page has written into the address for the knobs that show names; None is their default.
        wishes: the numbers of heads that were wished, by key, and those that were settled on.
        address_old: the address does not say yet what an opened state file said.
        address_lost: the last run ended because the address lacked a knob that it had carried over.
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
        acts: how many turns and clicks each component of figures has told, by its key.
        windows: the cells that a map was zoomed to, [top, bottom, left, right), by component and ``layout.uirevision``.
        watched: the film of a training that was watched last.
        seeds_run: of what many seeds are trained now; `seeds_shown` of what they were.
        grids: the table that a grid to edit began with, by its key, and how many grids there were before it.
        guesses: what was answered, by the name of the lesson.
        lessons: those of the file of lessons that was opened, by name, and what the file is called.
    """

    page: str = ""
    source: str = ""
    laid_by: dict[bool, dict[str, Any]] = field(default_factory=dict)
    kept: dict[str, Any] = field(default_factory=dict)
    turned: dict[str, Any] = field(default_factory=dict)
    asked_for: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)
    named: dict[str, str | None] = field(default_factory=dict)
    wishes: dict[str, tuple[int | None, int | None]] = field(default_factory=dict)
    address_old: bool = False
    address_lost: bool = False
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
    acts: Counter[str] = field(default_factory=Counter)
    windows: dict[str, dict[str, list[int] | None]] = field(default_factory=dict)
    grids: dict[str, tuple[pd.DataFrame, int]] = field(default_factory=dict)
    watched: Watched | None = None
    seeds_run: Plan | None = None
    seeds_shown: Plan | None = None
    guesses: dict[str, list[Any]] = field(default_factory=dict)
    lessons: dict[str, Lesson] = field(default_factory=dict)
    lessons_file: str = ""


def session() -> Session:
    """What this session remembers."""
    try:
        found: Session = st.session_state[_KEY]
    except KeyError:
        found = st.session_state[_KEY] = Session()
    return found
