"""Ask about this: a question about what is shown, as a link that asks it, or as a Markdown file."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import streamlit as st

from attention import AttentionError, Cell, FileError, Trace
from attention.lessons import asked
from attention.lessons.drafts import decided, drafts
from attention.lessons.files import LONGEST, LONGEST_OPTION, several, written
from attention.lessons.lesson import MOST_WORDS, Lesson
from attention.sources import second
from pages.ui import show
from pages.ui.exports.links import small
from pages.ui.knobs import inputs
from pages.ui.server.traces import seen_of
from pages.ui.share import link

_WRONG = 3  # options beside the right one
_REPLY = 280  # characters; its line in the file begins with what it replies to


def form(trace: Trace, cell: Cell, missing: str) -> None:
    """What a teacher fills in, and then the link and the file; `missing` says what no link holds of the state."""
    if missing:
        show.problem(f"A question needs a state that its link holds whole, but {missing}")
        return
    # Without the row and the column, which would give away the cell that is asked about.
    there = {one.label: one.lesson for one in drafts(trace, cell, second.compared(inputs.state()))}
    kind = st.selectbox("What do you ask?", list(there), key="ask_kind")
    draft = there[kind]
    with st.form("ask_form", border=False):
        about = f"{kind} {cell}"  # another cell, another question
        question = st.text_input("The question", draft.question, max_chars=LONGEST, key=f"ask_question {about}")
        lesson, problem = _answered(replace(draft, question=_line(question)), about)
        with st.expander("A title, and words before the question"):
            title = st.text_input("Title", draft.title, max_chars=100, key=f"ask_title {about}")
            text = st.text_area("Words before it", max_chars=1000, key="ask_text", help=f"At most {MOST_WORDS} words.")
        locked = st.toggle("Locked: without knobs, afterwards too", key="ask_locked")
        made = st.form_submit_button("Make the question", type="primary")
    if made:
        try:
            if problem or not lesson.question:
                raise FileError(problem or "A question has words; got none: write what you ask.")
            _offer(replace(lesson, title=_line(title) or draft.title, text=_line(text).lstrip("- ")), locked)
        except AttentionError as error:
            show.problem(str(error))


def _answered(draft: Lesson, about: str) -> tuple[Lesson, str]:
    """The lesson with what its fields say of the answer and the replies, and what is missing there."""
    if draft.kind == "choice" and not draft.answer:
        return _options(draft)
    problem = ""
    if draft.kind == "number":
        with st.container(horizontal=True):
            if not draft.answer:
                right = st.number_input("The right number", value=None, format="%g", key="ask_number")
                problem = "A question with a number has a right one; got none: write it." if right is None else ""
                draft = decided(draft, right or 0.0)
            near = st.number_input("May miss by", 0.0, value=draft.tolerance, format="%g", key=f"ask_near {about}")
        draft = replace(draft, tolerance=float(near))
    said = dict(draft.replies)
    usual = said.pop("right", "")
    reply = _line(
        st.text_input("Your reply to the right answer (optional)", usual, max_chars=_REPLY, key=f"ask_reply {about}")
    )
    return replace(draft, replies=((("right", reply),) if reply else ()) + tuple(said.items())), problem


def _options(draft: Lesson) -> tuple[Lesson, str]:
    """A question with options: the right one, and others, each with what one learns who chose it."""
    rows: list[tuple[str, str]] = []
    for number in range(_WRONG + 1):
        with st.container(horizontal=True):
            name = f"A wrong one ({number})" if number else "The right answer"
            option = _line(st.text_input(name, max_chars=LONGEST_OPTION, key=f"ask_option_{number}"))
            to = f"Your reply ({number})" if number else "Your reply to it"
            reply = _line(st.text_input(to, max_chars=_REPLY, key=f"ask_reply_{number}"))
            rows.append((option, reply))
    (right, praise), *others = rows
    wrong = [row for row in others if row[0]]
    options = sorted((right, *(option for option, _ in wrong)), key=str.casefold)  # so that their order says nothing
    replies = ((("right", praise),) if praise else ()) + tuple(row for row in wrong if row[1])
    problem = ""
    if not (right and wrong):
        problem = "A question has a right answer and at least a wrong one; got fewer: write both."
    elif mute := next((option for option, reply in wrong if not reply), ""):
        problem = f"Each wrong answer has a reply of its own; “{mute}” has none: write what one learns who chose it."
    elif any("|" in option for option in options):
        problem = "An answer has no |, which stands between two of them in a file: write it in other words."
    return decided(replace(draft, options=tuple(options), replies=replies), right), problem


def _offer(lesson: Lesson, locked: bool) -> None:
    """The link that asks it, and its file.

    Raises:
        AttentionError: it cannot be asked here.
    """
    from attention.lessons import asking

    file = written(lesson)
    (read,) = several(file.encode()).values()
    asking.told(read, seen_of(read), ())
    st.markdown("**The question is made.** Who opens it sees the answer after their own.")
    try:
        query = {asked.KEY: asked.packed(file), **({"lock": "1"} if locked else {})}
        link.buttons("ask", "try", key="copy_ask", ask=urlencode(query))
    except AttentionError as error:
        show.problem(str(error))
    small("Save as a lesson (.md)", file, "lesson.md", "text/markdown", "share_lesson.md")
    st.caption("Several of these files, one below the other in one, are a path of your own: “Open a state or lessons”.")


def _line(text: str | None) -> str:
    """A text as one line."""
    return " ".join((text or "").split())
