"""Masks: what a mask does to the weights, and what happens to a query that may attend to no key."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

import streamlit as st

from attention import AttentionError, Cell
from attention.pictures import heatmap
from attention.pictures.layout import Spec
from attention.pictures.steps_view import maps_over_picture
from pages.ui.features import panels
from pages.ui.page import show
from pages.ui.page.start import start
from pages.ui.state import control_row, knob_state

page = start("Masks", "A mask decides which keys each query may attend to.")
around = page.around(line=True)
# Clicks on the mask have no effect if the source has no mask knob, or the page is locked.
clickable = not knob_state.is_locked() and any(control["name"] == "mask" for control in around.controls)
if clickable:
    page.about.caption("Click a cell of the mask to allow or mask (hide) it.", width="content")
    if not page.layer.hides_keys:
        page.about.caption("**Nothing is hidden yet:** choose *causal* to hide what comes later.", width="content")

from attention.formula.names import MASKED_SCORES, WEIGHTS
from attention.lessons import mask_examples

GRID_UP_TO = 128  # tokens; a larger grid takes too long to draw

cell = page.cell


def visible() -> Any:
    """The boolean mask of the chosen head. A function, because callbacks keep the globals of the page as long as its tab is open."""
    return mask_examples.visible_cells(page.trace, page.cell.layer, page.cell.head)


def toggle(step: str, x: int, y: int) -> None:
    if step == "mask" and clickable:
        with suppress(AttentionError):
            current = page.with_pending_changes()  # other cells may have been clicked since the page was drawn
            mask = mask_examples.visible_cells(current.trace, current.cell.layer, current.cell.head)
            knob_state.set_custom_mask(mask_examples.toggle_cell(mask, y, x))
    elif step != "mask":
        knob_state.choose_cell(Cell(cell.layer, step, cell.head, y, x))


def maps() -> list[Spec]:
    steps = [step for step in (MASKED_SCORES, WEIGHTS) if page.layer.has(step)]
    colors = knob_state.current_value("colors")
    return [
        *maps_over_picture(page.trace, cell, colors, page.over_picture),
        heatmap.mask_map_json(page.trace, page.cell.layer, cell),
        *(heatmap.heatmap_json(page.trace, step, page.cell.layer, cell.head, cell, colors) for step in steps),
    ]


around = replace(around, controls=control_row.with_mask_buttons(around.controls))
show.figures(maps(), "masks_maps", toggle, around, knob_state.apply_controls)

if clickable:
    with st.container(horizontal=True):
        cells = mask_examples.hide_query(visible(), cell.row) if cell.row < len(page.layer.tokens) else ""
        st.button(
            f"Mask all keys of query {cell.row}", on_click=knob_state.set_custom_mask, args=(cells,), disabled=not cells
        )
        st.button("Allow everything", on_click=knob_state.set_custom_mask, args=("",))
    for feature in panels():
        feature.mask_fields(page)
    with st.expander("The mask as a grid, for keyboard use"):
        if max(visible().shape) <= GRID_UP_TO:
            show.grid(
                mask_examples.grid(page.trace, page.cell.layer, page.cell.head),
                "masks_grid",
                lambda ticks: knob_state.set_custom_mask(mask_examples.encode_table(ticks)),
            )
        else:
            st.caption(f"The grid has at most {GRID_UP_TO} tokens: shorten the text to use it.")
elif not knob_state.is_locked():
    st.info(
        "This source has no mask to edit. Choose typed text or your own matrices as the source to build a mask by clicking."
    )

show.long_table(
    lambda start, stop: mask_examples.table(page.trace, page.cell.layer, cell.head, start, stop),
    visible().numel(),
    "mask-cells.csv",
)

st.markdown("## A query with every key masked")
if mask_examples.has_scores(page.layer):
    st.markdown(
        "The softmax distributes a total weight of 1 over the keys that a query may attend to. If every key is masked, no weights "
        "can sum to 1, so Attention Lab shows a row of zeros. Other code handles such a row in different ways. The table computes "
        f"them from the scores of query {min(cell.row, len(page.layer.tokens) - 1)}:"
    )
    show.short_table(mask_examples.hidden_row_table(mask_examples.scores_of(page.layer, cell)))
else:
    st.caption("This source has only recorded weights, so there are no scores to mask.")

st.markdown("## The averaging trick: why a mask and a softmax")
st.markdown(
    "Suppose each token should become the average of itself and all tokens before it. There are three ways to compute that: "
    "a loop; one product with a lower triangular matrix; and a softmax of a matrix that is 0 up to the diagonal and −∞ above it, "
    "which produces the same triangular matrix. Replace the zeros by scores, and the third way is causal attention."
)


def averages() -> None:
    average, traces = mask_examples.averaging_traces(page.trace, page.cell.layer)
    show.figures(
        [heatmap.averaging_json(trace, name) for name, trace in traces.items()], "masks_averages", lambda *_: None
    )
    st.markdown(f"**All three results are equal:** the largest difference is {average.difference:.2g}.")


if mask_examples.has_rows(page.layer):
    averages()
else:
    st.caption("This source has no recorded input and no values, so there are no rows to average.")
page.end()
