"""Lessons: a path from one row of scores to a head of a real model. One idea, one question; the answer comes after yours."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import streamlit as st

from attention import AttentionError, Cell, explain
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice
from attention.lessons import lesson as lessons
from pages.ui import show
from pages.ui.knobs.session import session
from pages.ui.knobs.widgets import Knobs, went_back
from pages.ui.lesson import lesson as draw
from pages.ui.server.traces import seen_of
from pages.ui.start import start

page = start("Lessons", "One idea, one question. Guess first: the answer comes after yours.", maps=False, own=True)

PATH = lessons.path()
OPEN = Knob("lessons_open", next(iter(PATH)), Choice(tuple(PATH)), held=True)


def go(name: str) -> None:
    if name in PATH:
        st.session_state[OPEN.key] = name


def answer(sent: object) -> None:
    if message is None or done:
        return
    if (guess := asking.accepted(lesson, seen_of(lesson), sent)) is not None:
        session().guesses.setdefault(lesson.name, []).append(guess)


if went_back():
    st.session_state.pop(OPEN.key, None)
lesson = PATH[Knobs(page.notes).value(OPEN)]
if lesson.name != OPEN.default:
    st.query_params[OPEN.key] = lesson.name
elif OPEN.key in st.query_params:
    del st.query_params[OPEN.key]

from attention.lessons import asking

st.markdown(f"## {list(PATH).index(lesson.name) + 1}. {lesson.title}")
st.markdown(lesson.text)


def told() -> dict[str, Any]:
    """What the browser is told. The traces have no name of the page itself: its callbacks keep those as long as its tab is open."""
    seen = seen_of(lesson)
    if seen.before.random:
        page.about.caption("**Random weights:** this shows the mechanism, not language.", width="content")
    return asking.told(lesson, seen, session().guesses.get(lesson.name, []))


def arithmetic(cell: Cell) -> None:
    with st.expander("How this number came about", expanded=True):
        after = seen_of(lesson).after
        show.arithmetic(explain(after, cell.step, cell.layer, cell.head, cell.row, cell.column))


message = None
try:
    with st.spinner("Making the numbers of this lesson …"):
        message = told()
except AttentionError as error:
    show.problem(str(error))
done = message is not None and message["stage"] == "done"
cell = asking.cell_of(lesson, seen_of(lesson)) if done else None
there = {"step": cell.step, "q": cell.row, "k": cell.column} if cell else {}
lab = f"./?{urlencode(lesson.link_turned | there)}" if done else ""
draw(message, lesson.name, [(one.name, one.title) for one in PATH.values()], lab, answer, go)
if cell:
    arithmetic(cell)
