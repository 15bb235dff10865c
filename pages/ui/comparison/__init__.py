"""Two states, subtracted: what Explore draws while it compares, the ways there and back, and a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from attention.base.knobs import Integer
from attention.comparison.comparison import HeadIndex, compare
from attention.explanation import tables
from attention.pictures.view import HEAD, LAYER, layer_range
from attention.sources import Intervenable
from attention.sources.state import COMPARE, OPENING, State
from pages.ui.exports.catalog import CSV
from pages.ui.exports.request import Export, ExportFile, Request
from pages.ui.features import Panels
from pages.ui.server.traces import traces_of_both
from pages.ui.state import knob_state
from pages.ui.state.session import session

if TYPE_CHECKING:
    from collections.abc import Callable

    from pages.ui.page.start import Page


def _difference(request: Request) -> ExportFile:
    first, other = request.source, Request(State(texts={COMPARE: OPENING, **request.texts}).other.texts, request.tab)
    source = other.source.with_other_run(first) if isinstance(other.source, Intervenable) else other.source
    a, b = traces_of_both(first, source)
    cell = request.cell(a)
    layer = other.value(LAYER, layer_range(b))
    at = HeadIndex(layer, other.value(HEAD, Integer(0, b.layers[layer].n_heads - 1)))
    difference = compare(a, b, cell.step, HeadIndex(cell.layer, cell.head), at)
    pieces = tables.csv_chunks(difference.frame())
    return ExportFile(f"{cell.step}-B-minus-A.csv", pieces)


def _buttons() -> None:
    """Draws the button that compares the state with a second one, or leaves them, and one that compares it with itself before the last change."""
    if knob_state.is_locked() or st.context.is_embedded:
        return
    if session().state.compares:
        st.button("Back to one state", key="compare_leave", on_click=knob_state.leave_comparison, type="tertiary", help="A stays, B goes.")  # fmt: skip
    else:
        st.button("Compare with …", key="compare_with", on_click=knob_state.compare, type="tertiary", help="Two states side by side, A and B, and what differs: another text, head, mask or temperature.")  # fmt: skip
    st.button(
        "What did my last change do?",
        key="last_turn",
        on_click=knob_state.open_last_change,
        disabled=len(session().recent_states) < 2,
        type="tertiary",
        help="A is the state before your last change, B is the current state.",
    )


def _draw(page: Page) -> Callable[[], None]:
    from pages.ui.comparison import two_states  # with torch

    return two_states.draw(page)


PANELS = Panels(
    exports=(Export("{step}-B-minus-A.csv", CSV, "B − A of a step of two states (`compare=`)", _difference),),
    about_explore=_buttons,
    two_states=_draw,
)
"""What this feature adds to the pages."""
