"""Masks: what does a mask do to the weights, and what becomes of a query that may see nothing?"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import streamlit as st

from attention import AttentionError, Cell
from attention.pictures import heatmap
from attention.pictures.layout import Spec
from pages.ui import show
from pages.ui.knobs import controls, inputs
from pages.ui.knobs.widgets import locked
from pages.ui.start import start

page = start("Masks", "A mask decides which keys a query may look at.")
around = page.around(line=True)
# What is clicked here does nothing where the mask is not a knob, or no knob may be turned.
clickable = not locked() and any(control["name"] == "mask" for control in around.controls)
if clickable:
    page.about.caption("Click a cell of the mask to allow or to hide it.", width="content")

from attention.formula.names import MASKED_SCORES, WEIGHTS
from attention.lessons import masks

GRID_UP_TO = 128  # tokens; a grid of more takes longer to draw than to fill in

cell = page.cell


def visible() -> Any:
    """Which cells may attend. Nothing large is a name of the page itself: its callbacks keep those as long as its tab is open."""
    return masks.visible_cells(page.trace, page.cell.layer, page.cell.head)


def toggle(step: str, x: int, y: int) -> None:
    if step == "mask" and clickable:
        with suppress(AttentionError):
            now = page.now()  # another cell may have been clicked since the page was drawn
            seen = masks.visible_cells(now.trace, now.cell.layer, now.cell.head)
            inputs.choose_mask(masks.toggled(seen, y, x))
    elif step != "mask":
        inputs.choose(Cell(cell.layer, step, cell.head, y, x))


def maps() -> list[Spec]:
    shown = [step for step in (MASKED_SCORES, WEIGHTS) if page.layer.has(step)]
    return [
        heatmap.mask_map_json(page.trace, page.cell.layer, cell),
        *(
            heatmap.heatmap_json(page.trace, step, page.cell.layer, cell.head, cell, inputs.now("colors"))
            for step in shown
        ),
    ]


around = replace(around, controls=controls.with_mask_buttons(around.controls))
show.figures(maps(), "masks_maps", toggle, around, inputs.turn)

if clickable:
    with st.container(horizontal=True):
        hide = masks.hide_query(visible(), cell.row) if cell.row < len(page.layer.tokens) else ""
        st.button(f"Hide every key from query {cell.row}", on_click=inputs.choose_mask, args=(hide,), disabled=not hide)
        st.button("Allow everything", on_click=inputs.choose_mask, args=("",))
    with st.expander("The mask as a grid, for the keyboard"):
        if max(visible().shape) <= GRID_UP_TO:
            show.grid(
                masks.grid(page.trace, page.cell.layer, page.cell.head),
                "masks_grid",
                lambda ticks: inputs.choose_mask(masks.cells_of(ticks)),
            )
        else:
            st.caption(f"The grid is there for up to {GRID_UP_TO} tokens: shorten the text to use it.")
elif not locked():
    st.info(
        "Nothing of this source is hidden or shared out. To click a mask together, choose another one, typed text or your own matrices."
    )

show.long_table(
    lambda start, stop: masks.table(page.trace, page.cell.layer, cell.head, start, stop),
    visible().numel(),
    "mask-cells.csv",
)

st.markdown("## A query that sees no key")
if masks.has_scores(page.layer):
    st.markdown(
        "The softmax shares out 1 among the keys a query may see. Where there is none, there is nothing to share: "
        "the honest answer is a row of zeros. This is what code in the wild makes of such a row, worked out now "
        f"from the scores of query {min(cell.row, len(page.layer.tokens) - 1)}:"
    )
    show.lines(masks.hidden_row_table(masks.scores_of(page.layer, cell)))
else:
    st.caption("This source has recorded weights alone, so there are no scores to hide.")

st.markdown("## The averaging trick: why a mask and a softmax")
st.markdown(
    "Attention without any preference is an average over what a query may see. A loop does it, a triangular matrix does it "
    "at once, and a softmax of zeros with −∞ above the diagonal gives that very matrix. Put scores in place of the zeros, "
    "and it is causal attention."
)


def averages() -> None:
    average, ways = masks.averaging_traces(page.trace, page.cell.layer)
    show.figures([heatmap.way_json(way, name) for name, way in ways.items()], "masks_averages", lambda *_: None)
    st.markdown(f"**All three are equal:** largest difference {average.difference:.2g}.")


if masks.has_rows(page.layer):
    averages()
else:
    st.caption("This source has recorded no input and no values, so there are no rows to average.")
page.end()
