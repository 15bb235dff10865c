"""Learn: a path of lessons, and a chapter on softmax and one on masks."""

from __future__ import annotations

import streamlit as st

from attention.base.knobs import Choice, Knob
from pages.ui.page.start import start
from pages.ui.state import knob_state
from pages.ui.state.widgets import Knobs

CHAPTER = Knob("chapter", "lessons", Choice(("lessons", "softmax", "masks")), inline=True)
OF_A_SOURCE = ("softmax", "masks")

page = start(
    "Learn",
    "One idea, one question. Guess first; the answer follows.",
    maps=False,
    own=lambda: knob_state.standing(CHAPTER.key) not in OF_A_SOURCE,
)

from pages.ui.lessons import chapters, path

chapter = Knobs(page.notes).value(CHAPTER)
if not knob_state.is_locked():
    with st.container(horizontal=True, gap="small", key="learn_chapters"):
        for name in ("lessons", *OF_A_SOURCE):
            kind, change = "primary" if name == chapter else "secondary", ({CHAPTER.key: name},)
            st.button(name.capitalize(), key=f"learn_{name}", type=kind, on_click=knob_state.hold, args=change)  # type: ignore[arg-type]  # one of two
{
    "lessons": path.draw,
    "softmax": chapters.softmax_chapter,
    "masks": chapters.masks_chapter,
}[chapter](page)
page.end()
