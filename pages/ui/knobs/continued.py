"""Continuing a notebook as one's own matrices, with the same digits."""

from __future__ import annotations

import streamlit as st

from attention import Notebook
from attention.sources.given import carried
from attention.sources.knobs import DIVISOR, GIVEN, GIVEN_HEADS, GIVES, MORE, VALID
from attention.sources.reading.text import write
from pages.ui.knobs.matrices import EDITOR
from pages.ui.knobs.session import acted, session
from pages.ui.knobs.texts import keep
from pages.ui.notes import say_later
from pages.ui.server.traces import trace_of


def offer(source: Notebook) -> None:
    """A button that makes the shown sequence the person's own matrices."""
    st.button(
        "Continue with these matrices",
        key="continue",
        on_click=_continue,
        args=(source,),
        help="Fills the source “matrices” with these numbers, to change and go on from.",
    )


def _continue(source: Notebook) -> None:
    found = carried(trace_of(source), 0)
    if found is None:
        say_later("This notebook has no scores and values: it cannot be continued.")
        return
    beside = [name for names in MORE.values() for name in names]  # nothing of what stood there before is meant
    texts = {name: write(found.matrices.get(name, ())) for name in ("w_o", *beside, *found.matrices)}
    for name, text in texts.items():
        keep(name, text)
    given = next(gives for gives, names in GIVEN.items() if found.matrices.keys() <= {*names, *MORE[gives]})
    alone = {one.key: one.default for one in (GIVEN_HEADS, DIVISOR, VALID)}
    knobs = {"source": "matrices", GIVES.key: given, **alone, **found.knobs}
    st.session_state.update(knobs)
    session().source = "matrices"  # its knobs are these, and none that was laid by
    st.session_state[EDITOR] = False
    acted()
    for sentence in found.lost:
        say_later(sentence)
