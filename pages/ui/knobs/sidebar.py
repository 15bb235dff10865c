"""The sidebar: which source the numbers come from, and its knobs."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import NOTEBOOKS, AttentionConfig, Matrices, Notebook, Source, TypedText
from attention.formula.config import INITS, POSITIONS, divisors
from pages.ui.knobs import continued
from pages.ui.knobs.inputs import AFTER_THE_SCORES, DEFAULTS, chosen_of, heads_that_fit, held
from pages.ui.knobs.matrices import forget_uploads, matrices
from pages.ui.knobs.widgets import Knobs, asked_for, peek
from pages.ui.notes import Notes
from pages.ui.server.limits import MAX_CHARACTERS, MAX_D_MODEL, MAX_HEADS, MAX_TOKENS, MAX_TRACE_MB

SOURCES = ("typed text", "notebook", "matrices")
GIVEN = {"X and weights": ("x", "w_q", "w_k", "w_v", "w_o"), "Q, K and V": ("query", "key", "value", "w_o")}


def _notebook(knobs: Knobs) -> Notebook:
    titles = {name: Notebook(name).title for name in NOTEBOOKS}
    name = knobs.named(
        "Notebook", "notebook", titles, help="One of the five “attention from scratch” notebooks, to the digit."
    )
    source = Notebook(name, _sequence(knobs, Notebook(name).sequences))
    if not knobs.locked:
        continued.offer(source)
    return source


def _matrices(knobs: Knobs, wide: DeltaGenerator) -> Matrices:
    """One head with the person's own numbers."""
    given = knobs.select(
        "You have", "given", GIVEN, help="The input and its projections, or queries, keys and values as they are."
    )
    names = knobs.text(
        "Names of the tokens", "labels", 2000, widget=st.text_input, help="Separated by blanks. Empty: x0, x1, …"
    )
    with wide:
        found = matrices(knobs, GIVEN[given], optional="w_o")
    config = AttentionConfig(**held(knobs.notes, *AFTER_THE_SCORES))
    return Matrices(**found, tokens=tuple(names.split()), config=config, max_bytes=MAX_TRACE_MB * 2**20)


def _typed_text(knobs: Knobs) -> TypedText:
    text = knobs.text(
        "Text",
        "text",
        MAX_CHARACTERS,
        height=100,
        help="Each word and each punctuation mark becomes a token; each line is a sequence of its own. "
        "Ctrl+Enter, or a click elsewhere, shows it.",
    )
    sequence = _sequence(knobs, TypedText(text).sequences)
    above = held(knobs.notes, *AFTER_THE_SCORES, "d_model", "seed")
    # Drawn below, but the heads must know it now.
    identity = peek("init") == "identity"
    heads = _heads(knobs, above["d_model"], disabled=identity)
    with st.expander("A second text", expanded=bool(peek("text2"))):
        text2 = knobs.text(
            "Second text",
            "text2",
            MAX_CHARACTERS,
            height=80,
            help="Cross-attention: queries come from the first text, keys and values from this one. "
            "Empty: the first text attends to itself.",
        )
    with st.expander("More knobs"):
        init = knobs.select(
            "Random weights",
            "init",
            INITS,
            help="How W_Q, W_K, W_V and W_O are drawn. Identity: no projections at all, Q = K = V = X, one head.",
        )
        positions = knobs.select(
            "Positions", "positions", POSITIONS, help="What is added to each embedding so that order matters."
        )
        share = "d_model" if identity else "d_model / heads"
        blank = {"disabled": identity, "placeholder": share}
        d_k = knobs.whole(
            "d_k", "d_k", 1, MAX_D_MODEL, **blank, help=f"Width of a query or key in each head. Empty: {share}."
        )
        d_v = knobs.whole("d_v", "d_v", 1, MAX_D_MODEL, **blank, help=f"Width of a value in each head. Empty: {share}.")
        dropout = knobs.slider(
            "Dropout",
            "dropout",
            0.0,
            0.9,
            help="The share of the weights that is dropped after the softmax, as in training.",
        )
        lowercase = knobs.toggle(
            "Ignore upper case", "lowercase", help="On: “The” and “the” are one word, with one embedding."
        )
        pad = knobs.toggle(
            "Pad to the same length", "pad", help="Shorter lines are filled with empty tokens ∅ that no query sees."
        )
    if identity:
        d_k = d_v = None
    config = AttentionConfig(n_heads=heads, d_k=d_k, d_v=d_v, positions=positions, init=init, dropout=dropout, **above)
    return TypedText(text, config, text2, lowercase, MAX_TOKENS, sequence, pad, MAX_TRACE_MB * 2**20)


def _sequence(knobs: Knobs, sequences: Sequence[str]) -> int:
    """Which of several sequences is shown; a widget only where there is more than one."""
    return chosen_of(
        knobs, "Sequence", "sequence", sequences, help="Each line, or each row of a batch, is one sequence."
    )


def source(notes: Notes, wide: DeltaGenerator) -> Source:
    """The knobs of the sidebar, and the source they describe; what needs more room stands in `wide`.

    Raises:
        ConfigError: the knobs contradict each other.
    """
    knobs = Knobs(notes, DEFAULTS)
    chosen = knobs.select("Source", "source", SOURCES, help="Where the numbers come from.")
    if chosen != "matrices":
        forget_uploads()
    match chosen:
        case "notebook":
            return _notebook(knobs)
        case "matrices":
            return _matrices(knobs, wide)
        case _:
            return _typed_text(knobs)


def _heads(knobs: Knobs, d_model: int, disabled: bool) -> int:
    """The number of heads: what was wished where it divides d_model, otherwise the next smaller that does, and it is said."""
    offered = [n for n in divisors(d_model) if n <= MAX_HEADS]
    named = ", ".join(map(str, offered))
    default = heads_that_fit(d_model, DEFAULTS["heads"])
    asked, now = peek("heads"), st.session_state.get("heads")
    wish, settled = st.session_state.get("heads_wish", (now, now))
    if now is None or "heads" in asked_for():
        wish = DEFAULTS["heads"]
    elif now != settled:
        wish = now
    fits = heads_that_fit(d_model, wish)
    if now is None and not asked and fits != wish and not disabled:
        knobs.notes.keep(_settled(wish, d_model, fits, named))
    elif now is not None and now != fits and "heads" not in asked_for():
        st.session_state["heads"] = fits
        if fits != wish:
            st.toast(_settled(wish, d_model, fits, named), duration="long")
    too_many = asked not in map(str, offered) and asked in map(str, divisors(d_model))
    heads = int(
        knobs.select(
            "Heads",
            "heads",
            offered,
            expected=f"at most {MAX_HEADS}, one of {named}" if too_many else f"one of {named}, which divide d_model {d_model}",
            default=default,
            disabled=disabled,
            help="Only numbers that divide d_model are offered.",
        )
    )  # fmt: skip
    st.session_state["heads_wish"] = (wish if heads == fits else heads, heads)
    return heads


def _settled(wish: int, d_model: int, heads: int, named: str) -> str:
    """What became of the wished heads."""
    now_there = "now there is 1 head" if heads == 1 else f"now there are {heads} heads"
    return f"{wish} heads do not divide d_model {d_model}: {now_there}. Choose {named}."
