"""Path patching on request: which parts of the model change the prediction, along which paths, if they take their output from another run."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import streamlit as st

from attention import AttentionError, Model
from attention.base.knobs import Choice, Knob, Text
from attention.base.printed import format_number
from attention.circuits import PathRequest, figures
from attention.circuits.path_patching import (
    CAVEAT,
    MODES,
    RECEIVERS,
    PathPatching,
    PathProgress,
    estimate_seconds,
    patch_paths,
)
from attention.formula.names import Cell
from attention.pictures.view import DISTRACTOR, TARGET
from attention.sources import Patchable, link
from attention.sources.second_state import SECOND
from pages.ui.page import long_run, show
from pages.ui.page.interventions import shown_prediction
from pages.ui.page.predictions_panel import token_field
from pages.ui.page.start import Page
from pages.ui.state import knob_state
from pages.ui.state.knob_state import standing
from pages.ui.state.notices import plain, show_error
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs

_OTHER = Knob("paths_other", "", Text(2000), "Run B: another text with as many tokens", "For example the same text with one name changed. Each part of the model in turn takes its output from this run.")  # fmt: skip
_RECEIVER = Knob("paths_receiver", "logits", Choice(RECEIVERS), "What receives it", "The logits of the prediction, or the query, key or value of a head: only it sees the other output.")  # fmt: skip
_HEADS = Knob("paths_heads", "chosen", Choice(("chosen", "all"), ("the chosen head", "every head")), "Of which head", "The receiving head; the chosen one is that of the map above.")  # fmt: skip
_MODE = Knob("paths_mode", "direct", Choice(tuple(MODES), ("nothing (direct)", "the MLPs", "everything (free)")), "What recomputes in between", "Direct: the change travels along the residual stream only. Heads keep their outputs in the first two.")  # fmt: skip
_NAME = "paths"  # of the request
_N_LARGEST = 3  # paths that are described in words


def paths_section(page: Page, knobs: Knobs) -> None:
    """Draws path patching, folded; nothing if the source has no model that can run again."""
    if not isinstance(page.source, Patchable) or not page.trace.predictions:
        return
    has_other = bool(standing(_OTHER.key))  # a link that names run B opens the panel
    with st.expander("Which paths matter? (path patching)", has_other, key="paths", on_change="rerun") as unfolded:
        if not unfolded.open:
            return
        st.caption(f"One part of the model at a time (a head, an MLP or the embedding) takes its output from run B, only the receiver sees that, and everything after it recomputes. {CAVEAT}")  # fmt: skip
        try:
            request = _request(page, knobs)
            place = st.empty()
            if request is None:
                return
            a, b, paths = request
            arguments = a.run(), b.run(), paths
            seconds = estimate_seconds(*arguments)
            words = f"Patch each path in turn (about {seconds:.0f} s)"
            if not long_run.is_requested(place, _NAME, request, words):
                return
            last = long_run.finish(place, _done, _NAME, "paths_stop", patch_paths, *arguments)
        except AttentionError as error:
            show_error(str(error))
            return
        if last is not None and last.result is not None:
            _draw(page, last.result)


def _request(page: Page, knobs: Knobs) -> tuple[Patchable, Patchable, PathRequest] | None:
    """Run A, run B and which paths, as the fields describe them; None until there is a run B."""
    source, prediction = page.source, shown_prediction(page.trace)
    assert isinstance(source, Patchable)
    typed = str(knobs.value(_OTHER)).strip()
    with st.container(horizontal=True, vertical_alignment="bottom"):
        receiver = knobs.value(_RECEIVER)
        whose = "all" if receiver == "logits" else knobs.value(_HEADS)
        mode = knobs.value(_MODE)
    target, distractor = (token_field(source, prediction, knobs, knob) for knob in (TARGET, DISTRACTOR))
    a = _plain(source)
    b = _typed_state(a, typed) if typed else _second_state(a)
    if b is None:
        st.info("Type the text of run B, or compare with a second state on Explore.")
        return None
    layer, head = (page.cell.layer, page.cell.head) if whose == "chosen" else (None, None)
    request = PathRequest(
        receiver, layer, head, None, mode, target and target[0], distractor and distractor[0], prediction.position
    )
    return a, b, request


def _done(progress: PathProgress) -> str:
    return f"{progress.done} of {progress.total} runs"


def _plain(source: Any) -> Any:
    """The source without overrides, by its model's own tokens."""
    own = {"words": False, "special": "show"} if isinstance(source, Model) else {}
    return replace(source, config=type(source.config)(), **own)


def _typed_state(a: Any, text: str) -> Patchable:
    same: Patchable = replace(a, text=text, **({"input_ids": ()} if isinstance(a, Model) else {}))
    return same


def _second_state(a: Patchable) -> Patchable | None:
    """The second state of Explore, if this tab has one of the same kind of source."""
    if not knob_state.current_value(SECOND.key):
        return None
    b = link.read_source(knob_state.reader(session().state.other))
    if type(b) is not type(a):
        return None
    st.caption("Run B is the second state of Explore.")
    second: Patchable = _plain(b)
    return second


def _draw(page: Page, result: PathPatching) -> None:
    cell = page.cell

    def click(_: str, x: int, y: int) -> None:
        if (head := figures.ends_at(result, x, y)) is not None:
            knob_state.choose_cell(Cell(head[0], cell.step, head[1], cell.row, cell.column))

    st.markdown(plain(f"The {result.quantity} is {format_number(result.baseline)} in run A and {format_number(result.other)} in run B. Between a source and the receiver, {MODES[result.mode]}."))  # fmt: skip
    lines = [f"1. {plain(result.describe(*pair))}" for pair in result.largest(_N_LARGEST)]
    st.markdown("\n".join(lines) if lines else "No part of the model precedes this receiver.")
    show.figures([figures.path_map_json(result, (cell.layer, cell.head))], "paths_map", click)
    show.chart_table(result.frame(), "paths")
