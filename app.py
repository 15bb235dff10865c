"""The Lab: what happens between a text and the output of attention, and how did this number come about?"""

from __future__ import annotations

import streamlit as st

from attention import explain
from attention.formula.names import WEIGHTS
from attention.numbers import norms, tables
from attention.numbers.norms import NORMS
from attention.pictures import factors
from attention.pictures.view import overview
from pages.ui import predictions, show
from pages.ui.knobs import inputs, second
from pages.ui.lab_maps import lab_maps, shows_norms
from pages.ui.server import application
from pages.ui.start import first_lesson, start


def pick_cell(step: str, x: int, y: int) -> None:
    now = inputs.cell_now(page.trace)
    step = WEIGHTS if step == NORMS.name else step  # both have a cell for each query and key
    inputs.choose(factors.clicked(page.trace, now, step, y, x), page.layer)


@st.fragment
def maps() -> None:
    """The maps. What is turned or clicked here is painted before the rest of the page has run."""
    now = page.painted()
    figures = lab_maps(now.trace, now.cell, inputs.now("view"), inputs.now("colors"))
    at_once = overview(tuple(step.name for step in now.layer.steps))
    around = now.around(steps=True, line=True, overview=at_once, follow=True)
    show.figures(figures, "lab_maps", pick_cell, around, inputs.turn, rest=True, export="maps")


if __name__ == "app":  # the server, which finds this app before anybody comes; a run of the page is "__main__"
    app = st.App(__file__, **application.parts())
else:
    page = start("Lab", "Click a cell to see how its number came about.")
    with page.about:
        first_lesson()
        second.last_turn()
    maps()
    predictions.panel(page)
    cell = page.cell
    with st.expander("How this number came about, in full", expanded=True):
        show.arithmetic(explain(page.trace, cell.step, cell.layer, cell.head, cell.row, cell.column))
        if shows_norms(page.layer, cell, inputs.now("view")):
            show.arithmetic(NORMS.explain(page.trace, cell))
            st.caption(f"{NORMS.words} {NORMS.paper}. {norms.CAUTION}")
    st.markdown(f"## All numbers of `{cell.step}`")
    show.table(
        lambda: tables.frame(page.trace, cell.step, cell.layer, cell.head),
        page.layer.matrix(cell.step, cell.head).numel(),
        f"{cell.step}.csv",
    )
    page.end()
