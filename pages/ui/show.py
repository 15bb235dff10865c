"""The one place that draws: figures through the figure component, tables, and arithmetic."""

from __future__ import annotations

from collections.abc import Callable

import plotly.graph_objects as go
import streamlit as st

from pages.ui import figure


def figures(drawn: list[go.Figure], key: str, on_click: Callable[[str, int, int], None]) -> None:
    """Draws figures side by side, one under the other where the screen is narrow.

    A click calls `on_click(step, x, y)` with the place on the map, before the page runs again.
    """

    def clicked() -> None:
        cell = st.session_state[key].cell
        if cell:
            on_click(str(cell["step"]), int(cell["x"]), int(cell["y"]))

    figure.component()(key=key, data=figure.pack(drawn), on_cell_change=clicked)
