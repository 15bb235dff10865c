"""What differs between two results over many texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import streamlit as st

from pages.ui.page.start import Page

if TYPE_CHECKING:
    from attention.corpus.heads_result import HeadsResult


def difference_section(
    page: Page,
    result: HeadsResult,
    other: HeadsResult,
    metric: str,
    names: tuple[str, str],
    open_head: Callable[[int, int], None],
) -> None:
    """Draws what changed most."""
    st.caption("…")
