"""After two server crashes with the same state, the user must confirm before that state runs again."""

from __future__ import annotations

import streamlit as st

from pages.ui import address
from pages.ui.page import copy_buttons
from pages.ui.state import knob_state
from pages.ui.state.session import reset_session, session

_KEY = "paused"  # in the address, written by pages/ui/patches/crash_guard.js


def ask_first(title: str) -> None:
    """Shows a confirmation and stops, before any knob is read, if the address says that its state crashed two servers."""
    if _KEY not in session().address:
        return
    with st.container(key="page_head"):
        st.title("Attention Lab" if title == "Lab" else title, anchor=False)
    st.warning(
        "The server stopped twice in a row while it computed the state of this link, so the page did not try a third time. "
        "Try again, or open the page with its default settings."
    )
    with st.container(horizontal=True):
        st.button("Try again", key="paused_again", on_click=_try_again)
        st.button("Open with default settings", key="paused_default", on_click=_open_default, type="primary")
    copy_buttons.mount_without_buttons(title)
    address.send_state(title, unread=True)
    st.stop()


def _try_again() -> None:
    del session().address[_KEY]


def _open_default() -> None:
    reset_session(knob_state.display_parameters())
