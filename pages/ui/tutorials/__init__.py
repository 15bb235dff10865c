"""Published notebooks as a source, and a button that copies the numbers of one, with all digits, into the source “matrices”."""

from __future__ import annotations

import streamlit as st

from attention.files.matrix_text import format_matrix
from attention.sources import Source
from attention.sources.matrices import (
    DIVISOR,
    MATRIX_FIELDS,
    MATRIX_HEADS,
    MATRIX_KIND,
    OPTIONAL_MATRIX_FIELDS,
    VALID_KEYS,
)
from attention.sources.matrix_fields import matrices_of_layer
from attention.tutorials import Notebook
from pages.ui.features import Panels
from pages.ui.server.traces import trace_of
from pages.ui.state.knob_state import hold, is_locked
from pages.ui.state.matrices import EDITOR, store
from pages.ui.state.notices import show_later


def _copy_button(source: Source) -> None:
    if not isinstance(source, Notebook) or is_locked():
        return
    st.button(
        "Continue with these matrices",
        key="continue",
        on_click=_copy,
        args=(source,),
        help="Copies these numbers into the source “matrices”, where you can change them.",
    )


def _copy(source: Notebook) -> None:
    result = matrices_of_layer(trace_of(source).layers[0])
    if result is None:
        show_later("This notebook has no scores and values, so its numbers cannot be copied.")
        return
    optional = [
        name for names in OPTIONAL_MATRIX_FIELDS.values() for name in names
    ]  # cleared, so that no earlier matrix remains
    texts = {name: format_matrix(result.matrices.get(name, ())) for name in ("w_o", *optional, *result.matrices)}
    for name, text in texts.items():
        store(name, text)
    matrix_kind = next(
        kind
        for kind, names in MATRIX_FIELDS.items()
        if result.matrices.keys() <= {*names, *OPTIONAL_MATRIX_FIELDS[kind]}
    )
    defaults = {knob.key: knob.default for knob in (MATRIX_HEADS, DIVISOR, VALID_KEYS)}
    knobs = {"source": "matrices", MATRIX_KIND.key: matrix_kind, **defaults, **result.knobs}
    hold(knobs)
    st.session_state[EDITOR] = False
    for sentence in result.omissions:
        show_later(sentence)


PANELS = Panels(below_source=_copy_button)
"""What this feature adds to the pages."""
