"""Metrics of all heads: a sortable table, a scatter chart, and the heads most similar to the chosen one."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from attention import metrics
from attention.analysis.head_importance import HeadSweep
from attention.analysis.metrics import frames, head_similarity
from attention.params.ranges import Choice
from attention.pictures import metric_charts
from pages.ui.page import show
from pages.ui.page.start import Page
from pages.ui.server import scheduler
from pages.ui.server.limits import METRIC_SECONDS
from pages.ui.state.widgets import Knobs

MOST_SIMILAR = 8


def table_of(page: Page, key: str) -> metrics.MetricsTable | None:
    """The metrics of all heads; None, with a button, if they take long and the user has not requested them."""
    seconds = metrics.estimated_seconds(page.trace)
    if seconds > METRIC_SECONDS:
        n_heads = sum(layer.n_heads for layer in page.trace.layers)
        if not st.button(f"Compute the metrics of {n_heads} heads (about {seconds:.0f} s)", key=f"heads_ask_{key}"):
            return None
    spinner = st.spinner("Computing the metrics of all heads …") if seconds > METRIC_SECONDS / 4 else st.empty()
    with spinner, scheduler.without_turn():
        return metrics.of(page.trace)


def numbers(
    page: Page,
    table: metrics.MetricsTable,
    knobs: Knobs,
    by: str,
    open_head: Callable[[int, int], None],
    matters: HeadSweep | None = None,
) -> None:
    """Draws the table of metrics, with the effects of the ablation sweep if there is one, and the scatter chart."""
    layer, head = page.cell.layer, page.cell.head
    by = "" if by == metric_charts.UNSORTED else by
    order = table.sorted_by(by) if by else table.heads
    rows = frames.frame(page.trace, table, order, by)
    if matters is not None:
        rows = rows.join(matters.frame(order)[list(matters.columns)])
    helps = {frames.heading(metric): frames.describe_metric(metric, table) for metric in metrics.METRICS}
    st.caption("Click a row to open its head in the Lab. None means that the metric is not defined on this text.")
    show.clickable_table(rows, "heads_table", helps, lambda row: open_head(*order[row]))
    st.caption(frames.describe_head(table, layer, head, by))
    show.csv("heads-metrics.csv", "heads_csv")
    points, others = st.columns([3, 2])
    with points:
        with st.container(horizontal=True):
            names = metrics.names_of(page.trace)
            across = knobs.value(metric_charts.X_AXIS, Choice((metric_charts.LAYER, *names)))
            up = knobs.value(metric_charts.Y_AXIS, Choice(names))
        show.figures([metric_charts.head_scatter_json(table, across, up, (layer, head))], "heads_chart")
    with others:
        _similar_heads(page, open_head)


def _similar_heads(page: Page, open_head: Callable[[int, int], None]) -> None:
    """Draws the heads most similar to the chosen one."""
    layer, head = page.cell.layer, page.cell.head
    st.markdown(
        f"**Heads similar to L{layer} H{head}**, {frames.ON_THIS_TEXT}: smallest Jensen–Shannon distance between rows"
    )
    seconds = head_similarity.estimated_seconds(page.trace, layer, head)
    if seconds > METRIC_SECONDS and not st.button(f"Compare all heads (about {seconds:.0f} s)", key="heads_compare"):
        return
    with scheduler.without_turn():
        nearest = metrics.similar_heads(page.trace, layer, head)[:MOST_SIMILAR]
    if not nearest:
        st.caption("No other head has the same queries and keys.")
        return
    show.clickable_table(
        frames.similarity_frame(nearest), "heads_alike", {}, lambda row: open_head(nearest[row][0], nearest[row][1])
    )
