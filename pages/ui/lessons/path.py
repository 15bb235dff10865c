"""The lessons of Learn: a path from one row of scores to a head of a real model, or the user's own lessons. Each has one idea and one question."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import streamlit as st

from attention import AttentionError, explain
from attention.base.knobs import Choice, Knob
from attention.lessons import markdown
from attention.lessons.lesson import Lesson
from attention.sources.link import source_of
from attention.sources.state import Set
from pages.ui.features import panels
from pages.ui.lessons.lesson import OPENED, LessonsOfTab, context_of, draw_lesson
from pages.ui.page import show
from pages.ui.server.limits import LIMITS
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, show_error
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pages.ui.page.start import Page


def _go(path: Mapping[str, Lesson], name: str) -> None:
    if name in path:
        knob_state.hold({OPENED: name})


def _back_to_the_path() -> None:
    knob_state.hold({OPENED: next(iter(markdown.builtin_lessons())), markdown.LINK_KEY: None})


def _in_link() -> Mapping[str, Lesson]:
    """The question in the link, as a path of one lesson; empty if there is none."""
    try:
        return markdown.from_link(packed) if (packed := session().state.parameters.get(markdown.LINK_KEY)) else {}
    except AttentionError as error:
        show_error(str(error))
        return {}


def _opened(page: Page, builtin: Mapping[str, Lesson]) -> tuple[Mapping[str, Lesson], Lesson]:
    """The path that is open, and its lesson."""
    ours = session().of(LessonsOfTab)
    if markdown.is_uploaded(missing := knob_state.standing(OPENED)) and missing not in ours.lessons:
        knob_state.act(Set({OPENED: None}))
        page.notes.warn(
            "The link shows a lesson from a file that is not here: open that file (Open a state or lessons)."
        )
    if path := _in_link():
        return path, path.get(knob_state.standing(OPENED), next(iter(path.values())))
    name = Knobs(page.notes).value(Knob(OPENED, next(iter(builtin)), Choice((*builtin, *ours.lessons)), inline=True))
    path = ours.lessons if name in ours.lessons else builtin
    return path, path[name]


def draw(page: Page) -> None:
    """Draws the open lesson, with the list of all."""
    from attention.lessons import grading  # with torch

    builtin, ours = markdown.builtin_lessons(), session().of(LessonsOfTab)
    path, lesson = _opened(page, builtin)
    number = f"{list(path).index(lesson.name) + 1}. " if len(path) > 1 else ""
    st.markdown(f"## {number}{plain(lesson.title)}")
    st.markdown(plain(lesson.text))
    message, cell = None, None
    try:
        with st.spinner("Computing the numbers of this lesson …"):
            context = context_of(lesson)
            if context.before.random:
                page.about.caption("**Random weights:** this shows the mechanism, not language.", width="content")
            page.notes.show(source_of(lesson.query_after, LIMITS)[1])
            message = grading.lesson_message(lesson, context, ours.guesses.get(lesson.name, []))
        if message["stage"] == "done":
            cell = grading.explained_cell(lesson, context)
    except AttentionError as error:
        show_error(str(error))
    done = message is not None and message["stage"] == "done"
    can_answer = message is not None and not done

    def answer(sent: object) -> None:
        if can_answer and (guess := grading.parse_answer(lesson, context_of(lesson), sent)) is not None:
            ours.guesses.setdefault(lesson.name, []).append(guess)

    cell_address = {"step": cell.step, "q": cell.row, "k": cell.column} if cell else {}
    state = lesson.query_after | cell_address if done else lesson.query_before
    has_lab_link = done or lesson.name == list(path)[-1]  # skipping the last lesson leads to the Lab
    lab = f"./?{urlencode({**state, **knob_state.display_parameters()})}" if has_lab_link else ""
    stories = (feature.story(lesson.query_before) for feature in panels() if done and not knob_state.is_locked())
    watch = next(filter(None, stories), "")
    titles = [(other.name, other.title) for other in path.values()]
    draw_lesson(message, lesson.name, titles, lab, watch, answer, partial(_go, path))
    if cell:
        try:
            with st.expander("How this number is computed", expanded=True):
                show.arithmetic(
                    explain(context_of(lesson).after, cell.step, cell.layer, cell.head, cell.row, cell.column)
                )
        except AttentionError as error:
            show_error(str(error))
    if path is not builtin and not knob_state.is_locked():
        if path is ours.lessons:
            st.caption(plain(f"These lessons are from {ours.file}, which stays in this browser tab."))
        st.button(
            f"Back to the {len(builtin)} built-in lessons",
            key="lessons_path",
            type="tertiary",
            on_click=_back_to_the_path,
        )
