"""The Lab: what happens between a text and the output of attention, and how did this number come about?"""

from __future__ import annotations

import streamlit as st

from attention import AttentionError, Cell, explain, frames, plots
from attention.live import live
from pages.ui import inputs, show
from pages.ui.start import start

MAIN_STEPS = ("scores", "weights", "output")

page = start("Lab", "Click a cell to see how its number came about.")
index, cell = page.index, page.cell


def pick_step(step: str) -> None:
    inputs.choose(Cell(step, cell.head, cell.row, cell.column), page.layer)


def pick_cell(step: str, x: int, y: int) -> None:
    inputs.choose(Cell(step, inputs.cell_now(page.layer).head, y, x), page.layer)


@st.fragment
def maps() -> None:
    """The maps. What is turned or clicked here is painted before the rest of the page has run."""
    try:
        now = page.now()
    except AttentionError:  # a d_model that the heads do not divide: the sidebar knows what to do
        st.rerun(scope="app")
    figures = [plots.heatmap_json(now.trace, step, index, now.cell.head, now.cell, colors) for step in drawn]
    show.figures(figures, "lab_maps", pick_cell, live(now.layer, now.cell.head), now.hand, inputs.turn)


place = st.container()
colors = inputs.chosen_colors(page.notes)
recorded = [step.name for step, _ in page.layer]
drawn = [step for step in MAIN_STEPS if step in recorded] or recorded[-1:]
if drawn[-1] != "output" and "head_output" in recorded:
    drawn.append("head_output")  # a source without W_O
with place:
    maps()
with page.above:  # after the maps: they are what a turned knob is waited for
    show.strip(page.layer, cell.step, pick_step)

arithmetic, own_map = (st.container(), None) if cell.step in drawn else st.columns([3, 2])
if own_map:
    with own_map:
        # No name for the figure: a fragment keeps the names of its page, and a figure keeps its trace.
        show.figures(
            [plots.heatmap_json(page.trace, cell.step, index, cell.head, cell, colors)], "lab_chosen", pick_cell
        )
with arithmetic:
    st.markdown("## How this number came about")
    explanation = explain(page.trace, cell.step, index, cell.head, cell.row, cell.column)
    show.arithmetic(explanation, *frames.names(page.trace, cell), on_step=inputs.choose)

st.markdown(f"## All numbers of `{cell.step}`")
show.table(
    lambda: frames.frame(page.trace, cell.step, index, cell.head),
    page.layer.matrix(cell.step, cell.head).numel(),
    lambda: frames.csv(page.trace, cell.step, index, cell.head),
    f"{cell.step}-L{index}-H{cell.head}.csv",
)
