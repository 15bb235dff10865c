"""The mask on Explore: a click on a cell of it allows or hides a key, and the maps beside it show what that does."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st

from attention import AttentionError, Cell
from attention.formula.names import MASKED_SCORES, WEIGHTS
from attention.lessons import mask_examples
from attention.pictures import heatmap
from attention.pictures.steps_view import maps_over_picture
from pages.ui.features import panels
from pages.ui.page import show
from pages.ui.state import control_row, knob_state

if TYPE_CHECKING:
    from pages.ui.page.start import Page

_GRID_UP_TO = 128  # tokens; a larger grid takes too long to draw


def draw(page: Page) -> None:
    """Draws the mask of the chosen head with what it does, and the buttons and the grid that change it."""
    cell, around = page.cell, page.around(only=("mask",))
    # Clicks on the mask have no effect if the source has no mask knob, or the page is locked.
    clickable = not knob_state.is_locked() and bool(around.controls)
    if clickable:
        nothing = (
            "" if page.layer.hides_keys else " **Nothing is hidden yet:** choose *causal* to hide what comes later."
        )
        st.caption(f"Click a cell of the mask to allow or mask (hide) it.{nothing}")

    def visible() -> Any:
        """The boolean mask of the chosen head. A function, because callbacks are kept as long as the tab is open."""
        return mask_examples.visible_cells(page.trace, page.cell.layer, page.cell.head)

    def toggle(step: str, x: int, y: int) -> None:
        if step == "mask" and clickable:
            with suppress(AttentionError):
                current = page.with_pending_changes()  # other cells may have been clicked since the page was drawn
                knob_state.set_custom_mask(current.layer.toggle_cell(current.cell.head, y, x))
        elif step != "mask":
            knob_state.choose_cell(Cell(cell.layer, step, cell.head, y, x))

    steps, colors = (
        [each for each in (MASKED_SCORES, WEIGHTS) if page.layer.has(each)],
        knob_state.current_value("colors"),
    )
    maps = [
        *maps_over_picture(page.trace, cell, colors, page.over_picture),
        heatmap.mask_map_json(page.trace, cell.layer, cell),
        *(heatmap.heatmap_json(page.trace, step, cell.layer, cell.head, cell, colors) for step in steps),
    ]
    around = replace(around, controls=control_row.with_mask_buttons(around.controls), override=None)
    show.figures(maps, "masks_maps", toggle, around, knob_state.apply_controls)

    if clickable:
        with st.container(horizontal=True):
            cells = mask_examples.hide_query(visible(), cell.row) if cell.row < len(page.layer.tokens) else ""
            change, hide = knob_state.set_custom_mask, f"Mask all keys of query {cell.row}"
            st.button(hide, on_click=change, args=(cells,), disabled=not cells)
            st.button("Allow everything", on_click=change, args=("",))
        for feature in panels():
            feature.mask_fields(page)
        with st.expander("The mask as a grid, for keyboard use"):
            if max(visible().shape) <= _GRID_UP_TO:
                show.grid(
                    mask_examples.grid(page.trace, page.cell.layer, page.cell.head),
                    "masks_grid",
                    lambda ticks: knob_state.set_custom_mask(mask_examples.encode_table(ticks)),
                )
            else:
                st.caption(f"The grid has at most {_GRID_UP_TO} tokens: shorten the text to use it.")
    elif not knob_state.is_locked():
        st.info(
            "This source has no mask to edit. Choose typed text or your own matrices as the source to build a mask by clicking."
        )
    show.long_table(
        lambda start, stop: mask_examples.table(page.trace, page.cell.layer, cell.head, start, stop),
        visible().numel(),
        "mask-cells.csv",
    )
