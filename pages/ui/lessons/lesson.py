"""What the lessons draw: a lesson with its question, reply and list of lessons; the form that makes a question of the shown state; and the bars of a softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import streamlit as st
from streamlit.errors import StreamlitPageNotFoundError

from attention.base.errors import AttentionError, FileError
from attention.files.archives import quote
from attention.formula.names import Cell
from attention.lessons.lesson import MAX_WORDS, Lesson
from attention.lessons.markdown import LINK_KEY, MAX_LINE, MAX_OPTION, read_many, to_link, to_markdown
from attention.lessons.templates import templates, with_answer
from attention.pictures.view import STEP
from attention.sources import Source
from attention.sources.registry import source_of
from attention.sources.state import compared_state
from attention.trace.trace import Trace
from pages.ui.exports.links import small_download
from pages.ui.page.share import copy_buttons
from pages.ui.server import assets
from pages.ui.server.limits import LIMITS
from pages.ui.server.traces import trace_of, traces_of_both
from pages.ui.state import knob_state
from pages.ui.state.notices import show_error
from pages.ui.state.session import session

if TYPE_CHECKING:
    from attention.lessons.answers import QuestionContext

OPENED = "lessons_open"
"""The key of the lesson that is open."""
_LESSON_HTML = """
<div class="lesson">
  <i hidden></i>
  <div class="tables"></div>
  <form novalidate></form>
  <div class="reply" tabindex="-1"></div>
  <div class="onward"></div>
  <p class="visually-hidden" role="status" aria-live="polite"></p>
  <nav aria-label="The path of lessons"><p></p><ol></ol></nav>
</div>
"""
_KEY = "lesson"
_BARS_HTML = """
<div class="softmax-bars">
  <label>Temperature <span>low</span> <input type="range"> <span>high</span> <output></output></label>
  <div class="lines"></div>
  <p role="status"></p>
