"""What each head does, in numbers: a table to sort and to click, heads as points, and heads that look alike."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st

from attention import metrics
from attention.formula.knobs import Knob
from attention.formula.ranges import Choice
from attention.numbers.mattering import Matters
from attention.numbers.metrics import alike, frames
from attention.pictures import charts
from pages.ui import show
from pages.ui.knobs.widgets import Knobs
from pages.ui.server import turns
from pages.ui.server.limits import METRIC_SECONDS
from pages.ui.start import Page

UNSORTED = "layer and head"
MOST_ALIKE = 8

SORT = Knob(
    "heads_sort", UNSORTED, Choice((UNSORTED, *metrics.NAMES)), "Sort heads by",
    "The one with the largest number on this text comes first.")  # fmt: skip
ACROSS = Knob("heads_x", charts.LAYER, Choice(charts.AXES), "Across", "What stands across in the chart.")
UP = Knob("heads_y", "entropy", Choice(metrics.NAMES), "Up", "The metric that stands upright in the chart.")


def table_of(page: Page, key: str) -> metrics.Table | None:
    """The metrics of all heads; where they take long, a button stands there until somebody asks for them."""
    needs = metrics.seconds(page.trace)
    if needs > METRIC_SECONDS:
        n_heads = sum(layer.n_heads for layer in page.trace.layers)
        asked = st.button(f"Work out the numbers of {n_heads} heads (about {needs:.0f} s)", key=f"heads_ask_{key}")
        if not asked:
            return None
    said = st.spinner("Working out what each head does …") if needs > METRIC_SECONDS / 4 else st.empty()
    with said, turns.aside():
        return metrics.of(page.trace)


def numbers(
    page: Page,
    table: metrics.Table,
    knobs: Knobs,
    by: str,
    open_head: Callable[[int, int], None],
    matters: Matters | None = None,
) -> None:
    """The table of metrics in the order of the heads, beside what each matters where that is known, and the heads as points."""
    layer, head = page.cell.layer, page.cell.head
    by = "" if by == UNSORTED else by
    order = table.sorted_by(by) if by else table.heads
    rows = frames.frame(page.trace, table, order, by)
    if matters is not None:
        rows = rows.join(matters.frame(order)[list(matters.columns)])
    helps = {frames.heading(metric): frames.about(metric, table) for metric in metrics.METRICS}
    st.caption("Click a row to open its head in the Lab. None: not defined on this text.")
    show.pick(rows, "heads_table", helps, lambda row: open_head(*order[row]))
    st.caption(frames.said(table, layer, head, by))
    show.csv("heads-metrics.csv", "heads_csv")
    points, others = st.columns([3, 2])
    with points:
        with st.container(horizontal=True):
            across, up = knobs.value(ACROSS), knobs.value(UP)
        show.figures([charts.heads_of(table, across, up, (layer, head))], "heads_chart")
    with others:
        _alike(page, open_head)


def _alike(page: Page, open_head: Callable[[int, int], None]) -> None:
    """The heads that look most like the chosen one."""
    layer, head = page.cell.layer, page.cell.head
    st.markdown(f"**Heads like L{layer} H{head}**, {frames.HERE}: the smallest Jensen–Shannon distances of their rows")
    needs = alike.seconds(page.trace, layer, head)
    if needs > METRIC_SECONDS and not st.button(f"Compare all heads (about {needs:.0f} s)", key="heads_compare"):
        return
    with turns.aside():
        found = metrics.differences(page.trace, layer, head)[:MOST_ALIKE]
    if not found:
        st.caption("No other head attends from the same tokens to the same tokens.")
        return
    show.pick(frames.alike(found), "heads_alike", {}, lambda row: open_head(found[row][0], found[row][1]))
