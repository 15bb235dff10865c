"""The chapters of Learn after the lessons: why attention uses a softmax, why it divides by √d_k, and what a mask does."""

from __future__ import annotations

import streamlit as st

from attention import AttentionError, NumbersError, TypedText
from attention.base.knobs import Choice, Knob, Text
from attention.lessons import softmax
from attention.sources.layer_knobs import TEXT
from pages.ui.lessons import lesson
from pages.ui.page import show
from pages.ui.page.start import Page
from pages.ui.server.traces import derived_of
from pages.ui.state.notices import show_error
from pages.ui.state.widgets import Knobs

_ROW = Knob(
    "softmax_row", "0.1, -0.2, -0.3, 0.5", Text(1000), "A row of numbers",
    f"2 to {softmax.MAX_NUMBERS} numbers separated by commas. Think of them as the scores of one query.",
)  # fmt: skip
_FACTOR = Knob(
    "softmax_factor", 200, Choice(softmax.FACTORS, is_slider=True), "Multiply your numbers by",
    "The same as dividing the temperature by this factor.",
)  # fmt: skip


def softmax_chapter(page: Page) -> None:
    """From scores to weights, at low and high temperature, divided by √d_k, and without an overflow."""
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
    typed = knobs.value(_ROW)
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

    _scaling(page)
    if row:
        st.markdown("## Why we subtract the maximum")
        st.latex(r"\frac{e^{x_i}}{\sum_j e^{x_j}} = \frac{e^{x_i - m}}{\sum_j e^{x_j - m}}, \quad m = \max_j x_j")
        factor = knobs.value(_FACTOR)
        overflow = softmax.overflow(row, factor)
        (st.warning if overflow.failed else st.success)(overflow.words)
        st.dataframe(overflow.frame(), hide_index=True)


def _scaling(page: Page) -> None:
    """Why the scores are divided by √d_k."""
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


def masks_chapter(page: Page) -> None:
    """A query that may attend to no key, and a mask as a way to an average."""
    from attention.lessons import mask_examples  # with torch
    from attention.pictures import heatmap

    cell = page.cell
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
    if not mask_examples.has_rows(page.layer):
        st.caption("This source has no recorded input and no values, so there are no rows to average.")
        return
    average, traces = mask_examples.averaging_traces(page.trace, page.cell.layer)
    figures = [heatmap.averaging_json(trace, name) for name, trace in traces.items()]
    show.figures(figures, "masks_averages", lambda *_: None)
    st.markdown(f"**All three results are equal:** the largest difference is {average.difference:.2g}.")
