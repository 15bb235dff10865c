"""Which part of the context an answer looks at: the spans by share, what is lost while each is hidden, and a map from span to span."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from attention import Model, spans
from attention.base.errors import AttentionError
from attention.base.knobs import Choice, Knob
from attention.base.spans import CHAT, MARKS, Span, read_marks
from attention.formula.names import WEIGHTS
from attention.sources.model import SPANS
from attention.spans import figures
from attention.spans.looked_at import Progress, hide_each
from pages.ui.page import long_run, show
from pages.ui.page.start import Page
from pages.ui.server import scheduler
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, show_error
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs

_NAME = "spans_hidden"  # of the request
_FROM = Knob("spans_from", "answer", Choice(("answer", "query"), ("the answer", "the chosen query")), "Who looks", "The answer is the text that the model generated; without it, the last query.")  # fmt: skip
_OF = Knob("spans_of", "all", Choice(("all", "head"), ("all heads", "the chosen head")), "With")  # fmt: skip
_CAVEAT = "Looking is not using: a head may look where nothing is read that matters. Hidden: no query outside of the part sees it, in all heads of all layers (attention knockout, Geva et al. 2023). The first token counts alone, since many heads look there when they look at nothing."

_MOST_DRAWN = 100


@dataclass
class _Chosen:
    cell: tuple[int, int] | None = None


def section(page: Page) -> None:
    """Draws the section; of a text without spans, the buttons that read its marks, if it has some."""
    if not page.trace.spans:
        _offer_marks(page)
        return
    knobs = Knobs(page.notes)
    with st.container(border=True, key="spans_section"):
        st.markdown("## Which part of the text does it look at?")
        left, right = st.columns([3, 2], gap="large")
        with left:
            _ranking(page, knobs)
        with right:
            _map(page)


def _offer_marks(page: Page) -> None:
    text = page.source.text if isinstance(page.source, Model) else ""
    if knob_state.is_locked() or not read_marks(text)[1]:
        return
    roles = {name for name, _, _ in read_marks(text)[1]}
    with st.container(horizontal=True, vertical_alignment="center", key="spans_offer"):
        st.caption(plain(f"The text has marks: {', '.join(f'[[{role}]]' for role in sorted(roles))}."), width="content")
        for way, words in ((MARKS, "Read them as names of its parts"), (CHAT, "Read them as a chat")):
            st.button(words, key=f"spans_{way}", type="tertiary", on_click=knob_state.hold, args=({SPANS.key: way},))


def _ranking(page: Page, knobs: Knobs) -> None:
    """Draws the spans in the order of their shares, and what is lost while each is hidden, once that is asked for."""
    trace, cell = page.trace, page.cell
    with st.container(horizontal=True, width=420):
        looks, heads = knobs.value(_FROM), knobs.value(_OF)
    row = min(cell.row, len(trace.tokens) - 1)
    query = row if looks == "query" else None
    layer, head = (cell.layer, cell.head) if heads == "head" else (None, None)
    try:
        with scheduler.without_turn():
            found = spans.looked_at(trace, query, layer=layer, head=head)
            hidden = _hidden(page, found, trace.spans, query)
    except AttentionError as error:
        st.caption(plain(str(error)))
        return
    found = hidden or found
    st.markdown(f"**{plain(found.sentence)}**")
    show.short_table(found.frame())
    st.caption(plain(_CAVEAT))
    show.csv("spans.csv", "spans_csv")


def _hidden(page: Page, found: spans.LookedAt, of: tuple[Span, ...], query: int | None) -> spans.LookedAt | None:
    source = page.source
    if (
        not isinstance(source, Model)
        or not page.trace.predictions
        or len(page.trace.input_tokens) != len(page.trace.tokens)
    ):
        return None
    place = st.empty()
    if not long_run.is_requested(place, _NAME, (source, query), "Does it matter? Hide each part in turn"):
        return None

    def label(report: Progress) -> str:
        return f"{report.done} of {report.total} parts hidden"

    try:
        report = long_run.finish(place, label, _NAME, "spans_stop", hide_each, source, of, query)
    except AttentionError as error:
        show_error(str(error))
        return None
    return None if report is None or report.result is None else found.with_hidden(report.result)


def _map(page: Page) -> None:
    """Draws what the queries of each span give to each span in the chosen head, and the arithmetic of the chosen number."""
    trace, cell, chosen = page.trace, page.cell, session().of(_Chosen)
    if not page.layer.has(WEIGHTS) or trace.tokens != page.layer.tokens:
        return
    if len(trace.spans) > _MOST_DRAWN:
        st.caption(
            f"A map from part to part is drawn of at most {_MOST_DRAWN} parts; this text has {len(trace.spans):,}."
        )
        return
    table = spans.table(trace, layer=cell.layer, head=cell.head)
    n, groups = len(table.names), [span.positions for span in trace.spans]
    row, column = (next((i for i, places in enumerate(groups) if at in places), n - 1) for at in (cell.row, min(cell.column, len(trace.tokens) - 1)))  # fmt: skip
    at = chosen.cell if chosen.cell and max(chosen.cell) < n else (row, column)

    def click(_: str, x: int, y: int) -> None:
        chosen.cell = (y, x)

    show.figures(
        [figures.span_map_json(table, f"L{cell.layer} H{cell.head}, from part to part", at)], "spans_map", click
    )
    show.arithmetic(figures.explain(trace, cell.layer, cell.head, *at))
