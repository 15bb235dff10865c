"""Masks over patches: fields that hide a rectangle of patches, or all patches but the neighbours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from attention import Layer
from attention.base.errors import AttentionError
from attention.pictures.view import has_patches
from attention.vision import places
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, show_later

if TYPE_CHECKING:
    from pages.ui.page.start import Page


def patch_field(key: str, label: str, layer: Layer, head: int, **more: Any) -> str | None:
    """The mask of a head with the patches of a field hidden as well, in the encoding of a custom mask; None, with a sentence, if the field names none."""
    text = st.text_input(label, "row 0, column 0", key=key, max_chars=60, help="Such as row 3, column 7, or row 2-4, column 3-7.", **more)  # fmt: skip
    try:
        return places.hide_patches(layer, head, text)
    except AttentionError as error:
        st.caption(plain(str(error)))  # the error repeats what was typed
        return None


def patch_mask_fields(page: Page) -> None:
    """Draws the fields that change the mask of the chosen head, if the layer has patches."""
    layer, head = page.layer, page.cell.head
    if not has_patches(layer):
        return
    with st.container(horizontal=True, vertical_alignment="bottom", key="patch_masks"):
        hidden = patch_field("masks_patches", "Patches", layer, head, width=260)
        st.button("Mask these patches", on_click=knob_state.set_custom_mask, args=(hidden,), disabled=hidden is None)
        near = int(st.number_input("Rows and columns", 0, 999, 1, key="masks_near", width=150))
        st.button("Mask all but near patches", on_click=_near, args=(layer, head, near))


def _near(layer: Layer, head: int, size: int) -> None:
    try:
        knob_state.set_custom_mask(places.mask_near_patches(layer, head, size))
    except AttentionError as error:
        show_later(str(error))
