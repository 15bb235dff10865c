"""What the chosen head copies and matches, from the parameters of the model; and on which tokens the prediction depends, by relevance."""

from __future__ import annotations

import streamlit as st

from attention import circuits
from attention.base.errors import AttentionError
from attention.base.knobs import Choice, Knob, Text
from attention.circuits import copying, figures, token_relevance
from attention.explanation.derived import DerivedMap
from attention.formula.names import WEIGHTS, Cell
from attention.pictures.charts import HeadQuantity, head_map_json
from attention.pictures.view import TARGET
from pages.ui.page import show
from pages.ui.page.interventions import shown_prediction
from pages.ui.page.predictions_panel import token_field
from pages.ui.page.start import Page
from pages.ui.server import heavy, scheduler
from pages.ui.server.limits import METRIC_SECONDS
from pages.ui.state import knob_state
from pages.ui.state.knob_state import standing
from pages.ui.state.notices import plain, show_error
from pages.ui.state.widgets import Knobs

_TOKEN = Knob(
    "copied", "", Text(40), "Token that it reads", "Empty: the chosen key. Or any other token of the model; type · for a space."
)  # fmt: skip
_METHOD = Knob(
    "relevance", token_relevance.ATTNLRP.name,
    Choice(tuple(method.name for method in token_relevance.METHODS), tuple(method.title for method in token_relevance.METHODS)),
    "Method", " ".join(f"{method.title}: {method.paper}." for method in token_relevance.METHODS),
)  # fmt: skip


def copying_section(page: Page, knobs: Knobs) -> None:
    """Draws what the chosen head copies and matches, in an expander; nothing if the source has no model."""
    if page.trace.model_run is None:
        return
    layer, head = page.cell.layer, page.cell.head
    with st.expander(
        "What this head copies, and what it matches", key="circuits_copying", on_change="rerun"
    ) as unfolded:
        if not unfolded.open:
            return
        for draw in (_tokens, _scores, _matching):
            try:
                draw(page, knobs, layer, head)
            except AttentionError as error:
                st.caption(plain(str(error)))


def _tokens(page: Page, knobs: Knobs, layer: int, head: int) -> None:
    """Draws the tokens that the head raises and lowers most when it reads the chosen key, or a typed token."""
    st.markdown("### What it copies")
    with st.container(width=320):
        typed = knobs.value(_TOKEN)
    with scheduler.without_turn():
        copied = circuits.copied_tokens(page.trace, layer, head, typed or None, None if typed else page.cell.column)
    st.markdown(plain(copied.description))
    st.caption(copying.TOKENS_CAVEAT)
    show.figures([figures.token_bars_json(copied, raised) for raised in (True, False)], "circuits_copied")
    show.chart_table(copied.frame(), "copied-tokens", "The tokens as a table")


def _scores(page: Page, _: Knobs, layer: int, head: int) -> None:
    """Draws the head's copying score and eigenvalues, and the scores of all heads as a map."""
    st.markdown("### Does it copy?")
    if (seconds := copying.copying_seconds(page.trace)) > METRIC_SECONDS:
        label_ = f"Compute the copying scores of all heads (about {seconds:.0f} s)"
        if not st.button(label_, key="circuits_copying_ask"):
            return
    with scheduler.without_turn():
        spectrum = circuits.ov_spectrum(page.trace, layer, head)
    scores = None
    if not spectrum.no_score_reason:
        words = "Computing the copying scores"
        scores = heavy.run(circuits.CopyingScores.of, page.trace, seconds=seconds, words=words)
    charts = [figures.eigenvalues_json(spectrum)]
    if scores is None:
        st.caption(plain(f"There is no copying score: {spectrum.no_score_reason}"))
    else:
        st.markdown(plain(scores.describe(layer, head, spectrum.centered_copying_score)))
        st.caption(copying.SCORE_CAVEAT)
        words = "Σλ/Σ|λ| of W_E W_V W_O W_U of each head"
        quantity = HeadQuantity("Copying scores", "copying score", words, "copying-scores")
        charts.insert(0, head_map_json(scores.values, quantity, (layer, head)))

    def click(_: str, x: int, y: int) -> None:
        if scores is not None and (y, x) in scores.heads:
            knob_state.choose_cell(Cell(y, WEIGHTS, x, page.cell.row, page.cell.column))

    show.figures(charts, "circuits_copying_scores", click)
    st.caption(plain(spectrum.description))
    if scores is not None:
        show.chart_table(scores.frame(), "copying-scores", "The copying scores as a table")
    show.chart_table(spectrum.frame(), "ov-spectrum", "The OV spectrum as a table")


