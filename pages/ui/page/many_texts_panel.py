"""Heads over many texts: the result of a run, its heads in one picture and in a table; the page of one head is in `head_page_panel`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from attention.corpus import labels
from attention.errors import AttentionError
from attention.params.knob import Knob
from attention.params.ranges import Choice, Text
from attention.pictures import distribution_mosaic as mosaic
from attention.pictures.controls import describe_control
from pages.ui.exports.links import small_download
from pages.ui.page import head_page_panel, result_controls, result_difference_panel, show
from pages.ui.page.head_page_panel import Shown
from pages.ui.page.start import Page
from pages.ui.server import results
from pages.ui.server.limits import ALLOW_LOCAL_MODELS
from pages.ui.state import chosen_result, knob_state
from pages.ui.state.chosen_result import OTHER, RESULT, Opened
from pages.ui.state.knob_table import COLORS
from pages.ui.state.notices import plain, show_error, show_refusal
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs, open_knobs

if TYPE_CHECKING:
    from attention.corpus.heads_result import HeadsResult

METRIC = Knob("heads_metric", "previous", Text(300), "Metric", "What each head is measured by in every text.", inline=True)  # fmt: skip
ALL, ONE_HEAD, CHANGE = "all heads", "one head", "what changed"
SHOWN = Knob("heads_show", ALL, Choice((ALL, ONE_HEAD, CHANGE)), "Show", "All heads in one picture, the page of one head, or what differs between the two results.", inline=True)  # fmt: skip
_HELPS = {
    "mean": "The mean over the texts of the metric in each text.",
    "sd": "The standard deviation over the texts.",
    "texts": "The texts in which the metric is defined.",
    "label": "What the head does, only where a weight is large and clearly above chance.",
    "by chance: uniform": "The same metric if every query attended to all visible keys equally.",
    "by chance: shuffled": "The mean over the same texts with their words in random order.",
    "more than shuffled": "The value of each text minus that of the same text with its words in random order: the mean over the texts. Far beyond its standard error, the head responds to the order of the words.",
    "± standard error": "Of the difference, from its spread over the texts.",
    "by chance: random": "The mean over sequences of random tokens, repeated once (Olsson et al. 2022).",
}
COMMAND = "python -m attention.corpus models/all-MiniLM-L6-v2 texts.txt -o heads/"


def many_texts(page: Page, knobs: Knobs, opened: Opened) -> None:
    """Draws the whole page below its first row of choices."""
    for error in opened.problems.values():
        show_refusal(error)
    if problem := session().result_problem:
        show_error(problem)
    result, other = opened.result, opened.other
    if result is None:
        _explain(knobs)
        return
    if knobs.locked and OTHER.key in opened.problems:
        chosen_result.upload_field(OTHER, "The second result")
    names = tuple(chosen_result.short_name(str(knobs.value(knob))) for knob in (RESULT, OTHER))
    with st.container(horizontal=True, vertical_alignment="center", key="heads_choices"):
        metric = result_controls.options_list(knobs, METRIC, result.metrics, width=260)
        views = (ALL, ONE_HEAD) if other is None else (ALL, ONE_HEAD, CHANGE)
        view = result_controls.buttons(knobs, SHOWN, views)
    lines = [_about(each, name) for each, name in zip((result, other), names, strict=True) if each is not None]
    st.caption("  \n".join(plain(line) for line in lines))
    shown = Shown(result, other, metric, (names[0], names[1]))
    try:
        _draw(page, shown, view)
    except AttentionError as error:  # a part of a damaged file that is read only now
        show_error(str(error))


def close_head() -> None:
    """Goes back to all heads. For callbacks."""
    knob_state.hold({SHOWN.key: ALL})


def _draw(page: Page, shown: Shown, view: str) -> None:
    if view == ONE_HEAD:
        head_page_panel.head_page(page, shown, close_head)
    elif view == CHANGE and shown.other is not None:
        result_difference_panel.difference_section(page, shown, shown.other, open_head)
    else:
        _all_heads(page, shown)


def open_head(layer: int, head: int) -> None:
    """Opens the page of a head. For callbacks."""
    knob_state.hold({"layer": layer, "head": head, SHOWN.key: ONE_HEAD})


def _explain(knobs: Knobs) -> None:
    """How to make a result."""
    if knobs.locked:
        chosen_result.upload_field(RESULT, "The result")
        return
    st.markdown(
        "A *result* says what every head of a model does over thousands of texts: mean, spread and histogram of each metric, the same by chance, "
        "and the texts with the largest values. One command makes it from a model and your own texts (`.txt`, `.jsonl`, `.csv`, `.parquet`); 500 sentences take about ten seconds."
    )
    st.code(COMMAND, language="sh")
    where = (
        "choose it above, type the path of its folder there, or"
        if ALLOW_LOCAL_MODELS
        else "choose a result above, or"
        if results.names()
        else "then"
    )
    st.markdown(f"Then {where} upload its `heads.parquet`:".replace("Then then", "Then"))
    chosen_result.upload_field(RESULT, "A result: heads.parquet")


def _about(result: HeadsResult, name: str) -> str:
    title = f"{name}: " if name and name != result.model else ""
    return f"{title}{result.model}, {result.words()}."


def _all_heads(page: Page, shown: Shown) -> None:
    numbers = mosaic.HeadDistributions.of(shown.result, shown.metric, labels.of(shown.result))
    rows = mosaic.layer_rows(numbers.heads)
    chosen = (page.cell.layer, page.cell.head)

    def click(_: str, x: int, y: int) -> None:
        if 0 <= y < len(rows) and (rows[y], x) in shown.result.heads:
            open_head(rows[y], x)

    st.markdown(plain(mosaic.largest_words(numbers)))
    colors = knob_state.current_value(COLORS.key)
    within = Choice(mosaic.COLORS)
    colors = colors if within.accepts(colors) else mosaic.COLORS[0]
    allowed = open_knobs()
    has_control = numbers.is_probability and (allowed is None or COLORS.key in allowed)
    row = [describe_control(COLORS, within, colors, None)] * has_control
    around = replace(head_page_panel.around(), controls=row)
    picture = mosaic.distribution_mosaic_json(numbers, [shown.result.model], chosen, shown.result.digest[:8], colors)
    show.figures([picture], "heads_mosaic", click, around, knob_state.apply_controls)
    if legend := numbers.legend():
        st.caption(plain(legend))
    st.caption("The heads by their mean. Click a row for the page of its head; click a column to sort by it.")
    rows_of_table = numbers.frame()
    order = [numbers.heads[i] for i in numbers.order]
    show.clickable_table(rows_of_table, "heads_ranking", _HELPS, lambda row: open_head(*order[row]))
    small_download("Download CSV", rows_of_table.to_csv(index=False), "heads-over-texts.csv", "text/csv", "heads_ranking_csv")  # fmt: skip
