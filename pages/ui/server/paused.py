"""A state under which the server died twice is not run again by itself: its person is asked."""

from __future__ import annotations

import streamlit as st

from pages.ui import address
from pages.ui.knobs import inputs
from pages.ui.knobs.session import begin_anew, session
from pages.ui.share import link

_KEY = "paused"  # in the address, written by pages/ui/patches/paused.js


def ask_first(title: str) -> None:
    """Where the address says that its state has cost two servers, says so and stops, before anything of it is read."""
    if _KEY not in session().address:
        return
    with st.container(key="page_head"):
        st.title("Attention Lab" if title == "Lab" else title, anchor=False)
    st.warning(
        "Twice in a row the server went away while it worked out what this address asks for, so it is not asked by itself: "
        "try again, or open the page as it is by default."
    )
    with st.container(horizontal=True):
        st.button("Try again", key="paused_again", on_click=_go_on)
        st.button("Open the default", key="paused_default", on_click=_begin_anew, type="primary")
    link.watch(title)
    address.answer(title, unread=True)
    st.stop()


def _go_on() -> None:
    del session().address[_KEY]


def _begin_anew() -> None:
    begin_anew(inputs.modes())
