"""Lessons: a path from one row of scores to a head of a real model, or a person's own. One idea, one question; the answer comes after yours."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import streamlit as st

from attention import AttentionError, Cell, explain
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice
from attention.lessons import asked, files
from attention.lessons.lesson import Lesson
from attention.sources.link import source_of
from pages.ui import show
from pages.ui.knobs import inputs
from pages.ui.knobs.session import acted, session
from pages.ui.knobs.table import LIMITS
from pages.ui.knobs.widgets import Knobs, locked
from pages.ui.lesson import lesson as draw
from pages.ui.notes import plain
from pages.ui.server.traces import seen_of
from pages.ui.share.state_file import OPENED
from pages.ui.start import start

page = start("Lessons", "One idea, one question. Guess first: the answer comes after yours.", maps=False, own=True)

PATH = files.path()
OPEN = Knob(OPENED, next(iter(PATH)), Choice((*PATH, *session().lessons)), held=True)


def go(name: str) -> None:
    if name in path:
        acted()
        st.session_state[OPENED] = name


def back_to_the_path() -> None:
    acted()
    st.session_state[OPENED] = OPEN.default
    session().address.pop(asked.KEY, None)


def answer(sent: object) -> None:
    if message is None or done:
        return
    if (guess := asking.accepted(lesson, seen_of(lesson), sent)) is not None:
        session().guesses.setdefault(lesson.name, []).append(guess)


def in_link() -> dict[str, Lesson]:
    """The question that the link asks, if it asks one."""
    try:
        return asked.unpacked(sent) if (sent := session().address.get(asked.KEY)) else {}
    except AttentionError as error:
        show.problem(str(error))
        return {}


if files.is_own(missing := session().asked_for.get(OPENED, "")) and missing not in session().lessons:
    del session().asked_for[OPENED]
    page.notes.keep("The link shows a lesson of a file that is not here: open that file (Open a state or lessons).")
if path := in_link():
    lesson = path.get(st.session_state.get(OPENED, ""), next(iter(path.values())))
else:
    name = Knobs(page.notes).value(OPEN)
    path = session().lessons if name in session().lessons else PATH
    lesson = path[name]

from attention.lessons import asking
from pages.ui import film

number = f"{list(path).index(lesson.name) + 1}. " if len(path) > 1 else ""
st.markdown(f"## {number}{plain(lesson.title)}")
st.markdown(plain(lesson.text))


def told() -> dict[str, Any]:
    """What the browser is told. The traces have no name of the page itself: its callbacks keep those as long as its tab is open."""
    seen = seen_of(lesson)
    if seen.before.random:
        page.about.caption("**Random weights:** this shows the mechanism, not language.", width="content")
    page.notes.say(source_of(lesson.link_turned, LIMITS)[1])
    return asking.told(lesson, seen, session().guesses.get(lesson.name, []))


def arithmetic(cell: Cell) -> None:
    with st.expander("How this number came about", expanded=True):
        after = seen_of(lesson).after
        show.arithmetic(explain(after, cell.step, cell.layer, cell.head, cell.row, cell.column))


message, cell = None, None
try:
    with st.spinner("Making the numbers of this lesson …"):
        message = told()
    if message["stage"] == "done":
        cell = asking.cell_of(lesson, seen_of(lesson))
except AttentionError as error:
    show.problem(str(error))
done = message is not None and message["stage"] == "done"
there = {"step": cell.step, "q": cell.row, "k": cell.column} if cell else {}
state = lesson.link_turned | there if done else lesson.link
skips = done or lesson.name == list(path)[-1]  # who skips the last one goes on in the Lab
lab = f"./?{urlencode({**state, **inputs.modes()})}" if skips else ""
watch = film.link(lesson.link) if done and not locked() else ""
draw(message, lesson.name, [(one.name, one.title) for one in path.values()], lab, watch, answer, go)
if cell:
    try:
        arithmetic(cell)
    except AttentionError as error:
        show.problem(str(error))
if path is not PATH and not locked():
    if path is session().lessons:
        st.caption(plain(f"These are the lessons of {session().lessons_file}, which stays in this browser tab."))
    st.button(f"To the path of {len(PATH)} lessons", key="lessons_path", type="tertiary", on_click=back_to_the_path)
page.end()
