"""The lessons of Learn: a path from one row of scores to a head of a real model, or the user's own lessons. Each has one idea and one question."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import streamlit as st

from attention import AttentionError, Cell, explain
from attention.base.knobs import Choice, Knob
from attention.lessons import markdown
from attention.lessons.lesson import Lesson
from attention.pictures.view import KEY, QUERY
from attention.sources.registry import source_of
from attention.sources.state import Set
from pages.ui.features import panels
from pages.ui.lessons.lesson import OPENED, LessonsOfTab, context_of, draw_lesson
from pages.ui.page import show
from pages.ui.server.limits import LIMITS
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, show_error
from pages.ui.state.session import count_action, session
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
    builtin, ours = markdown.builtin_lessons(), session().of(LessonsOfTab)
    path, lesson = _opened(page, builtin)
    number = f"{list(path).index(lesson.name) + 1}. " if len(path) > 1 else ""
    st.markdown(f"## {number}{plain(lesson.title)}")
    st.markdown(plain(lesson.text))
    message, cell = _message(lesson)
    if message:
        page.notes.show(source_of(lesson.query_after, LIMITS)[1])
        if context_of(lesson).before.random:
            page.about.caption("**Random weights:** this shows the mechanism, not language.", width="content")
    done = message is not None and message["stage"] == "done"
    stories = (feature.story(lesson.query_before) for feature in panels() if done and not knob_state.is_locked())
    has_lab_link = done or lesson.name == list(path)[-1]  # skipping the last lesson leads to the Lab
    lab = _lab(lesson, cell, done) if has_lab_link else ""
    titles = [(other.name, other.title) for other in path.values()]
    draw_lesson(
        message,
        lesson.name,
        titles,
        lab,
        next(filter(None, stories), ""),
        partial(_answer, lesson, message),
        partial(_go, path),
    )
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


def beside_maps(page: Page) -> None:
    """Draws the question in the link beside the large map, which shows its numbers; nothing if there is none."""
    path = _in_link()
    if not path:
        return
    lesson = path.get(knob_state.standing(OPENED), next(iter(path.values())))
    with st.container(key="asked"):
        st.caption(plain(lesson.title))
        if lesson.text:
            st.markdown(plain(lesson.text))
        message, cell = _message(lesson)
        if message:  # the large map stands for the tables, and its chosen cell for a cell to tap
            message["figures"] = []
            if lesson.kind == "cell":
                has_chosen = session().state.texts.keys() & {QUERY.key, KEY.key}
                message["chosen"] = (
                    [knob_state.current_value(key) for key in (QUERY.key, KEY.key)] if has_chosen else None
                )
        done = message is not None and message["stage"] == "done"
        lab = _lab(lesson, cell, done) if done and lesson.turn else ""
        draw_lesson(
            message,
            lesson.name,
            [(lesson.name, lesson.title)],
            lab,
            "",
            partial(_answer, lesson, message),
            partial(_go, path),
        )
        if message and not _shows(page, lesson):
            st.caption("The question is about another state than the maps.")
            st.button("Back to its state", key="asked_state", on_click=_restore, args=(lesson,))
        if not knob_state.is_locked():
            st.button("Close the question", key="asked_close", type="tertiary", on_click=_close)


def _message(lesson: Lesson) -> tuple[dict[str, Any] | None, Cell | None]:
    """The message of a lesson, and once it is answered the cell that explains it; None, with the error on the page, for what it lacks."""
    from attention.lessons import grading  # with torch

    message, cell = None, None
    try:
        with st.spinner("Computing the numbers of this lesson …"):
            context = context_of(lesson)
            message = grading.lesson_message(lesson, context, session().of(LessonsOfTab).guesses.get(lesson.name, []))
        if message["stage"] == "done":
            cell = grading.explained_cell(lesson, context)
    except AttentionError as error:
        show_error(str(error))
    return message, cell


def _answer(lesson: Lesson, message: Mapping[str, Any] | None, sent: object) -> None:
    from attention.lessons import grading

    is_open = message is not None and message["stage"] != "done"
    if is_open and (guess := grading.parse_answer(lesson, context_of(lesson), sent)) is not None:
        session().of(LessonsOfTab).guesses.setdefault(lesson.name, []).append(guess)


def _lab(lesson: Lesson, cell: Cell | None, done: bool) -> str:
    """The address of a lesson's state on Explore, after its change once it is answered."""
    state = lesson.query_after if done else lesson.query_before
    chosen = {"step": cell.step, "q": cell.row, "k": cell.column} if cell else {}
    return f"./?{urlencode({**state, **chosen, **knob_state.display_parameters()})}"


def _shows(page: Page, lesson: Lesson) -> bool:
    """Whether the maps of a page show the state of a lesson."""
    return (page.source, (page.cell.layer, page.cell.head)) == (
        source_of(lesson.query_before, LIMITS)[0],
        lesson.layer_and_head,
    )


def _restore(lesson: Lesson) -> None:
    parameters = session().state.parameters
    knob_state.restore_state(
        {**lesson.query_before, **knob_state.display_parameters(), markdown.LINK_KEY: parameters[markdown.LINK_KEY]}
    )
    count_action()


def _close() -> None:
    knob_state.hold({markdown.LINK_KEY: None})
