"""Panels of the page Heads: the metrics of all heads and the heads most similar to the chosen one, several heads as one map, and heads found by a typed rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import pandas as pd
import streamlit as st

from attention import Trace, metrics
from attention.base.errors import AttentionError
from attention.base.knobs import Choice, Knob, Range, Text
from attention.base.tokens import Letter
from attention.explanation import tables
from attention.explanation.derived import DerivedMap
from attention.explanation.subwords import words_rule
from attention.formula.names import WEIGHTS, Cell
from attention.metrics import aggregates
from attention.metrics.find_rule import (
    EXAMPLES,
    MAX_RULE,
    PAIR_EXAMPLES,
    PICTURE_EXAMPLES,
    RESIDUE_EXAMPLES,
    FindRule,
    FoundHead,
    estimated_seconds_to_find,
    find_heads,
)
from attention.metrics.metric import BY_DISTANCE, ON_THIS_TEXT, UNIFORM
from attention.metrics.table import describe_head, describe_metric, estimated_seconds, frame, heading, similarity_frame
from attention.pictures import charts, view
from attention.pictures.heatmap import derived_map_json
from attention.pictures.message import Surroundings
from attention.pictures.message_contract import Control
from attention.pictures.steps_view import cell_line
from attention.pictures.view import describe_control
from pages.ui.exports.links import small_download
from pages.ui.features import HeadMap, panels
from pages.ui.page import show
from pages.ui.page.start import Page
from pages.ui.server import heavy, scheduler
from pages.ui.server.limits import METRIC_SECONDS
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, show_error
from pages.ui.state.widgets import Knobs

ALL = "all layers"
LAYERS = Knob("heads_layers", ALL, Choice((ALL, "one layer")), "Show", "All heads of all layers, or a larger picture of the chosen layer.", inline=True)  # fmt: skip
_NONE = "none"
_FIND = Knob("heads_find", "", Text(MAX_RULE), "Find heads that look …", 'From queries to keys: any, "word", [some, words], /regular expression/ of a word, punctuation or special; keys also: same word, offset -1, previous sentence. Of a pair of texts: text A, text B. Of a picture: picture, words, registers, patch row 2-4, column 3-7; keys also: near patches, same row. A word in lower case matches whatever the case.', placeholder="from [he, she] to [anna, tom]")  # fmt: skip
_FIND_HELPS = {
    "mean weight": "The weight on the keys of the rule, averaged over its queries.",
    f"by chance: {BY_DISTANCE}": "The same if the head gave each distance the weight that it usually gives it in this text, whatever the words.",
    f"by chance: {UNIFORM}": "The same if every query attended to all visible keys equally.",
    "queries": "The queries of the rule that see any of its keys.",
    "strongest cell": "The query with the largest value, and its strongest key. A click opens it in Explore.",
}
_MOST_SIMILAR = 8


def order_controls(trace: Trace, orders: Choice, by: str) -> None:
    """Draws how the heads are sorted, as buttons for the metrics that people look for first, and a menu of the others."""
    words = metrics.chips(trace)
    control = describe_control(charts.SORT, orders, by, None)
    control |= {"buttons": [charts.UNSORTED, *words], "option_names": words, "more": "all metrics"}
    around = Surroundings(controls=[control], large=knob_state.is_presented())
    show.figures([], "heads_order", None, around, lambda values: _hold(values, charts.SORT, orders))


def layers_control(all_layers: bool) -> Control:
    """The buttons for all layers or the chosen one."""
    control = describe_control(LAYERS, LAYERS.range, LAYERS.range.options[not all_layers], None)  # type: ignore[attr-defined]  # it is a Choice
    return {**control, "buttons": control["options"]}


def apply_knobs(values: dict[str, Any]) -> None:
    """Sets the knobs below the heads."""
    _hold(values, LAYERS, LAYERS.range)
    knob_state.apply_controls(values)


def _hold(values: dict[str, Any], knob: Knob, within: Range) -> None:
    if knob.key in values and within.accepts(values[knob.key]):
        knob_state.hold({knob.key: values[knob.key]})


def metrics_table(page: Page, key: str) -> metrics.MetricsTable | None:
    """The metrics of all heads; None, with a button, if they take long and the user has not requested them."""
    seconds = metrics.estimated_seconds(page.trace)
    if seconds > METRIC_SECONDS:
        n_heads = sum(layer.n_heads for layer in page.trace.layers)
        if not st.button(f"Compute the metrics of {n_heads} heads (about {seconds:.0f} s)", key=f"heads_ask_{key}"):
            return None
    return heavy.run(metrics.of, page.trace, seconds=seconds, words="Computing the metrics of all heads")


def metrics_section(
    page: Page,
    table: metrics.MetricsTable,
    knobs: Knobs,
    by: str,
    open_head: Callable[[int, int], None],
    more: Iterable[Callable[..., pd.DataFrame]] = (),
) -> None:
    """Draws the table of metrics, with `more` columns from the heads in their order, and the scatter chart."""
    layer, head = page.cell.layer, page.cell.head
    by = "" if by == charts.UNSORTED else by
    order = table.sorted_by(by) if by else table.heads
    rows = frame(page.trace, table, order, by)
    for columns in more:
        rows = rows.join(columns(order))
    helps = {heading(metric): describe_metric(metric, table) for metric in metrics.all_metrics().values()}
    st.caption("Click a row to open its head in Explore. None means that the metric is not defined on this text.")
    show.clickable_table(rows, "heads_table", helps, lambda row: open_head(*order[row]))
    st.caption(describe_head(table, layer, head, by))
    show.csv("heads-metrics.csv", "heads_csv")
    points, others = st.columns([3, 2])
    with points:
        with st.container(horizontal=True):
            names = metrics.names_of(page.trace)
            across = knobs.value(charts.X_AXIS, Choice((charts.LAYER, *names)))
            up = knobs.value(charts.Y_AXIS, Choice(names))
        show.figures([charts.head_scatter_json(table, across, up, (layer, head))], "heads_chart")
    with others:
        _similar_heads(page, open_head)


def _similar_heads(page: Page, open_head: Callable[[int, int], None]) -> None:
    layer, head = page.cell.layer, page.cell.head
    st.markdown(f"**Heads similar to L{layer} H{head}**, {ON_THIS_TEXT}: smallest Jensen–Shannon distance between rows")
    seconds = estimated_seconds(page.trace, layer, head)
    if seconds > METRIC_SECONDS and not st.button(f"Compare all heads (about {seconds:.0f} s)", key="heads_compare"):
        return
    words = "Comparing all heads"
    nearest = heavy.run(metrics.similar_heads, page.trace, layer, head, seconds=seconds, words=words)[:_MOST_SIMILAR]
    if not nearest:
        st.caption("No other head has the same queries and keys.")
        return
    show.clickable_table(
        similarity_frame(nearest), "heads_alike", {}, lambda row: open_head(nearest[row][0], nearest[row][1])
    )


def _aggregate_knob() -> Knob:
    formulas = {each.name: each.step.formula for each in aggregates.AGGREGATES}
    formulas |= {each.name: each.formula for each in _head_maps().values()}
    sentences = (f"{name}: {text}." for name, text in formulas.items())
    help_ = " ".join(("The Lab never averages heads unless you choose it here.", *sentences))
    return Knob("aggregate", _NONE, Choice((_NONE, *formulas)), "Several heads as one map", help_)


def _head_maps() -> dict[str, HeadMap]:
    return {each.name: each for feature in panels() for each in feature.head_maps}


def aggregates_section(page: Page, knobs: Knobs) -> None:
    """Draws the control for the aggregate, and the chosen aggregate of the layer."""
    with st.container(width=280):
        name = knobs.value(_aggregate_knob())
    if name == _NONE:
        return
    try:
        of_feature = _head_maps().get(name)
        derived = of_feature.make(page) if of_feature else aggregates.find_aggregate(name)
        if derived is not None:
            _derived_map(page, derived, has_export=of_feature is None)
    except AttentionError as error:
        show_error(str(error))


def _derived_map(page: Page, derived: DerivedMap, has_export: bool) -> None:
    """Draws a derived map of the weights with its definition, the chosen cell, and all of its numbers; without an export of its name, its file comes with the page."""
    layer, cell = page.cell.layer, page.cell
    with scheduler.without_turn():  # computes and caches the matrix
        derived.matrix(page.trace, layer, cell.head)
    weights = page.layer.shape(WEIGHTS)
    cell = Cell(layer, WEIGHTS, cell.head, min(cell.row, weights[1] - 1), min(cell.column, weights[2] - 1))
    st.caption(plain(f"{derived.words} {derived.paper}".strip()))
    if warning := derived.warning(page.trace, layer):
        st.warning(plain(warning))

    def choose(_: str, x: int, y: int) -> None:
        knob_state.choose_cell(replace(cell, row=y, column=x))

    explanation = derived.explain(page.trace, cell)
    around = Surroundings(line=cell_line(page.trace, cell, explanation))
    figure = derived_map_json(page.trace, derived, cell, knob_state.current_value("colors"))
    picture, words = st.columns([3, 2], vertical_alignment="center")
    with picture:
        show.figures([figure], "heads_together", choose, around, knob_state.apply_controls)
    with words:
        show.arithmetic(explanation)
    draw, name = (show.table, f"{derived.name}.csv") if has_export else (show.table_in_page, derived.name)
    draw(lambda: tables.derived_frame(page.trace, derived, layer, cell.head), weights[1] * weights[2], name)


def find_section(page: Page, knobs: Knobs, open_cell: Callable[[Cell], None]) -> None:
    """Draws the field, suggestions, and the heads that were found."""
    st.markdown("## Find heads by where they look")
    text = str(knobs.value(_FIND)).strip()
    if not knobs.locked:
        with st.container(horizontal=True, gap="small", key="heads_find_examples"):
            has_patches = any(view.has_patches(layer) for layer in page.trace.layers)
            of_pair = PAIR_EXAMPLES if view.has_pair(page.layer) else ()
            is_chain = any(isinstance(token, Letter) for token in page.layer.tokens)
            of_text = RESIDUE_EXAMPLES if is_chain else EXAMPLES
            of_tokens = (*PICTURE_EXAMPLES, EXAMPLES[-1]) if has_patches else of_text
            for i, example in enumerate((*of_pair, *of_tokens)):
                change = ({_FIND.key: example},)
                st.button(plain(example), key=f"heads_find_{i}", type="tertiary", on_click=knob_state.hold, args=change)
    if not text:
        return
    try:
        rule = FindRule.parse(text)
        seconds = estimated_seconds_to_find(page.trace, rule)
        if seconds > METRIC_SECONDS and not st.button(
            f"Find these heads (about {seconds:.0f} s)", key="heads_find_ask"
        ):
            return
        heads = heavy.run(find_heads, page.trace, rule, seconds=seconds, words="Finding heads")
        found = tuple(each for each in heads if each.queries)
    except AttentionError as error:
        st.caption(plain(str(error)))
        return
    if not found:
        st.info(plain(f"No query of “{rule.text}” sees such a key in this text: try another text, or the rule over many texts (--find)."))  # fmt: skip
        return
    best = found[0]
    st.markdown(plain(f"L{best.layer} H{best.head} looks there most: {best.words}. Words: {words_rule(page.trace.layers[best.layer].key_tokens)}."))  # fmt: skip
    rows = _found_frame(page, found)
    show.clickable_table(rows, "heads_found", _FIND_HELPS, lambda row: open_cell(_strongest_cell(found[row])))
    small_download("Download CSV", rows.to_csv(index=False), "found-heads.csv", "text/csv", "heads_found_csv")


def _found_frame(page: Page, found: tuple[FoundHead, ...]) -> pd.DataFrame:
    return pd.DataFrame({
        "head": [f"L{each.layer} H{each.head}" for each in found],
        "mean weight": [each.value for each in found],
        f"by chance: {BY_DISTANCE}": [each.by_distance for each in found],
        f"by chance: {UNIFORM}": [each.uniform for each in found],
        "queries": [each.queries for each in found],
        "strongest cell": [_cell_words(page, each) for each in found],
        "its weight": [each.weight for each in found],
    }).dropna(axis="columns", how="all")  # fmt: skip


def _cell_words(page: Page, each: FoundHead) -> str:
    layer = page.trace.layers[each.layer]
    query, key = layer.tokens[each.query], layer.key_tokens[each.key]
    return f"[{each.query}] {query} → [{each.key}] {key}"


def _strongest_cell(each: FoundHead) -> Cell:
    return Cell(each.layer, WEIGHTS, each.head, each.query, each.key)
