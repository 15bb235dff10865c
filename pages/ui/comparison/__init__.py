"""Two states, subtracted: the page Compare, the way to it from the Lab, and a file."""

from __future__ import annotations

import streamlit as st

from attention.base.knobs import Integer
from attention.comparison.comparison import HeadIndex, compare
from attention.explanation import tables
from attention.pictures.view import HEAD, LAYER, layer_range
from attention.sources import Patchable
from attention.sources.state import State
from pages.ui.exports.catalog import CSV
from pages.ui.exports.request import Export, ExportFile, Request
from pages.ui.features import Panels, Script
from pages.ui.server.traces import traces_of_both
from pages.ui.state import knob_state
from pages.ui.state.session import session


def _difference(request: Request) -> ExportFile:
    first, other = request.source, Request(State("Compare", request.texts).other.texts, request.tab)
    source = other.source.with_other_run(first) if isinstance(other.source, Patchable) else other.source
    a, b = traces_of_both(first, source)
    cell = request.cell(a)
    layer = other.value(LAYER, layer_range(b))
    at = HeadIndex(layer, other.value(HEAD, Integer(0, b.layers[layer].n_heads - 1)))
    difference = compare(a, b, cell.step, HeadIndex(cell.layer, cell.head), at)
    pieces = tables.csv_chunks(difference.frame())
    return ExportFile(f"{cell.step}-B-minus-A.csv", pieces)


def _last_change_button() -> None:
    """Draws a button that opens Compare with the state before the last change as A and the current one as B."""
    if knob_state.is_locked() or st.context.is_embedded:
        return
    st.button(
        "What did my last change do?",
        key="last_turn",
        on_click=knob_state.open_last_change,
        disabled=len(session().recent_states) < 2,
        type="tertiary",
        help="Opens Compare: A is the state before your last change, B is the current state.",
    )


PANELS = Panels(
    scripts=(Script(40, "pages/compare.py", "Compare"),),
    exports=(Export("{step}-B-minus-A.csv", CSV, "B − A of a step of two states (`compare=`)", _difference),),
    about_lab=_last_change_button,
)
"""What this feature adds to the pages."""
