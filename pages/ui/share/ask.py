"""Ask about this: a question about the shown state, as a link or as a Markdown file."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import streamlit as st

from attention import AttentionError, Cell, FileError, Trace
from attention.lessons import link_codec
from attention.lessons.lesson import MAX_WORDS, Lesson
from attention.lessons.markdown import MAX_LINE, MAX_OPTION, read_many, to_markdown
from attention.lessons.templates import templates, with_answer
from attention.sources import second_state
from pages.ui.exports.links import small_download
from pages.ui.server.traces import context_of
from pages.ui.share import link
from pages.ui.state import knob_state
from pages.ui.state.notices import show_error

_WRONG = 3  # wrong options
_REPLY = 280  # characters of a reply


def question_form(trace: Trace, cell: Cell, missing: str) -> None:
    """Draws the form for a question and, when it is submitted, the link and the file.

    Args:
        trace: the trace of the shown state.
        cell: the chosen cell.
        missing: the sentence about the part of the state that no link has; empty if the link is complete.
    """
    if missing:
        show_error(f"A question needs a state that fits into its link, but {missing}")
        return
    # Without row and column, which would reveal the cell that the question is about.
    drafts = {
        template.label: template.lesson
        for template in templates(trace, cell, second_state.compared_state(knob_state.state()))
    }
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
        is_submitted = st.form_submit_button("Create the question", type="primary")
    if is_submitted:
        try:
            if problem or not lesson.question:
                raise FileError(problem or "A question needs a text; got none: write your question.")
            _offer(replace(lesson, title=_line(title) or draft.title, text=_line(text).lstrip("- ")), locked)
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


def _offer(lesson: Lesson, locked: bool) -> None:
    """Draws the buttons for the link and the file of the question.

    Raises:
        AttentionError: the question cannot be shown on this server.
    """
    from attention.lessons import grading

    file = to_markdown(lesson)
    (read,) = read_many(file.encode()).values()
    grading.lesson_message(read, context_of(read), ())
    st.markdown("**The question is ready.** Students see the correct answer after they have answered.")
    try:
        query = {link_codec.KEY: link_codec.encode(file), **({"lock": "1"} if locked else {})}
        link.copy_buttons("ask", "try", key="copy_ask", ask=urlencode(query))
    except AttentionError as error:
        show_error(str(error))
    small_download("Save as a lesson (.md)", file, "lesson.md", "text/markdown", "share_lesson.md")
    st.caption(
        "Put several of these files one below the other into one file, and “Open a state or lessons” shows them as your own lessons."
    )


def _line(text: str | None) -> str:
    """The text as one line."""
    return " ".join((text or "").split())