</div>
"""
_WRONG = 3  # wrong options
_REPLY = 280  # characters of a reply


@dataclass
class LessonsOfTab:
    """What a tab keeps of lessons.

    Attributes:
        guesses: the answers given, by lesson name.
        lessons: the lessons of the opened file, by name.
        file: the name of that file.
    """

    guesses: dict[str, list[Any]] = field(default_factory=dict)
    lessons: dict[str, Lesson] = field(default_factory=dict)
    file: str = ""


def context_of(lesson: Lesson) -> QuestionContext:
    """The traces of a lesson before and after its one knob changes.

    Raises:
        AttentionError: the lesson's state has no trace on this server.
    """
    from attention.lessons.answers import QuestionContext

    before, _ = source_of(lesson.query_before, LIMITS)
    after, _ = source_of(lesson.query_after, LIMITS) if lesson.turn else (before, ())
    first, second = traces_of_both(before, after) if after != before else (trace_of(before),) * 2
    return QuestionContext(first, second, *lesson.layer_and_head)


def open_file(name: str, content: bytes) -> None:
    """Opens the first of the user's own lessons in a file. Only in a callback.

    Raises:
        FileError: the file has no lessons.
    """
    kept, ours = session().of(LessonsOfTab), session()
    kept.lessons, kept.file = read_many(content), quote(name)
    knob_state.hold({OPENED: next(iter(kept.lessons)), LINK_KEY: None})
    ours.next_page = "Learn"


def first_lesson() -> None:
    """Draws the link to the first lesson for new users."""
    if not (st.context.is_embedded or knob_state.is_locked()):
        with st.container(key="first_lesson", width="content"), suppress(StreamlitPageNotFoundError):
            st.page_link("pages/learn.py", label="New here? Start with lesson 1", width="content")


def draw_lesson(
    message: Mapping[str, Any] | None,
    name: str,
    path: Sequence[tuple[str, str]],
    lab: str,
    watch: str,
    on_answer: Callable[[object], None],
    on_go: Callable[[str], None],
) -> None:
    """Draws a lesson.

    Args:
        message: the lesson's content from `attention.lessons.grading.lesson_message`; None if it cannot be shown, so that only the list is.
        path: the name and title of every lesson, in order.
        lab: the address of its state in the Lab; empty before the answer is shown.
        watch: the address of the page Train for its model; empty if it has no trained model.
        on_answer: called with the user's answer, before the page runs again.
        on_go: called with the name of the lesson that the user opens.
    """

    def answered() -> None:
        sent = st.session_state[_KEY].answer
        if isinstance(sent, dict) and sent.get("name") == name:  # otherwise a late answer to another lesson
            on_answer(sent.get("guess"))

    def went() -> None:
        on_go(str(st.session_state[_KEY].go))

    data = {"message": message, "name": name, "path": tuple(path), "lab": lab, "watch": watch}
    mount = assets.component("lesson", "attention_lesson", _LESSON_HTML)
    mount(key=_KEY, data=data, on_answer_change=answered, on_go_change=went, height="content")


def ask(source: Source, cell: Cell, missing: str) -> None:
    """Draws the form for a question about the cell, folded; `missing`: the sentence about the part of the state that no link has."""
    with st.expander("Ask about this", key="asking", on_change="rerun") as opened:
        if opened.open:
            _question_form(trace_of(source), cell, missing)


def _question_form(trace: Trace, cell: Cell, missing: str) -> None:
    if missing:
        show_error(f"A question needs a state that fits into its link, but {missing}")
        return
    # Without row and column, which would reveal the cell that the question is about.
    drafts = dict(templates(trace, cell, compared_state(knob_state.shown_texts())))
    kind = st.selectbox("Kind of question", list(drafts), key="ask_kind")
    draft = drafts[kind]
    with st.form("ask_form", border=False):
        key = f"{kind} {cell}"  # new fields for each cell
        question = st.text_input("The question", draft.question, max_chars=MAX_LINE, key=f"ask_question {key}")
        lesson, problem = _with_answer(replace(draft, question=_line(question)), key)
        with st.expander("A title, and a text before the question"):
            title = st.text_input("Title", draft.title, max_chars=100, key=f"ask_title {key}")
            text = st.text_area(
                "Text before the question", max_chars=1000, key="ask_text", help=f"At most {MAX_WORDS} words."
            )
        locked = st.toggle("Locked: no knobs, not even after the answer", key="ask_locked")
        hidden = st.toggle(
            "Hide the numbers in question until the answer: on Learn, instead of beside the map", key="ask_hidden"
        )
        is_submitted = st.form_submit_button("Create the question", type="primary")
    if is_submitted:
        try:
            if problem or not lesson.question:
                raise FileError(problem or "A question needs a text; got none: write your question.")
            _offer(replace(lesson, title=_line(title) or draft.title, text=_line(text).lstrip("- ")), locked, hidden)
        except AttentionError as error:
            show_error(str(error))


def _with_answer(draft: Lesson, key: str) -> tuple[Lesson, str]:
    """The lesson with the answer and replies from the form, and an error message or an empty text."""
    if draft.kind == "choice" and not draft.answer:
        return _options(draft)
    problem = ""
    if draft.kind == "number":
        with st.container(horizontal=True):
            if not draft.answer:
                right = st.number_input("The correct number", value=None, format="%g", key="ask_number")
                problem = "A number question needs the correct number; got none: fill it in." if right is None else ""
                draft = with_answer(draft, right or 0.0)
            tolerance = st.number_input("Tolerance (±)", 0.0, value=draft.tolerance, format="%g", key=f"ask_near {key}")
        draft = replace(draft, tolerance=float(tolerance))
    replies = dict(draft.replies)
    default = replies.pop("right", "")
    reply = _line(
        st.text_input("Your reply to a correct answer (optional)", default, max_chars=_REPLY, key=f"ask_reply {key}")
    )
    return replace(draft, replies=((("right", reply),) if reply else ()) + tuple(replies.items())), problem


def _options(draft: Lesson) -> tuple[Lesson, str]:
    """The multiple-choice question from the form, and an error message or an empty text."""
    rows: list[tuple[str, str]] = []
    for number in range(_WRONG + 1):
        with st.container(horizontal=True):
            label = f"Wrong answer {number}" if number else "Correct answer"
            option = _line(st.text_input(label, max_chars=MAX_OPTION, key=f"ask_option_{number}"))
            reply_label = f"Your reply to wrong answer {number}" if number else "Your reply to the correct answer"
            reply = _line(st.text_input(reply_label, max_chars=_REPLY, key=f"ask_reply_{number}"))
            rows.append((option, reply))
    (right, right_reply), *others = rows
    wrong = [row for row in others if row[0]]
    options = sorted((right, *(option for option, _ in wrong)), key=str.casefold)  # an order that reveals nothing
    replies = ((("right", right_reply),) if right_reply else ()) + tuple(row for row in wrong if row[1])
    problem = ""
    if not (right and wrong):
        problem = "A question needs the correct answer and at least one wrong answer; got fewer: fill in both."
    elif without_reply := next((option for option, reply in wrong if not reply), ""):
        problem = f"Each wrong answer needs a reply; “{without_reply}” has none: explain there why it is wrong."
    elif any("|" in option for option in options):
        problem = "An answer cannot contain |, which separates answers in the file: rephrase it."
    return with_answer(replace(draft, options=tuple(options), replies=replies), right), problem


def _offer(lesson: Lesson, locked: bool, hidden: bool) -> None:
    from attention.lessons import grading

    file = to_markdown(lesson)
    (read,) = read_many(file.encode()).values()
    grading.lesson_message(read, context_of(read), ())
    st.markdown("**The question is ready.** Students see the correct answer after they have answered.")
    try:
        query = {LINK_KEY: to_link(file), **({"lock": "1"} if locked else {})}
        step = next((part.step for part in lesson.show), STEP.default)
        asked = {} if step == STEP.default else {STEP.key: step}
        address = (
            f"learn?{urlencode(query)}" if hidden else f"./?{urlencode({**lesson.query_before, **asked, **query})}"
        )
        copy_buttons("ask", key="copy_ask", ask=address)
    except AttentionError as error:
        show_error(str(error))
    small_download("Save as a lesson (.md)", file, "lesson.md", "text/markdown", "share_lesson.md")
    st.caption(
        "Put several of these files one below the other into one file, and “Open a state or lessons” shows them as your own lessons."
    )


def _line(text: str | None) -> str:
    return " ".join((text or "").split())


def softmax_slider(row: tuple[float, ...], key: str) -> None:
    """Draws a row of numbers and its softmax, with a temperature slider that works in the browser."""
    from attention.lessons.softmax import MAX_TEMPERATURE, MIN_TEMPERATURE  # imports pandas

    mount = assets.component("softmax_bars", "attention_softmax_bars", _BARS_HTML)
    mount(key=key, data={"row": row, "low": MIN_TEMPERATURE, "high": MAX_TEMPERATURE}, height="content")
