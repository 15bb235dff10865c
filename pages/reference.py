"""Reference: what is this matrix called, what shape has it, how is it made, and what do others call it?"""

from __future__ import annotations

from contextlib import suppress

import streamlit as st
from streamlit.errors import StreamlitPageNotFoundError

from attention import PARAMETERS, STEPS, Step
from attention.formula.knobs import Knob
from attention.formula.ranges import Text
from attention.numbers import glossary
from pages.ui import show
from pages.ui.knobs.widgets import Knobs
from pages.ui.start import start

NAME = Knob(
    "reference_find", "", Text(200), "Find a name",
    "Any name of a step or parameter, ours or another library's, or a word of its formula. A part of it is enough.",
    empty="hook_z, logits, W_Q, softmax …",
)  # fmt: skip

page = start(
    "Reference",
    "What each matrix is called, here and elsewhere, its shape with your knobs, and how it is made.",
    maps=False,
)

asked = Knobs(page.notes).value(NAME)
found = glossary.matching(asked)
steps = [entry for entry in found if isinstance(entry, Step)]
if found:
    others = len(found) - len(steps)
    st.caption(
        f"{len(steps)} of {len(STEPS)} steps{f' and {others} of {len(PARAMETERS)} parameters' if others else ''}, in the order of the formula. "
        "The notebooks are the five tutorials that this project began with."
    )
else:
    show.problem(f"Nothing is called “{asked[:40]}”: try a part of a name, such as score, attn or hook.")
show.controls(page.around(only=("d_model",)))  # which most of the shapes are made of
with st.container(key="reference_steps"):
    for entry in found:
        there = page.layer.has(entry.name)
        with st.container(border=True, key=f"reference_{entry.name}", gap="small"):
            show.card(entry, glossary.shape(entry, page.layer) if there else " · ".join(entry.axes))
            with suppress(StreamlitPageNotFoundError):  # a page that is run by itself, as AppTest does, has no others
                if there and entry in steps:
                    st.page_link("app.py", label="See it in the Lab →", query_params={"step": entry.name})
            if not there:
                st.caption("Not in this trace: its source, or its knobs, do not make it.")

st.markdown("## Axes")
show.lines(glossary.axes(page.layer))
st.markdown("## Parameters")
show.lines(glossary.parameters(page.layer))
show.twin(glossary.frame(page.layer), "reference_steps_table", "All steps and parameters as a table")
page.end()
