"""Reference: what is this matrix called, what shape has it, how is it made, and what do others call it?"""

from __future__ import annotations

from contextlib import suppress

import streamlit as st
from streamlit.errors import StreamlitPageNotFoundError

from attention import STEPS, glossary
from pages.ui import inputs, show
from pages.ui.knobs import Knobs
from pages.ui.start import start

page = start(
    "Reference",
    "What each matrix is called, here and elsewhere, its shape with your knobs, and how it is made.",
    maps=False,
)

asked = Knobs(page.notes, {"reference_find": ""}).text(
    "Find a name", "reference_find", 200, st.text_input, placeholder="hook_z, attn_probs, sims …",
    help="Any name of a step, ours or another library's. A part of it is enough.",
)  # fmt: skip
found = glossary.matching(asked)
st.caption(
    f"{len(found)} of {len(STEPS)} steps, in the order of the formula. The notebooks are the five tutorials that this project began with."
    if found
    else ""
)
if not found:
    show.problem(
        f"No step is called “{asked[:40]}”: try a part of it, such as score, attn or hook. The tables below have the parameters."
    )
with st.container(key="reference_steps"):
    for step in found:
        there = getattr(page.layer, step.name) is not None
        with st.container(border=True, key=f"reference_{step.name}", gap="small"):
            show.card(step, glossary.shape(step, page.layer) if there else " · ".join(step.axes))
            with suppress(StreamlitPageNotFoundError):  # a page that is run by itself, as AppTest does, has no others
                if there:
                    link = {**inputs.state(), "step": step.name}
                    st.page_link("app.py", label="See it in the Lab →", query_params=link)
            if not there:
                st.caption("Not in this trace: its source, or its knobs, do not make it.")

st.markdown("## Axes")
show.lines(glossary.axes(page.layer))
st.markdown("## Parameters")
show.lines(glossary.parameters(page.layer))
show.twin(glossary.frame(page.layer), "reference_steps_table", "All steps and parameters as a table")
