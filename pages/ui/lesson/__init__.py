"""The component of a lesson: its small maps, its question, the reply, and the path with what this browser has done of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from pages.ui.server import served

_HTML = """
<div class="lesson">
  <i hidden></i>
  <div class="tables"></div>
  <form novalidate></form>
  <div class="reply" tabindex="-1"></div>
  <div class="onward"></div>
  <p class="spoken" role="status" aria-live="polite"></p>
  <nav aria-label="The path of lessons"><p></p><ol></ol></nav>
</div>
"""
_STYLE = (Path(__file__).parent / "lesson.css").read_text()
_KEY = "lesson"


@cache
def _component() -> Any:
    return served.component("lesson", "attention_lesson", _HTML, _STYLE)


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
        message: what `attention.lessons.asking.told` tells of it; None: it cannot be shown here, and only the path is.
        name: of the lesson.
        path: the name and the title of every lesson, in their order.
        lab: the address of its state in the Lab, once the answer is shown.
        watch: the address of the page on which its model learns, if it is one that does.
        on_answer: is told what somebody has answered, before the page runs again; `on_go` to which lesson they go.
    """

    def answered() -> None:
        sent = st.session_state[_KEY].answer
        if isinstance(sent, dict) and sent.get("name") == name:  # another one's is late
            on_answer(sent.get("guess"))

    def went() -> None:
        on_go(str(st.session_state[_KEY].go))

    data = {"message": message, "name": name, "path": tuple(path), "lab": lab, "watch": watch}
    _component()(key=_KEY, data=data, on_answer_change=answered, on_go_change=went, height="content")
