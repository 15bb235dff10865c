"""The lesson component: small maps, the question, the reply, and the list of lessons with this browser's progress."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from pages.ui.server import assets

_HTML = """
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
_STYLE = (Path(__file__).parent / "lesson.css").read_text()
_KEY = "lesson"


@cache
def _component() -> Any:
    return assets.component("lesson", "attention_lesson", _HTML, _STYLE)


def lesson(
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
        name: the name of the lesson.
        path: the name and title of every lesson, in order.
        lab: the address of its state in the Lab; empty before the answer is shown.
        watch: the address of the Training page for its model; empty if it has no trained model.
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
    _component()(key=_KEY, data=data, on_answer_change=answered, on_go_change=went, height="content")
