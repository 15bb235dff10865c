"""What differs between two results over many texts."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from pages.ui.page.head_page_panel import Shown
from pages.ui.page.start import Page


def difference_section(page: Page, shown: Shown, open_head: Callable[[int, int], None]) -> None:
    """Draws what changed most."""
    st.caption("…")
