"""Find: the heads that look from some tokens to others, by a rule that the user types."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd
import streamlit as st

from attention import Cell
from attention.analysis.metrics.find_parser import MAX_RULE
from attention.analysis.metrics.find_rule import EXAMPLES, PICTURE_EXAMPLES, FindRule
from attention.analysis.metrics.found_heads import FoundHead, estimated_seconds, find_heads
from attention.core.names import WEIGHTS
from attention.errors import AttentionError
from attention.params.knob import Knob
from attention.params.ranges import Text
from attention.pictures import view
from attention.printed import format_number
from pages.ui.exports.links import small_download
from pages.ui.page import show
from pages.ui.page.start import Page
from pages.ui.server import scheduler
from pages.ui.server.limits import METRIC_SECONDS
from pages.ui.state.notices import plain
from pages.ui.state.session import count_action
from pages.ui.state.widgets import Knobs

FIND = Knob("heads_find", "", Text(MAX_RULE), "Find heads that look …", 'From queries to keys: any, "word", [some, words], /regular expression/ of a word, punctuation or special; keys also: same word, offset -1, previous sentence. Of a picture: picture, words, registers, patch row 2-4, column 3-7; keys also: near patches, same row. A word in lower case matches whatever the case.', placeholder="from [he, she] to [anna, tom]")  # fmt: skip
_HELPS = {
    "mean weight": "The weight on the keys of the rule, averaged over its queries.",
    "by chance": "The same if every query attended to all visible keys equally.",
    "queries": "The queries of the rule that see any of its keys.",
    "strongest cell": "The query with the largest value, and its strongest key. A click opens it in the Lab.",
}


def find_section(page: Page, knobs: Knobs, open_cell: Callable[[Cell], None]) -> None:
    """Draws the field, suggestions, and the heads that were found."""
    st.markdown("## Find heads by where they look")
    text = str(knobs.value(FIND)).strip()
    if not knobs.locked:
        with st.container(horizontal=True, gap="small", key="heads_find_examples"):
            has_patches = any(view.has_patches(layer) for layer in page.trace.layers)
            for i, example in enumerate((*PICTURE_EXAMPLES, EXAMPLES[-1]) if has_patches else EXAMPLES):
                st.button(plain(example), key=f"heads_find_{i}", type="tertiary", on_click=_suggest, args=(example,))
    if not text:
        return
    try:
        rule = FindRule.parse(text)
        seconds = estimated_seconds(page.trace, rule)
        if seconds > METRIC_SECONDS and not st.button(
            f"Find these heads (about {seconds:.0f} s)", key="heads_find_ask"
        ):
            return
        with scheduler.without_turn():
            found = tuple(each for each in find_heads(page.trace, rule) if each.queries)
    except AttentionError as error:
        st.caption(plain(str(error)))
        return
    if not found:
        st.info(plain(f"No query of “{rule.text}” sees such a key in this text: try another text, or the rule over many texts (--find)."))  # fmt: skip
        return
    best = found[0]
    st.markdown(plain(f"L{best.layer} H{best.head} looks there most: {format_number(best.value)}, by chance {format_number(best.uniform)}, over {best.queries:,} of its queries."))  # fmt: skip
    rows = _frame(page, found)
    show.clickable_table(rows, "heads_found", _HELPS, lambda row: open_cell(_cell(found[row])))
    small_download("Download CSV", rows.to_csv(index=False), "found-heads.csv", "text/csv", "heads_found_csv")


def _frame(page: Page, found: tuple[FoundHead, ...]) -> pd.DataFrame:
    """The heads as a table."""
    return pd.DataFrame({
        "head": [f"L{each.layer} H{each.head}" for each in found],
        "mean weight": [each.value for each in found],
        "by chance": [each.uniform for each in found],
        "queries": [each.queries for each in found],
        "strongest cell": [_words(page, each) for each in found],
        "its weight": [each.weight for each in found],
    })  # fmt: skip


def _words(page: Page, each: FoundHead) -> str:
    layer = page.trace.layers[each.layer]
    query, key = layer.tokens[each.query], layer.key_tokens[each.key]
    return f"[{each.query}] {query} → [{each.key}] {key}"


def _cell(each: FoundHead) -> Cell:
    return Cell(each.layer, WEIGHTS, each.head, each.query, each.key)


def _suggest(rule: str) -> None:
    count_action()
    st.session_state[FIND.key] = rule
