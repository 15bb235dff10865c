"""The likeliest contacts of a protein, and what each head adds to the chosen one."""

from __future__ import annotations

from dataclasses import replace

import streamlit as st

from attention.base.errors import AttentionError
from attention.base.tokens import Letter, label
from attention.formula.names import WEIGHTS
from attention.pictures.view import VIEW
from attention.proteins import contact_table, contact_terms
from attention.proteins.contact_map import NAME, NEAREST, estimate_seconds, has_contacts
from pages.ui.page import show
from pages.ui.page.start import Page
from pages.ui.server import heavy, scheduler
from pages.ui.server.limits import METRIC_SECONDS
from pages.ui.state import knob_state
from pages.ui.state.notices import plain

_HELPS = {
    "i": "The number of a residue, from 1.",
    "distance": f"Along the chain. Pairs less than {NEAREST} apart touch in every fold, and are left out.",
    "probability": "That they touch: their Cβ atoms are less than 8 Å apart.",
}


def section(page: Page) -> None:
    """Draws the section; nothing for a model without contacts."""
    if not has_contacts(page.trace):
        return
    with st.container(border=True, key="proteins_section"):
        st.markdown("## Which residues touch?")
        seconds = estimate_seconds(page.trace)
        if seconds > METRIC_SECONDS and not st.button(
            f"Predict the contacts (about {seconds:.0f} s)", key="proteins_ask"
        ):
            return
        try:
            rows = heavy.run(contact_table, page.trace, seconds=seconds, words="Predicting contacts")
        except AttentionError as error:
            st.caption(plain(str(error)))
            return
        likeliest, terms = st.columns(2, gap="large")
        with likeliest:
            places = [i for i, token in enumerate(page.trace.tokens) if isinstance(token, Letter)]
            st.caption(
                f"The {len(rows)} likeliest contacts of {len(places)} residues, by the weights of all heads. A click shows the pair on the map."
            )

            def open_pair(row: int) -> None:
                i, j = (places[int(rows[name][row]) - 1] for name in ("i", "j"))
                knob_state.choose_cell(replace(page.cell, step=WEIGHTS, row=i, column=j), page.layer)
                knob_state.hold({VIEW.key: NAME})

            show.clickable_table(rows, "proteins_contacts", _HELPS, open_pair)
            show.csv("contacts.csv", "proteins_csv")
        with terms:
            _terms(page)


def _terms(page: Page) -> None:
    tokens = page.trace.tokens
    chosen = [tokens[at] for at in (page.cell.row, page.cell.column) if at < len(tokens)]
    pair = [token for token in chosen if isinstance(token, Letter)]
    if len(pair) < 2:
        st.caption("Choose two residues on the map, to see what each head adds to their contact.")
        return
    with scheduler.without_turn():
        rows = contact_terms(page.trace, *(token.place.number for token in pair))
    words = f"What each head adds to the logit of {label(pair[0])} and {label(pair[1])}: its weights in both directions, less APC, times its coefficient."
    st.caption(plain(words))

    def open_head(row: int) -> None:
        if row < len(rows) - 1:  # the last row is the bias
            layer, head = int(rows["layer"][row]), int(rows["head"][row])
            knob_state.choose_cell(replace(page.cell, layer=layer, step=WEIGHTS, head=head), page.trace.layers[layer])

    show.clickable_table(rows, "proteins_terms", {}, open_head)
