"""What the model says, under the maps: the likeliest tokens before and after what is changed in it, or how far its vectors moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import streamlit as st

from attention import Model, Prediction, Source, TextError, Trace
from attention.formula.knobs import Knob
from attention.formula.ranges import Named
from attention.numbers import predictions
from attention.numbers.predictions import Moved, Said
from attention.printed import beside_one, shown
from attention.sources import Changeable
from attention.sources.knobs import SAID
from attention.tokens import label
from pages.ui import show
from pages.ui.headline import looked_at, writes_on
from pages.ui.knobs import inputs
from pages.ui.knobs.widgets import Knobs, locked
from pages.ui.notes import plain
from pages.ui.server.traces import said_unchanged

if TYPE_CHECKING:
    from pages.ui.start import Page

TARGET = Knob(
    "target", "", Named(40), "Target", "The token to watch; empty: the likeliest of the unchanged model. Type one, · is a blank.")  # fmt: skip
DISTRACTOR = Knob(
    "against", "", Named(40), "Against", "A token to compare it with: the difference of their logits is shown.")  # fmt: skip
MOST_MOVED = 8  # tokens whose vectors are listed; the table has all


def panel(page: Page) -> None:
    """What the model says after the text, or in place of its masks; nothing where the source is no model."""
    trace = page.trace
    if not (trace.predictions or trace.unpredicted):
        return
    before = said_unchanged(page.source)
    knobs = Knobs(page.notes)
    with st.container(border=True, key="says"):
        if not trace.predictions:
            st.markdown("**What the model says**")
            st.caption(plain(trace.unpredicted))
            _vectors(predictions.moved(before, trace) if before else ())
            return
        _scrubber(page)
        one = looked_at(trace)
        was = predictions.before_of(one, trace, before) if before else None
        fields, said = st.columns([1, 3], gap="medium")
        with fields:
            target = token_field(page.source, one, knobs, TARGET)
            against = token_field(page.source, one, knobs, DISTRACTOR)
            _elsewhere(page)
        named = tuple(token for token in (target, against) if token)
        rows = predictions.likeliest(one, was, named)
        with said:
            lines = predictions.summed_up(one, was, target, against)
            st.markdown(f"**{plain(_where(one))}** {plain(' '.join(lines))}")
            if before and not was:
                st.caption("The unchanged model has written something else up to here: there is nothing to compare.")
            st.html(_table(rows, {token for token, _ in named}))
        show.twin(predictions.frame(rows), "predictions", "All of its numbers: log-probability, logit, rank")


def _where(one: Prediction) -> str:
    token = label(one.before, 20, escape=False)
    return f"{'In place of' if one.fills else 'After'} {token} (token {one.position}):"


def _scrubber(page: Page) -> None:
    """Steps through what the model writes, text and maps with it; or through several predictions of one text."""
    trace, there = page.trace, page.trace.predictions
    writes = writes_on(trace)
    last = trace.generated + len(trace.later) if writes else len(there) - 1
    if last and not locked():
        st.session_state["said_step"] = trace.generated if writes else there.index(looked_at(trace))
        st.select_slider(
            "Tokens it has written" if writes else "Which prediction", tuple(range(last + 1)), key="said_step", on_change=_step, args=(page, last),
            help="The text, its maps and what comes next, as they were after so many tokens." if writes else None,
        )  # fmt: skip
    if writes:
        st.html(_written(trace, looked_at(trace)))


def _step(page: Page, last: int) -> None:
    """Shows the text as it was after so many tokens, or another prediction; the row that it is read in is chosen."""
    at, trace = int(st.session_state["said_step"]), page.trace
    if writes_on(trace):
        inputs.hold({SAID.key: None if at == last else at, "predict": ""})
        row = len(trace.read) - trace.generated + at - 1
    else:
        inputs.hold({SAID.key: at})
        row = trace.predictions[at].position
    if len(trace.read) == len(page.layer.tokens):
        inputs.choose(replace(page.cell, row=row))


def _elsewhere(page: Page) -> None:
    """A button that reads what the model says at the chosen query, and one that leads back."""
    if not isinstance(page.source, Model) or locked():
        return
    row, there = page.cell.row, len(page.trace.read) == len(page.layer.tokens)
    if inputs.now("predict"):
        st.button("Back to where it is usually read", key="predict_back", on_click=inputs.hold, args=({"predict": ""},))
    elif there and row not in {said.position for said in page.trace.predictions}:
        help_ = "What the model says after the chosen query, the row that is outlined in the maps."
        st.button(f"Read it at query {row}", key="predict_here", on_click=inputs.hold, args=({"predict": str(row)},), help=help_)  # fmt: skip


def _written(trace: Trace, one: Prediction) -> str:
    """What the model has written, up to the token that is looked at, and what will come."""
    whole = (*trace.read, *trace.later)
    first = max(0, len(trace.read) - trace.generated - 6)
    pieces = []
    for at, token in enumerate(whole[first:], first):
        kind = "now" if at == one.position + 1 else "later" if at > one.position else "told"
        pieces.append(f"<span class='{kind}'>{label(token)}</span>")
    return f"<p class='written'>… {' '.join(pieces)}</p>"


def _token(source: Source, one: Prediction, text: str) -> tuple[int, str]:
    """The token that is meant by a text: one of the likeliest, or what the source makes of it.

    Raises:
        TextError: it is none, or several.
    """
    there = [label(token, escape=False) for token in one.tokens]
    if there.count(text) == 1:
        return one.ids[there.index(text)], text
    assert isinstance(source, Changeable)  # whatever makes predictions is
    return source.token(text)


def token_field(source: Source, one: Prediction, knobs: Knobs, knob: Knob) -> tuple[int, str] | None:
    """The token that a field names; None where it is empty, or names none, which is said."""
    there = tuple(dict.fromkeys(label(token, escape=False) for token in one.tokens))
    typed = knobs.value(knob, Named(40, there=there))
    try:
        return _token(source, one, typed) if typed else None
    except TextError as error:
        show.problem(str(error))
        return None


def _table(rows: Sequence[Said], watched: set[int]) -> str:
    """The tokens with their probabilities, before and after, as bars and in digits."""
    compared = any(one.before for one in rows)
    most = max(one.probability for row in rows for one in (row, row.before) if one)
    head = "<th>rank<th>token<th>probability<th class='n'>" + ("before → after" if compared else "")
    body = "".join(_row(one, one.id in watched, most) for one in rows)
    return f"<table class='said'><thead><tr>{head}<th class='n more'>log p<th class='n more'>logit</thead><tbody>{body}</tbody></table>"


def _row(one: Said, watched: bool, most: float) -> str:
    before = one.before
    was = f"<i style='width:{_wide(before.probability, most)}'></i>" if before else ""
    earlier = f"{shown(before.probability)} → " if before else ""
    moved = f" <small class='{'up' if one.moved.startswith('↑') else 'down'}'>{one.moved}</small>" if one.moved else ""
    return (
        f"<tr{' class=watched' if watched else ''}><td>{one.rank:,}{moved}<td><code>{label(one.token)}</code>"
        f"<td class='bar'>{was}<b style='width:{_wide(one.probability, most)}'></b>"
        f"<td class='n'>{earlier}<strong>{shown(one.probability)}</strong>"
        f"<td class='n more'>{shown(one.log_probability)}<td class='n more'>{shown(one.logit)}"
    )


def _wide(share: float, most: float) -> str:
    """The width of a bar; the longest has all of the room."""
    return f"{100 * share / (most or 1):.2f}%"


def _vectors(moved: Sequence[Moved]) -> None:
    """How far the vectors of tokens have moved, those first that moved the most."""
    if not moved:
        return
    st.markdown(plain(predictions.moved_in_words(moved)))
    most = max(1 - one.cosine for one in moved)
    rows = "".join(
        f"<tr><td>{one.position}<td><code>{label(one.token)}</code><td class='bar'><b style='width:{_wide(1 - one.cosine, most)}'></b>"
        f"<td class='n'><strong>{beside_one(one.cosine)}</strong>"
        for one in sorted(moved, key=lambda one: one.cosine)[:MOST_MOVED]
    )
    head = "<th>position<th>token<th>moved<th class='n'>cosine"
    st.html(f"<table class='said'><thead><tr>{head}</thead><tbody>{rows}</tbody></table>")
    show.twin(predictions.moved_frame(moved), "vectors", "The cosine of every token")
