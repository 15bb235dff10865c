"""The model's prediction under the maps: the likeliest tokens before and after the interventions, or how far its vectors moved."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from attention import Model, Prediction, Source, TextError, Trace
from attention.base.knobs import Knob, NameOrText
from attention.base.printed import format_near_one, format_number
from attention.base.tokens import ClassName, Patch, isolated, label
from attention.explanation import predictions
from attention.explanation.predictions import TokenPrediction, VectorShift
from attention.pictures.view import DISTRACTOR, TARGET
from attention.sources import Intervenable
from attention.sources.layer_knobs import PREFIX_LEN
from pages.ui.page import show
from pages.ui.page.interventions import continues_text, shown_prediction
from pages.ui.server.traces import unchanged_predictions
from pages.ui.state import knob_state
from pages.ui.state.notices import plain, show_error
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs

if TYPE_CHECKING:
    from pages.ui.page.start import Page

_PICTURE = "<span class='previous'>[picture]</span>"
_MOST_MOVED = 8  # tokens whose vectors are listed; the table has all


def panel(page: Page) -> None:
    """Draws the model's predictions after the text or for its mask tokens; nothing if the source is not a model."""
    trace = page.trace
    if not (trace.predictions or trace.no_prediction_reason):
        return
    before = unchanged_predictions(page.source)
    knobs = Knobs(page.notes)
    with st.container(border=True, key="says"):
        if not trace.predictions:
            st.markdown("**What the model predicts**")
            st.caption(plain(trace.no_prediction_reason))
            _vectors(predictions.vector_shifts(before, trace) if before else ())
            return
        _scrubber(page)
        prediction = shown_prediction(trace)
        unchanged = predictions.matching_prediction(prediction, trace, before) if before else None
        fields, result = st.columns([1, 3], gap="medium")
        with fields:
            target = token_field(page.source, prediction, knobs, TARGET)
            distractor = token_field(page.source, prediction, knobs, DISTRACTOR)
            _position_button(page)
        watched = tuple(token for token in (target, distractor) if token)
        rows = predictions.top_tokens(prediction, unchanged, watched)
        with result:
            lines = predictions.summarize(prediction, unchanged, target, distractor)
            st.markdown(f"**{plain(_where(prediction))}** {plain(' '.join(lines))}")
            if before and not unchanged:
                st.caption(
                    "The unchanged model wrote a different text up to this token, so there is nothing to compare."
                )
            st.html(_table(rows, {token for token, _ in watched}))
        show.chart_table(predictions.frame(rows), "predictions", "As a table: log-probability, logit, rank")


def _where(prediction: Prediction) -> str:
    if prediction.classifies:
        return "The class of the picture:"
    token = isolated(label(prediction.before, 20, escape=False))
    return f"{'In place of' if prediction.fills_mask else 'After'} {token} (token {prediction.position}):"


def _scrubber(page: Page) -> None:
    """Draws a slider over the generated tokens, which also changes text and maps, or over several predictions of one text."""
    trace, predicted = page.trace, page.trace.predictions
    generates = continues_text(trace)
    last = trace.generated + len(trace.continuation) if generates else len(predicted) - 1
    if last and not knob_state.is_locked():
        st.session_state["said_step"] = trace.generated if generates else predicted.index(shown_prediction(trace))
        st.select_slider(
            "Generated tokens" if generates else "Prediction", tuple(range(last + 1)), key="said_step", on_change=_step, args=(page, last),
            help="Shows the text, its maps and the next prediction after this number of generated tokens." if generates else None,
        )  # fmt: skip
    if generates:
        st.html(_generated_text(trace, shown_prediction(trace)))


def _step(page: Page, last: int) -> None:
    """Selects the text after some generated tokens, or another prediction, and chooses the row of its position."""
    at, trace = int(st.session_state["said_step"]), page.trace
    if continues_text(trace):
        knob_state.hold({PREFIX_LEN.key: None if at == last else at, "predict": ""})
        row = len(trace.input_tokens) - trace.generated + at - 1
    else:
        knob_state.hold({PREFIX_LEN.key: at})
        row = trace.predictions[at].position
    if len(trace.input_tokens) == len(page.layer.tokens):
        knob_state.choose_cell(replace(page.cell, row=row))


def _position_button(page: Page) -> None:
    if not isinstance(page.source, Model) or knob_state.is_locked() or page.trace.predictions[-1].classifies:
        return
    row, rows_are_tokens = page.cell.row, len(page.trace.input_tokens) == len(page.layer.tokens)
    if knob_state.current_value("predict"):
        st.button("Back to the default position", key="predict_back", on_click=knob_state.hold, args=({"predict": ""},))
    elif rows_are_tokens and row not in {prediction.position for prediction in page.trace.predictions}:
        help_ = "Shows the prediction after the chosen query, which is the outlined row of the maps."
        st.button(f"Predict after query {row}", key="predict_here", on_click=knob_state.hold, args=({"predict": str(row)},), help=help_)  # fmt: skip


