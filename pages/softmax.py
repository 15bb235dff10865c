"""Softmax: why attention uses it, and why the scores are divided by √d_k."""

from __future__ import annotations

import streamlit as st

from attention import AttentionError, NumbersError, TypedText
from attention.base.knobs import Choice, Knob, Text
from attention.lessons import softmax
from attention.sources.layer_knobs import TEXT
from pages.ui.lessons import lesson
from pages.ui.page import show
from pages.ui.page.start import start
from pages.ui.server.traces import derived_of
from pages.ui.state.notices import show_error
from pages.ui.state.widgets import Knobs

ROW = Knob(
    "softmax_row", "0.1, -0.2, -0.3, 0.5", Text(1000), "A row of numbers",
    f"2 to {softmax.MAX_NUMBERS} numbers separated by commas. Think of them as the scores of one query.",
)  # fmt: skip
FACTOR = Knob(
    "softmax_factor", 200, Choice(softmax.FACTORS, is_slider=True), "Multiply your numbers by",
    "The same as dividing the temperature by this factor.",
)  # fmt: skip

page = start("Softmax", "Why attention uses a softmax, and why it divides by √d_k.", maps=False)


st.markdown("## From scores to weights")
picture, words = st.columns([3, 2], vertical_alignment="center")
with picture:
    curve = softmax.curve()
    show.figures([softmax.softmax_curve(curve)], "softmax_curve")
with words:
    st.latex(r"\text{softmax}(x)_i = \frac{e^{x_i}}{\sum_j e^{x_j}}")
    st.markdown(softmax.WHY_SOFTMAX)
show.chart_table(curve, "softmax_curve")

st.markdown("## Your numbers at low and high temperature")
knobs = Knobs(page.notes)
typed = knobs.value(ROW)
row: softmax.Row = ()
try:
    row = softmax.parse_row(typed)
except NumbersError as error:
    show_error(str(error))
if row:
    lesson.softmax_slider(row, "softmax_live")
    by_temperature = softmax.spread(row)
    show.figures([softmax.shares_by_temperature(by_temperature)], "softmax_shares")
    show.figures(
        [softmax.variance_by_temperature(by_temperature), softmax.entropy_by_temperature(by_temperature)],
        "softmax_spread",
    )
    show.chart_table(by_temperature.frame(), "softmax_temperatures")

st.markdown("## Why we scale")
text = page.source if isinstance(page.source, TypedText) else TypedText(str(TEXT.default))
if text is page.source:
    show.controls(page.around(only=("temperature", "mask", "d_model", "seed")))
picture, words = st.columns([3, 2])
with words:
    st.markdown(softmax.WHY_SCALE)
    st.markdown("\n".join(f"- **{init}**: {description}" for init, description in softmax.EFFECT_OF_INIT.items()))
try:
    scaled = derived_of(text, "scaling", lambda: softmax.measure(text))
except AttentionError as error:  # with another initialization the trace may be too large
    with picture:
        show_error(str(error))
else:
    with picture:
        show.figures([softmax.scaling_maps(scaled)], "softmax_scaling")
    words.caption(" ".join(scaled.notes))
    show.chart_table(scaled.frame(), "softmax_scaling_table")

if row:
    st.markdown("## Why we subtract the maximum")
    st.latex(r"\frac{e^{x_i}}{\sum_j e^{x_j}} = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}}, \quad m = \max_j x_j")
    factor = knobs.value(FACTOR)
    overflow = softmax.overflow(row, factor)
    (st.warning if overflow.failed else st.success)(overflow.words)
    st.dataframe(overflow.frame(), hide_index=True)
page.end()
