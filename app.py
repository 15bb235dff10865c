"""Explore: every step between a text and the output of attention, and how each number is computed."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import streamlit as st

from attention import AttentionError, explain
from attention.explanation import tables
from attention.pictures import steps_view
from attention.pictures.steps_view import derived_view, lab_maps
from attention.pictures.view import PAIR, has_patches, overview_steps
from attention.sources.state import START
from attention.trace.trace import PICTURE
from pages.ui import application
from pages.ui.features import panels
from pages.ui.page import explore, predictions_panel, show
from pages.ui.page.start import start
from pages.ui.state import knob_state
from pages.ui.state.notices import plain
from pages.ui.state.session import session


def pick_cell(step: str, x: int, y: int) -> None:
    if step == explore.TOGGLED:
        with suppress(AttentionError):  # what was clicked is gone
            explore.toggle_mask(page.with_pending_changes(), y, x)
        return
    current = knob_state.current_cell(page.trace)
    knob_state.choose_cell(steps_view.cell_of_click(page.trace, current, step, y, x), page.layer)


@st.fragment
def maps() -> None:
    """Draws the maps. A changed control or a click redraws them before the rest of the page runs."""
    current = page.for_fragment()
    view, colors, pair = map(knob_state.current_value, ("view", "colors", PAIR.key))
    figures = lab_maps(current.trace, current.cell, view, colors, current.over_picture, pair)
    steps = overview_steps(tuple(step.name for step in current.layer.steps), current.layer.keeps_maps)
    around = current.around(steps=True, line=True, overview=steps, follow=True)
    screen = explore.screen(current.trace, current.cell, type(current.source).__name__, around.live)
    screen["maskable"] = not knob_state.is_locked() and "mask" in {control["name"] for control in around.controls}
    around = replace(around, screen=screen)
    show.figures(figures, "lab_maps", pick_cell, around, explore.apply, rest=True, export="maps")


if __name__ == "app":  # imported by the server at its start; each run of the page is "__main__"
    app = st.App(__file__, **application.parts())
else:
    page = start(START, "")
    with st.container(key="explore"):
        for feature in panels():
            feature.beside_maps(page)
        compares = session().state.compares
        draw = next(feature.two_states for feature in panels() if feature.two_states) if compares else None
        below = draw(page) if draw else maps()
    with st.container(horizontal=True, gap=None, key="page_about"):
        for feature in panels():
            feature.about_explore()
        if has_patches(page.layer):
            noun = next((seen.noun for seen in page.trace.pictures), PICTURE)
            st.caption(
                f"Double-click a part of the {noun}, or a token above it, to make it the query.", width="content"
            )
    if below:
        below()
        page.end()
        st.stop()
    for feature in panels():
        feature.below_maps(page)
    predictions_panel.panel(page)
    cell = page.cell
    with st.expander("How this number is computed, in full", expanded=True):
        show.arithmetic(explain(page.trace, cell.step, cell.layer, cell.head, cell.row, cell.column))
        try:
            shown = derived_view(page.trace, cell, knob_state.current_value("view"))
        except AttentionError as error:
            shown = None
            st.caption(plain(str(error)))
        if shown is not None:
            shown_view, derived = shown
            show.arithmetic(derived.explain(page.trace, cell))
            st.caption(plain(f"{derived.words} {derived.paper}. {shown_view.caution}"))
    st.markdown(f"## All numbers of `{cell.step}`")
    rows, columns = page.layer.shape(cell.step)[-2:]
    show.table(
        lambda: tables.frame(page.trace, cell.step, cell.layer, cell.head),
        rows * columns,
        f"{cell.step}.csv",
    )
    page.end()
