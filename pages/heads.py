"""Heads: what does each head do with the same text? All heads of one step, in one picture with one scale."""

from __future__ import annotations

import streamlit as st

from attention import AttentionError, find_step
from attention.numbers import tables
from attention.pictures import heatmap
from attention.pictures.layout import Spec
from attention.pictures.mosaic import MOSAIC_CELLS, SCREEN_CELLS
from pages.ui import show
from pages.ui.knobs import inputs
from pages.ui.knobs.session import session
from pages.ui.knobs.widgets import locked
from pages.ui.start import start

page = start("Heads", "What each head makes of the same text, in the same colours. Click a head to open it in the Lab.")


def mosaic(cells: int) -> Spec:
    return heatmap.heads_json(
        page.trace, page.cell.step, page.cell.layer, chosen=page.cell, cells=cells, colors=inputs.now("colors")
    )


try:
    figure = mosaic(SCREEN_CELLS)
except AttentionError as error:
    show.problem(str(error))
    st.stop()


def open_head(step: str, x: int, y: int) -> None:
    clicked = heatmap.cell_at(figure, x, y)
    if clicked:
        inputs.choose(clicked)
        session().head_opened = True


show.figures(
    [figure], "heads_map", open_head, page.around(steps=True), inputs.turn, files=lambda: [mosaic(MOSAIC_CELLS)]
)
if session().head_opened:
    session().head_opened = False
    # Streamlit refuses bound keys here; their widgets write themselves into the address on the next page. A locked page has none.
    st.switch_page("app.py", query_params={**inputs.state(), **inputs.modes()} if locked() else {})

# The page's callbacks keep its names as long as its tab is open: nothing as large as a layer has one.
step = page.cell.step
heads = range(page.layer.n_heads) if find_step(step).per_head else range(1)
show.long_table(
    lambda start, stop: tables.long(page.trace, [step], page.cell.layer, heads, start, stop),
    len(heads) * page.layer.matrix(step, page.cell.head).numel(),
    f"{step}-L{page.cell.layer}-heads.csv",
)
