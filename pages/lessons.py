"""Lessons: a path from one row of scores to a head of a real model, or the user's own lessons. Each has one idea and one question."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import streamlit as st

from attention import AttentionError, Cell, explain
from attention.base.knobs import Choice, Knob
from attention.lessons import markdown
from attention.lessons.lesson import Lesson
from attention.sources.link import source_of
from attention.sources.state import Set
from pages.ui.features import panels
from pages.ui.lessons.lesson import OPENED, LessonsOfTab, context_of, draw_lesson
from pages.ui.page import show
from pages.ui.page.start import start
from pages.ui.server.limits import LIMITS
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, show_error
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs

page = start("Lessons", "One idea, one question. Guess first; the answer follows.", maps=False, own=True)

PATH = markdown.builtin_lessons()
OURS = session().of(LessonsOfTab)
OPEN = Knob(OPENED, next(iter(PATH)), Choice((*PATH, *OURS.lessons)), inline=True)


def go(name: str) -> None:
    if name in path:
        knob_state.hold({OPENED: name})


def back_to_the_path() -> None:
    knob_state.hold({OPENED: OPEN.default, markdown.LINK_KEY: None})


def answer(sent: object) -> None:
    if message is None or done:
        return
    if (guess := grading.parse_answer(lesson, context_of(lesson), sent)) is not None:
        OURS.guesses.setdefault(lesson.name, []).append(guess)


def in_link() -> dict[str, Lesson]:
    """The question in the link, as a path of one lesson; empty if there is none."""
    try:
        return markdown.from_link(packed) if (packed := session().state.parameters.get(markdown.LINK_KEY)) else {}
    except AttentionError as error:
        show_error(str(error))
        return {}


if markdown.is_uploaded(missing := knob_state.standing(OPENED)) and missing not in OURS.lessons:
    knob_state.act(Set({OPENED: None}))
    page.notes.warn("The link shows a lesson from a file that is not here: open that file (Open a state or lessons).")
if path := in_link():
    lesson = path.get(knob_state.standing(OPENED), next(iter(path.values())))
else:
    name = Knobs(page.notes).value(OPEN)
    path = OURS.lessons if name in OURS.lessons else PATH
    lesson = path[name]

from attention.lessons import grading

number = f"{list(path).index(lesson.name) + 1}. " if len(path) > 1 else ""
st.markdown(f"## {number}{plain(lesson.title)}")
st.markdown(plain(lesson.text))


def lesson_message() -> dict[str, Any]:
    """The message to the lesson component. A function, because callbacks keep the globals of the page, which must have no trace."""
    context = context_of(lesson)
    if context.before.random:
        page.about.caption("**Random weights:** this shows the mechanism, not language.", width="content")
    page.notes.show(source_of(lesson.query_after, LIMITS)[1])
    return grading.lesson_message(lesson, context, OURS.guesses.get(lesson.name, []))


def arithmetic(cell: Cell) -> None:
    with st.expander("How this number is computed", expanded=True):
        after = context_of(lesson).after
        show.arithmetic(explain(after, cell.step, cell.layer, cell.head, cell.row, cell.column))


message, cell = None, None
try:
    with st.spinner("Computing the numbers of this lesson …"):
        message = lesson_message()
    if message["stage"] == "done":
        cell = grading.explained_cell(lesson, context_of(lesson))
except AttentionError as error:
    show_error(str(error))
done = message is not None and message["stage"] == "done"
cell_address = {"step": cell.step, "q": cell.row, "k": cell.column} if cell else {}
state = lesson.query_after | cell_address if done else lesson.query_before
has_lab_link = done or lesson.name == list(path)[-1]  # skipping the last lesson leads to the Lab
lab = f"./?{urlencode({**state, **knob_state.display_parameters()})}" if has_lab_link else ""
stories = (feature.story(lesson.query_before) for feature in panels() if done and not knob_state.is_locked())
watch = next(filter(None, stories), "")
draw_lesson(message, lesson.name, [(other.name, other.title) for other in path.values()], lab, watch, answer, go)
if cell:
    try:
        arithmetic(cell)
    except AttentionError as error:
        show_error(str(error))
if path is not PATH and not knob_state.is_locked():
    if path is OURS.lessons:
        st.caption(plain(f"These lessons are from {OURS.file}, which stays in this browser tab."))
    st.button(
        f"Back to the {len(PATH)} built-in lessons", key="lessons_path", type="tertiary", on_click=back_to_the_path
    )
page.end()