def _matching(page: Page, _: Knobs, layer: int, head: int) -> None:
    """Draws the QK spectrum by the offset of the key."""
    st.markdown("### What it matches")
    with scheduler.without_turn():
        found = circuits.qk_spectra(page.trace, layer, head)
    st.caption(plain(copying.describe_qk(found)))
    if found[0].rotated:
        show.figures(figures.qk_by_offset_json(found), "circuits_matching")
    show.chart_table(copying.qk_frame(found), "qk-spectrum", "The QK spectrum as a table")


def relevance_section(page: Page, knobs: Knobs) -> None:
    """Draws the relevance of each token for the shown prediction, in an expander that computes it when it is opened."""
    if page.trace.model_run is None:
        return
    with st.expander(
        "Which tokens the prediction depends on: relevance", key="relevance_open", on_change="rerun"
    ) as unfolded:
        if not unfolded.open:
            return
        try:
            with st.container(horizontal=True, width=560, vertical_alignment="bottom"):
                method = knobs.value(_METHOD)
                if page.trace.predictions:
                    token_field(page.source, shown_prediction(page.trace), knobs, TARGET)
            result = _chosen_relevance(page, method, "tokens")
        except AttentionError as error:
            show_error(str(error))
            return
        if result is not None:
            _draw_relevance(page, result)


def gradient_map(page: Page) -> DerivedMap | None:
    """Attention × gradient of the layers, as a map; None, with a button, if it takes long and is not requested.

    Raises:
        AttentionError: as for `token_relevance.relevance`.
    """
    result = _chosen_relevance(page, token_relevance.ATTENTION_GRADIENT.name, "map")
    return None if result is None else token_relevance.gradient_map(result)


def _chosen_relevance(page: Page, method: str, key: str) -> token_relevance.Relevance | None:
    """The relevance for the shown prediction and the chosen target; None, with a button, if it takes long and is not requested."""
    trace = page.trace
    position = shown_prediction(trace).position if trace.predictions else None
    seconds = token_relevance.estimate_seconds(trace, method)
    if seconds > METRIC_SECONDS and not st.button(
        f"Compute the relevance (about {seconds:.0f} s)", key=f"relevance_{key}"
    ):
        return None
    target, words = standing(TARGET.key) or None, "Running the model backwards"
    return heavy.run(token_relevance.relevance, trace, method, target, position, seconds=seconds, words=words)


def _draw_relevance(page: Page, result: token_relevance.Relevance) -> None:
    cell, is_attnlrp = page.cell, result.method is token_relevance.ATTNLRP
    st.html(figures.token_row_html(result.tokens, result.values.tolist(), result.position))
    st.markdown(plain(result.summary))
    st.caption(plain(f"{result.method.caveat} {result.method.paper}."))
    show.chart_table(result.frame(), f"relevance-{result.method.name}")
    if not is_attnlrp:
        st.caption("The map of each layer is on the page Heads, under “Several heads as one map”.")
        return

    def choose(_: str, x: int, y: int) -> None:
        knob_state.choose_cell(Cell(y, WEIGHTS, x, cell.row, cell.column), page.trace.layers[y])

    show.figures(
        [figures.head_relevance_json(result.heads, result.target_token, (cell.layer, cell.head))],
        "relevance_heads",
        choose,
    )
    st.caption(plain(result.summary_of_heads))
    show.chart_table(result.frame_of_heads(), "relevance-of-heads", "The heads as a table")
