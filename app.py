"""The Lab: what happens between a text and the output of attention, and how did this number come about?"""

from __future__ import annotations

import streamlit as st

from attention import Cell, explain, frames, plots
from attention.drawing import Spec
from attention.live import live
from pages.ui import inputs, show
from pages.ui.knobs import Knobs
from pages.ui.start import start

MAIN_STEPS = ("scores", "weights", "output")

page = start(
    "Lab", "Every matrix between a text and the output of attention. Click a cell to see how its number came about."
)
index, cell = page.index, page.cell


def pick_step(step: str) -> None:
    inputs.choose(Cell(step, cell.head, cell.row, cell.column), page.layer)


def pick_cell(step: str, x: int, y: int) -> None:
    inputs.choose(Cell(step, cell.head, y, x), page.layer)


with page.above:
    show.strip(page.layer, cell.step, pick_step)

maps = st.container()
stretch = Knobs(page.notes, {"lab_stretch": False}).toggle(
    "Stretch the colours of the weights", "lab_stretch", help="Off: colours run from 0 to 1, so that maps compare."
)


def draw(step: str) -> Spec:
    return plots.heatmap_json(page.trace, step, index, cell.head, cell, stretch)


recorded = [step.name for step, _ in page.layer]
drawn = [step for step in MAIN_STEPS if step in recorded] or recorded[-1:]
if drawn[-1] != "output" and "head_output" in recorded:
    drawn.append("head_output")  # a source without W_O
with maps:
    show.figures(
        [draw(step) for step in drawn], "lab_maps", pick_cell, live(page.layer, cell.head), page.hand, inputs.turn
    )

arithmetic, own_map = (st.container(), None) if cell.step in drawn else st.columns([3, 2])
if own_map:
    with own_map:
        show.figures([draw(cell.step)], "lab_chosen", pick_cell)
with arithmetic:
    st.markdown("#### How this number came about")
    explanation = explain(page.trace, cell.step, index, cell.head, cell.row, cell.column)
    show.arithmetic(explanation, *frames.names(page.trace, cell), on_step=inputs.choose)

st.markdown(f"#### All numbers of `{cell.step}`")
show.table(
    lambda: frames.frame(page.trace, cell.step, index, cell.head),
    page.layer.matrix(cell.step, cell.head).numel(),
    lambda: frames.csv(page.trace, cell.step, index, cell.head),
    f"{cell.step}-L{index}-H{cell.head}.csv",
)
