"""The Lab: what happens between a text and the output of attention, and how did this number come about?"""

from __future__ import annotations

import streamlit as st

from attention import Cell, Layer, explain
from attention.formula.names import WEIGHTS
from attention.numbers import norms, tables
from attention.numbers.norms import NORMS
from attention.pictures import factors, heatmap
from attention.pictures.read_off import reading_json
from attention.pictures.view import overview
from pages.ui import predictions, show
from pages.ui.knobs import inputs, second
from pages.ui.server import application
from pages.ui.start import first_lesson, start


def weighed(layer: Layer, cell: Cell) -> bool:
    """Whether the weights are shown beside the lengths of what they bring."""
    return inputs.now("view") == "norms" and cell.step == WEIGHTS and norms.has(layer)


def pick_cell(step: str, x: int, y: int) -> None:
    now = inputs.cell_now(page.trace)
    step = WEIGHTS if step == NORMS.name else step  # both have a cell for each query and key
    inputs.choose(factors.clicked(page.trace, now, step, y, x), page.layer)


@st.fragment
def maps() -> None:
    """The maps. What is turned or clicked here is painted before the rest of the page has run."""
    now = page.painted()
    at_once = overview(tuple(step.name for step in now.layer.steps))
    colors = inputs.now("colors")
    if inputs.now("view") == "overview" and now.cell.step in at_once:
        figures = [
            heatmap.heatmap_json(now.trace, step, now.cell.layer, now.cell.head, now.cell, colors) for step in at_once
        ]
    elif weighed(now.layer, now.cell):
        figures = [
            heatmap.heatmap_json(now.trace, WEIGHTS, now.cell.layer, now.cell.head, now.cell, colors),
            reading_json(now.trace, NORMS, now.cell, colors),
        ]
    else:
        figures = factors.factor_maps(now.trace, now.cell, colors)
    around = now.around(steps=True, line=True, overview=at_once, follow=True)
    show.figures(figures, "lab_maps", pick_cell, around, inputs.turn, rest=True)


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
        if weighed(page.layer, cell):
            show.arithmetic(NORMS.explain(page.trace, cell))
            st.caption(f"{NORMS.words} {NORMS.paper}. {norms.CAUTION}")
    st.markdown(f"## All numbers of `{cell.step}`")
    show.table(
        lambda: tables.frame(page.trace, cell.step, cell.layer, cell.head),
        page.layer.matrix(cell.step, cell.head).numel(),
        lambda: tables.csv(page.trace, cell.step, cell.layer, cell.head),
        f"{cell.step}-L{cell.layer}-H{cell.head}.csv",
    )
    page.end()
