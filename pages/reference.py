"""Reference: the name, shape and formula of each matrix, and its names in other libraries."""

from __future__ import annotations

from contextlib import suppress

import streamlit as st
from streamlit.errors import StreamlitPageNotFoundError

from attention import PARAMETERS, STEPS, Step
from attention.base.knobs import Knob, Text
from attention.explanation import glossary
from pages.ui.page import show
from pages.ui.page.start import start
from pages.ui.state.notices import show_error
from pages.ui.state.widgets import Knobs

NAME = Knob(
    "reference_find", "", Text(200), "Find a name",
    "A name of a step or parameter, here or in another library, or a word of its formula. A part of a name is enough.",
    placeholder="hook_z, logits, W_Q, softmax …",
)  # fmt: skip

page = start(
    "Reference",
    "Each matrix: its name here and in other libraries, its shape with your settings, and its formula.",
    maps=False,
)

query = Knobs(page.notes).value(NAME)
entries = glossary.search(query)
steps = [entry for entry in entries if isinstance(entry, Step)]
if entries:
    n_parameters = len(entries) - len(steps)
    parameters = f" and {n_parameters} of {len(PARAMETERS)} parameters" if n_parameters else ""
    st.caption(
        f"{len(steps)} of {len(STEPS)} steps{parameters}, in the order of the formula. "
        "“notebooks” are the five tutorials on which this project is based."
    )
else:
    show_error(f"No name contains “{query[:40]}”: try a part of a name, such as score, attn or hook.")
show.controls(page.around(only=("d_model",)))  # most shapes depend on d_model
with st.container(key="reference_steps"):
    for entry in entries:
        is_available = page.layer.has(entry.name)
        with st.container(border=True, key=f"reference_{entry.name}", gap="small"):
            show.card(entry, glossary.shape_text(entry, page.layer) if is_available else " · ".join(entry.axes))
            with suppress(StreamlitPageNotFoundError):  # a page that runs alone, as in AppTest, has no others
                if is_available and entry in steps:
                    st.page_link("app.py", label="See it in Explore →", query_params={"step": entry.name})
            if not is_available:
                st.caption("Not in this trace: the source does not have it, or a setting switches it off.")

st.markdown("## Axes")
show.short_table(glossary.axes(page.layer))
st.markdown("## Parameters")
show.short_table(glossary.parameters(page.layer))
show.chart_table(glossary.frame(page.layer), "reference_steps_table", "All steps and parameters as a table")
page.end()
