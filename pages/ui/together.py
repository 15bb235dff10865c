"""Several heads as one map, for who asks: the control, the map, its definition and the arithmetic of its cells."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from attention import AttentionError, Cell
from attention.formula.knobs import Knob
from attention.formula.names import WEIGHTS
from attention.formula.ranges import Choice
from attention.numbers import aggregates, tables
from attention.numbers.readings import Reading
from attention.pictures.line import cell_line
from attention.pictures.message import Around
from attention.pictures.read_off import reading_json
from pages.ui import show
from pages.ui.knobs import inputs
from pages.ui.knobs.widgets import Knobs
from pages.ui.notes import plain
from pages.ui.server import turns
from pages.ui.start import Page

NONE = "none"
AGGREGATE = Knob(
    "aggregate", NONE, Choice((NONE, *(one.name for one in aggregates.AGGREGATES))), "Several heads as one map",
    "Nothing is averaged unless you ask for it. " + " ".join(f"{one.name}: {one.step.formula}." for one in aggregates.AGGREGATES),
)  # fmt: skip


def together(page: Page, knobs: Knobs) -> None:
    """The chosen aggregate of the chosen layer, if there is one."""
    with st.container(width=280):
        name = knobs.value(AGGREGATE)
    if name == NONE:
        return
    try:
        reading_map(page, aggregates.find(name), "heads_together")
    except AttentionError as error:
        show.problem(str(error))


def reading_map(page: Page, reading: Reading, key: str) -> None:
    """A reading of the weights as a map to click: its definition, its picture, the chosen cell, and all of its numbers.

    Raises:
        AttentionError: the layer lacks what it reads.
    """
    layer, cell = page.cell.layer, page.cell
    with turns.aside():  # it is kept
        reading.matrix(page.trace, layer, cell.head)
    weights = page.layer.shape(WEIGHTS)
    cell = Cell(layer, WEIGHTS, cell.head, min(cell.row, weights[1] - 1), min(cell.column, weights[2] - 1))
    st.caption(plain(f"{reading.words} {reading.paper}".strip()))
    if warning := reading.warning(page.trace, layer):
        st.warning(plain(warning))

    def choose(_: str, x: int, y: int) -> None:
        inputs.choose(replace(cell, row=y, column=x))

    explanation = reading.explain(page.trace, cell)
    around = Around(line=cell_line(page.trace, cell, explanation))
    figure = reading_json(page.trace, reading, cell, inputs.now("colors"))
    picture, words = st.columns([3, 2], vertical_alignment="center")
    with picture:
        show.figures([figure], key, choose, around, inputs.turn)
    with words:
        show.arithmetic(explanation)
    show.table(
        lambda: tables.read_off(page.trace, reading, layer, cell.head),
        weights[1] * weights[2],
        f"{reading.name}.csv",
    )
