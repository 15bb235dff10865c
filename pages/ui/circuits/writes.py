"""What the chosen cell and head add to a logit, and why the chosen query looks at the chosen key: sums over the parts of the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import streamlit as st

from attention import circuits
from attention.base.errors import AttentionError
from attention.base.printed import format_number
from attention.circuits import direct_effects, figures
from attention.circuits.direct_effects import GROUP, SCORE_CAVEAT, ScoreTerms, estimate_seconds
from attention.explanation import tables
from attention.formula.names import WEIGHTS, Cell
from attention.formula.steps import find_step
from attention.models.library import LIBRARY
from attention.pictures import heatmap
from attention.pictures.heatmap import derived_map_json
from attention.pictures.marks import Spec
from attention.pictures.message import Surroundings
from attention.pictures.steps_view import cell_line, maps_over_picture
from attention.pictures.view import DISTRACTOR, HEAT, OVER, TARGET, clamp_cell
from attention.trace.readout import Readout
from pages.ui.page import show
from pages.ui.page.interventions import shown_prediction
from pages.ui.page.predictions_panel import token_field
from pages.ui.page.start import Page
from pages.ui.server import scheduler
from pages.ui.server.limits import METRIC_SECONDS
from pages.ui.server.traces import make_room_for
from pages.ui.state import knob_state
from pages.ui.state.knob_state import is_locked
from pages.ui.state.notices import plain, show_error
from pages.ui.state.session import count_action
from pages.ui.state.widgets import Knobs

_NO_MODEL = "What a head writes needs the model around it; the map shows where the head looks."
_LISTED = 1000  # terms in the table
_OPENED = "circuits_opened"


def writes_section(page: Page, knobs: Knobs) -> None:
    """Draws the weights of the chosen head, and beside them what each cell adds to the logit of the target."""
    if page.trace.model_run is None:
        _weights(page)
        st.info(_NO_MODEL)
        _ways_out()
        return
    try:
        readout = _readout(page, knobs)
        seconds = direct_effects.find_run(page.trace).estimate_seconds()
        if not _is_requested(seconds, "Compute what each part of the model adds", "circuits_ask"):
            _weights(page)
            return
        make_room_for(direct_effects.find_run(page.trace).memory_bytes())
        _maps(page, readout)
    except AttentionError as error:
        _weights(page)
        st.caption(plain(str(error)))
        return
    _heads(page, readout)

    with st.expander("The same in Python", key="circuits_python", on_change="rerun") as unfolded:
        if unfolded.open:
            st.code(direct_effects.python(page.trace, page.cell, readout), language="python")
            st.caption("With this package installed, and a name of a model or a folder that your program can read.")


def _ways_out() -> None:
    """Draws buttons that open the page on sources with a model; the text and the other knobs stay."""
    models = LIBRARY.names()
    sources = {"model": f"Ask {models[0]} about this text", "trained": "Open a tiny model, trained here in seconds"}

    def open_source(source: str) -> None:
        knob_state.hold({"source": source, **({"model": models[0]} if source == "model" else {})})
        count_action()

    with st.container(horizontal=True):
        for source, words in sources.items():
            if source != "model" or models:
                st.button(words, key=f"circuits_{source}", on_click=open_source, args=(source,), disabled=is_locked())


def _is_requested(seconds: float, words: str, key: str) -> bool:
    """Whether a computation of this many seconds may run: it is short, or the user clicks the button that this draws."""
    return seconds <= METRIC_SECONDS or st.button(f"{words} (about {seconds:.0f} s)", key=key)


def _readout(page: Page, knobs: Knobs) -> Readout:
    """What is read from the last vectors. Draws the fields for the target and the distractor, if the model predicts tokens."""
    trace = page.trace
    if not trace.predictions:
        return direct_effects.find_readout(trace)
    prediction = shown_prediction(trace)
    with st.container(horizontal=True, width=520):
        target, distractor = (token_field(page.source, prediction, knobs, knob) for knob in (TARGET, DISTRACTOR))
    wanted = target[0] if target else prediction.ids[0]
    return direct_effects.find_readout(trace, wanted, distractor[0] if distractor else None)


def _weights(page: Page) -> None:
    show.figures(_weights_map(page), "circuits_map", _choose(page), _around(page, line=True), knob_state.apply_controls)


def _around(page: Page, line: bool = False) -> Surroundings:
    """The parts around the maps, with the controls that those of all heads above do not have: over a picture."""
    return replace(page.around(line=line, only=(OVER.key, HEAT.key)), override=None)


def _weights_map(page: Page) -> list[Spec]:
    if not page.layer.has(WEIGHTS):
        return []
    cell, colors = page.cell, knob_state.current_value("colors")
    of_weights = clamp_cell(replace(cell, step=WEIGHTS), page.layer)
    over = maps_over_picture(page.trace, of_weights, colors, page.over_picture)
    return [*over, heatmap.heatmap_json(page.trace, WEIGHTS, cell.layer, cell.head, cell, colors)]


def _choose(page: Page) -> Callable[[str, int, int], None]:
    def choose(_: str, x: int, y: int) -> None:
        knob_state.choose_cell(replace(page.cell, step=WEIGHTS, row=y, column=x))

    return choose


def _maps(page: Page, readout: Readout) -> None:
    """Draws both maps, and the arithmetic of the chosen cell."""
    derived, cell = direct_effects.writes_map(readout), page.cell
    with scheduler.without_turn():  # runs the model once more, and keeps the result
        shape = derived.matrix(page.trace, cell.layer, cell.head).shape
    cell = Cell(cell.layer, WEIGHTS, cell.head, min(cell.row, shape[0] - 1), min(cell.column, shape[1] - 1))
    explanation = derived.explain(page.trace, cell)
    around = replace(_around(page), line=cell_line(page.trace, cell, explanation))
    drawn = [*_weights_map(page), derived_map_json(page.trace, derived, cell)]
    show.figures(drawn, "circuits_map", _choose(page), around, knob_state.apply_controls)
    show.arithmetic(explanation)
    st.caption(plain(f"{derived.words} {direct_effects.CAVEAT}"))
    if readout.tokens:
        with scheduler.without_turn():
            likeliest = direct_effects.likeliest_frame(page.trace, cell, shown_prediction(page.trace))
        show.chart_table(likeliest, "circuits-likeliest", "What this cell adds to each of the likeliest tokens")
    frame = direct_effects.factor_frame(page.trace, cell, readout)
    show.chart_table(frame, "circuits-factor", f"The second factor as a sum of {len(frame)} products")
    show.chart_table(
        tables.derived_frame(page.trace, derived, cell.layer, cell.head).reset_index(), "circuits-writes", "What every cell adds, as a table"
    )  # fmt: skip


def _heads(page: Page, readout: Readout) -> None:
    """Draws what every part of the model adds to the logit at the chosen query, in order."""
    tokens: list[int | None] = [token for token, _ in readout.tokens] or [None]
    position = min(page.cell.row, len(page.trace.input_tokens or page.trace.tokens) - 1)
    try:
        with scheduler.without_turn():
            parts = circuits.logit_parts(page.trace, position, *tokens)
    except AttentionError as error:
        show_error(str(error))
        return
    words = f"{parts.words[0].upper()}{parts.words[1:]} is {format_number(parts.total)}."
    st.markdown("### What every part of the model adds")
    st.markdown(plain(f"{words} {parts.describe()}"))
    show.chart_table(
        parts.sorted_frame(), "circuits-parts", "Every head, MLP, the embedding and the biases, by what they add"
    )


def score_terms_section(page: Page, _: Knobs) -> None:
    """Draws the terms of the chosen score as a map, grouped by layer; a click opens the layers of a cell."""
    if page.trace.model_run is None:
        return
    cell = page.cell
    st.markdown("### Why this score")
    try:
        if direct_effects.find_run(page.trace).estimate_seconds() > METRIC_SECONDS:
            st.caption("The terms of the score need the same run as what the parts of the model add, above.")
            return
        seconds = estimate_seconds(page.trace, cell.layer, cell.head, cell.row, cell.column)
        if not _is_requested(seconds, "Compute the terms of this score", "circuits_terms_ask"):
            return
        with scheduler.without_turn():
            terms = circuits.score_terms(page.trace, cell.layer, cell.head, cell.row, cell.column)
    except AttentionError as error:
        st.caption(plain(str(error)))
        return
    st.markdown(plain(" ".join(terms.describe())))
    opened_query, opened_key = st.session_state.get(_OPENED, (None, None))
    grouped = terms.by_layer(opened_query, opened_key)

    def click(_: str, x: int, y: int) -> None:
        """Opens a layer, and closes it where one of its parts is clicked."""
        query, key = grouped.query_sources[y], grouped.key_sources[x]
        st.session_state[_OPENED] = (
            query.layer if query.kind == GROUP else None if query.layer is not None else opened_query,
            key.layer if key.kind == GROUP else None if key.layer is not None else opened_key,
        )

    title = f"Score of L{cell.layer} H{cell.head}, query {cell.row}, key {cell.column}"
    show.figures([figures.score_terms_map_json(grouped, title)], "circuits_terms", click)
    st.caption(
        plain(
            f"{SCORE_CAVEAT} Click a cell to open its layers, and a part of an opened layer to close it. {_later(terms)}"
        )
    )
    show.chart_table(terms.frame(_LISTED), "circuits-score-terms", "The largest terms as a table")


def _later(terms: ScoreTerms) -> str:
    names = " + ".join(f"{format_number(value)} ({find_step(name).symbol})" for name, value in terms.later)
    return f"The softmax gets {names}." if names else ""