def _generated_text(trace: Trace, prediction: Prediction) -> str:
    """The text as HTML: up to the shown token, and the tokens generated after it. Patches side by side are one picture."""
    tokens = (*trace.input_tokens, *trace.continuation)
    first = max(0, len(trace.input_tokens) - trace.generated - 6)
    pieces: list[str] = []
    for position, token in enumerate(tokens[first:], first):
        if isinstance(token, Patch):
            if pieces[-1:] != [_PICTURE]:
                pieces.append(_PICTURE)
            continue
        after = position - prediction.position
        kind = "previous" if after <= 0 else "current" if after == 1 else "upcoming"
        pieces.append(f"<span class='{kind}'>{label(token)}</span>")
    return f"<p class='generated'>… {' '.join(pieces)}</p>"


def _token(source: Source, prediction: Prediction, text: str) -> tuple[int, str]:
    """The id and label of the token in a text: one of the likeliest, or the source's tokenization."""
    labels = [label(token, escape=False) for token in prediction.tokens]
    if labels.count(text) == 1:
        index = labels.index(text)
        return prediction.ids[index], prediction.tokens[index] if prediction.classifies else text
    assert isinstance(source, Intervenable)  # every source with predictions is
    return source.find_token(text)


def token_field(source: Source, prediction: Prediction, knobs: Knobs, knob: Knob) -> tuple[int, str] | None:
    """The token typed into a field, which one panel of a page draws; None if it is empty or, after an error message, not a token."""
    if knob.key in session().read:
        return _typed_token(source, prediction, knob)
    labels = tuple(dict.fromkeys(label(token, escape=False) for token in prediction.tokens))
    typed = knobs.value(knob, NameOrText(40, options=labels))
    try:
        return _token(source, prediction, typed) if typed else None
    except TextError as error:
        show_error(str(error))
        return None


def _typed_token(source: Source, prediction: Prediction, knob: Knob) -> tuple[int, str] | None:
    """The token in a field that another panel of the page draws; None if it is empty, or no token, as that panel says."""
    typed = knob_state.standing(knob.key)
    with suppress(TextError):
        return _token(source, prediction, typed) if typed else None
    return None


def _table(rows: Sequence[TokenPrediction], watched: set[int]) -> str:
    compared = any(row.before for row in rows)
    most = max(state.probability for row in rows for state in (row, row.before) if state)
    what = "class" if any(isinstance(row.token, ClassName) for row in rows) else "token"
    head = f"<th>rank<th>{what}<th>probability<th class='n'>" + ("before → after" if compared else "")
    body = "".join(_row(row, row.id in watched, most) for row in rows)
    return f"<table class='predictions'><thead><tr>{head}<th class='n more'>log p<th class='n more'>logit</thead><tbody>{body}</tbody></table>"


def _row(token: TokenPrediction, watched: bool, most: float) -> str:
    before = token.before
    bar_before = f"<i style='width:{_bar_width(before.probability, most)}'></i>" if before else ""
    digits_before = f"{format_number(before.probability)} → " if before else ""
    direction = "up" if token.rank_change.startswith("↑") else "down"
    moved = f" <small class='{direction}'>{token.rank_change}</small>" if token.rank_change else ""
    return (
        f"<tr{' class=watched' if watched else ''}><td>{token.rank:,}{moved}<td><code>{label(token.token)}</code>"
        f"<td class='bar'>{bar_before}<b style='width:{_bar_width(token.probability, most)}'></b>"
        f"<td class='n'>{digits_before}<strong>{format_number(token.probability)}</strong>"
        f"<td class='n more'>{format_number(token.log_probability)}<td class='n more'>{format_number(token.logit)}"
    )


def _bar_width(value: float, most: float) -> str:
    return f"{100 * value / (most or 1):.2f}%"


def _vectors(moved: Sequence[VectorShift]) -> None:
    """Draws how far the vectors of tokens have moved, largest first."""
    if not moved:
        return
    st.markdown(plain(predictions.describe_shifts(moved)))
    most = max(1 - vector.cosine for vector in moved)
    rows = "".join(
        f"<tr><td>{vector.position}<td><code>{label(vector.token)}</code><td class='bar'><b style='width:{_bar_width(1 - vector.cosine, most)}'></b>"
        f"<td class='n'><strong>{format_near_one(vector.cosine)}</strong>"
        for vector in sorted(moved, key=lambda vector: vector.cosine)[:_MOST_MOVED]
    )
    head = "<th>position<th>token<th>moved<th class='n'>cosine"
    st.html(f"<table class='predictions'><thead><tr>{head}</thead><tbody>{rows}</tbody></table>")
    show.chart_table(predictions.shifts_frame(moved), "vectors", "The cosine of every token")
