"""The sweep over heads: ablates each head, or patches it from B, in turn on request and draws the effect on the prediction as a map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from attention import AttentionError, Model
from attention.base.errors import ConfigError
from attention.base.knobs import Choice, Knob
from attention.base.printed import format_number
from attention.circuits import figures
from attention.circuits.sweep import (
    CAVEAT,
    STEP_WORDS,
    SWEEP_KINDS,
    HeadSweep,
    Progress,
    estimated_seconds,
    sweep_heads,
    together,
)
from attention.formula.edit_kinds import ABLATIONS
from attention.formula.override import Override
from attention.pictures.view import DISTRACTOR, TARGET
from attention.sources import registry
from attention.sources.state import SECOND
from pages.ui.page import long_run, show
from pages.ui.page.interventions import shown_prediction
from pages.ui.page.predictions_panel import token_field
from pages.ui.page.start import Page
from pages.ui.server import scheduler
from pages.ui.state import knob_state
from pages.ui.state.knob_state import is_locked
from pages.ui.state.notices import plain, show_error
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs

if TYPE_CHECKING:
    import pandas as pd

_NAME = "matters"  # of the request
_NAMES = {
    "zero": "output 0 (zero ablation)",
    "mean": "its mean output (mean ablation)",
    **{step: f"{words} of B (patching)" for step, words in STEP_WORDS.items()},
}
_HOW = Knob("matters_silence", "zero", Choice(SWEEP_KINDS, tuple(_NAMES[kind] for kind in SWEEP_KINDS)), "Each head gets", "What replaces a part of each head in turn. B is the second state, as in a comparison on Explore: the same model with another text.")  # fmt: skip


_Arguments = tuple[Model, int | None, int | None, int | None, str]
"""Those of `sweep_heads`: the model with its interventions, and B as its other run; position, target, distractor; what each head gets."""


def matters(page: Page, knobs: Knobs, open_head: Callable[[int, int], None]) -> Callable[..., pd.DataFrame] | None:
    """The effects on heads in an order, as columns of a table, once the user has requested the sweep; None before, or without a model."""
    if not isinstance(page.source, Model):
        return None
    interventions = page.source.interventions
    labels = plain(", ".join(change.label for change in interventions))
    existing = f" The current interventions stay active ({labels})." if interventions else ""
    st.caption(f"Each head is ablated (silenced), or patched from another run, in turn, and the model predicts again.{existing} {CAVEAT}")  # fmt: skip
    try:
        with st.container(horizontal=True, width=840, vertical_alignment="bottom"):
            model, position, target, distractor, kind = _arguments(page, knobs, knobs.value(_HOW))
        if kind not in ABLATIONS:
            model = replace(model, other=_second_state(knobs, model), align=True)
        request = model, position, target, distractor, kind
        seconds = estimated_seconds(model, kind)
        if interventions:
            seconds += estimated_seconds(replace(model, interventions=(), frozen=False), kind)
        place = st.empty()
        n_heads = sum(layer.n_heads for layer in page.trace.layers)
        verb = "Ablate" if kind in ABLATIONS else "Patch"
        words = f"{verb} each of {n_heads} heads in turn (about {seconds:.0f} s)"
        if not long_run.is_requested(place, _NAME, request, words):
            return None
        sweep = _finish(place, f"{verb.removesuffix('e')}ing each head in turn", *request)
        unchanged = _finish(place, "The same in the unchanged model", *request, True) if interventions else None
    except AttentionError as error:
        show_error(str(error))
        return None
    if sweep is None or (interventions and unchanged is None):
        return None
    _draw(page, request, sweep, unchanged, open_head)
    return lambda order: sweep.frame(order)[list(sweep.columns)]


def _second_state(knobs: Knobs, model: Model) -> Model:
    """B, the run to patch from: the second state. Draws a field for its text."""
    knobs.value(SECOND)
    b = (
        model.other
        if isinstance(model.other, Model)
        else registry.read_source(knob_state.reader(session().state.other))
    )
    text = b.text if isinstance(b, Model) else ""
    if not is_locked() and model.other is None:
        st.session_state["matters_b"] = text
        st.text_area(
            "The text of B", key="matters_b", height=68, max_chars=2000, help="Explore compares with the same B. With another number of tokens, those that correspond are patched.",
            on_change=lambda: knob_state.apply_controls({"text": st.session_state["matters_b"]}, "B"),
        )  # fmt: skip
    if not isinstance(b, Model) or b.name != model.name:
        raise ConfigError("B is a run of the same model; got another source: give the text of B, or change B on Explore.")  # fmt: skip
    b = replace(b, config=Override(), words=False, special="show", other=None)
    if (b.text, b.text2, b.interventions) == (model.text, model.text2, ()):
        raise ConfigError("B has another text than A; both are equal now: change the text of B.")
    return b


def _arguments(page: Page, knobs: Knobs, kind: str) -> _Arguments:
    """The sweep for the prediction that Explore shows. Draws the fields for its target and distractor."""
    source = page.source
    assert isinstance(source, Model)
    prediction = shown_prediction(page.trace) if page.trace.predictions else None
    target, distractor = (
        None if prediction is None else token_field(source, prediction, knobs, knob) for knob in (TARGET, DISTRACTOR)
    )
    model = replace(source, config=type(source.config)(), words=False, special="show")
    position = None if prediction is None else prediction.position
    return model, position, target and target[0], distractor[0] if target and distractor else None, kind


def _finish(place: DeltaGenerator, label: str, *arguments: Any) -> HeadSweep | None:
    def words(progress: Progress[HeadSweep]) -> str:
        return f"{label}: {progress.done} of {progress.total} heads"

    last = long_run.finish(place, words, _NAME, f"matters_stop_{label}", sweep_heads, *arguments)
    return None if last is None else last.result


def _draw(
    page: Page,
    request: _Arguments,
    sweep: HeadSweep,
    unchanged: HeadSweep | None,
    open_head: Callable[[int, int], None],
) -> None:
    chosen = (page.cell.layer, page.cell.head)

    def click(_: str, x: int, y: int) -> None:
        if (y, x) in sweep.heads:
            open_head(y, x)

    for head in dict.fromkeys((sweep.by_effect()[0], chosen)):
        st.markdown(plain(f"{sweep.describe(*head)} {sweep.other_heads_words(*head)}"))
    shown = ["change", *["estimate"] * sweep.has_estimates, *["direct"] * sweep.has_direct_effects]
    show.figures([figures.head_effect_map_json(sweep, chosen, name) for name in shown], "heads_matter", click)
    for sentence in sweep.alignment:
        st.caption(plain(sentence))
    st.caption(plain(sweep.describe_estimate()))
    if sweep.has_direct_effects:
        st.caption(f"Direct effect: the head's contribution to the logit through W_O and the later norms, which are frozen at their values in this run. Everything else in the model contributes {format_number(sweep.remainder)}.")  # fmt: skip
    else:
        st.caption(f"Direct effects are not available: {sweep.no_direct_reason}")
    ablated = tuple(dict.fromkeys(change.ablated_head for change in request[0].interventions if change.ablated_head))
    if ablated and sweep.is_ablation:
        with scheduler.without_turn():
            joint = together(request[0], ablated, *request[1:])
        st.markdown(f"**Ablated at the same time.** {plain(joint.description)}")
    if unchanged is not None:
        show.figures([figures.head_effect_scatter_json(unchanged, sweep, chosen)], "heads_step_in")
    show.chart_table(sweep.frame(), "heads-that-matter")
