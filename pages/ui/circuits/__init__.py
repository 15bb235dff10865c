"""What heads write and read: on the page Heads, inside the chosen head and which heads matter; and files."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import streamlit as st

from attention import circuits
from attention.base.knobs import Knob, Switch
from attention.circuits import direct_effects, token_relevance
from attention.pictures.view import DISTRACTOR, TARGET
from attention.sources import Intervenable
from attention.trace.readout import Readout
from attention.trace.trace import Trace
from pages.ui.circuits import ablation, copying, path_patching, prompts, writes
from pages.ui.exports.catalog import CSV, PYTHON, derived_map_file
from pages.ui.exports.request import Export, ExportFile, Request
from pages.ui.features import HeadMap, Panels

if TYPE_CHECKING:
    from pages.ui.page.start import Page
    from pages.ui.state.widgets import Knobs


def _readout(request: Request, trace: Trace) -> Readout:
    target, distractor = (request.value(knob) or None for knob in (TARGET, DISTRACTOR))
    return direct_effects.find_readout(trace, target, distractor)


def _writes(request: Request) -> ExportFile:
    return derived_map_file(direct_effects.writes_map(_readout(request, request.trace)), request)


def _logit_parts(request: Request) -> ExportFile:
    trace = request.trace
    tokens = [token for token, _ in _readout(request, trace).tokens]
    parts = circuits.logit_parts(trace, request.cell(trace).row, *tokens)
    return ExportFile("logit-parts.csv", [parts.frame().to_csv(index=False)])


def _score_terms(request: Request) -> ExportFile:
    trace = request.trace
    cell = request.cell(trace)
    terms = circuits.score_terms(trace, cell.layer, cell.head, cell.row, cell.column)
    name = f"score-terms-L{cell.layer}-H{cell.head}-q{cell.row}-k{cell.column}.csv"
    return ExportFile(name, [terms.frame().to_csv(index=False)])


def _circuits_program(request: Request) -> ExportFile:
    trace = request.trace
    return ExportFile("circuits.py", [direct_effects.python(trace, request.cell(trace), _readout(request, trace))])


def _which_heads(page: Page, knobs: Knobs, open_head: Callable[[int, int], None]) -> Callable[..., Any] | None:
    """Draws which heads matter; returns further columns of the table of heads."""
    if isinstance(page.source, Intervenable):
        st.markdown("## Which heads matter for the prediction?")
    columns = ablation.matters(page, knobs, open_head)
    path_patching.paths_section(page, knobs)
    prompts.prompt_set_section(page, knobs)
    copying.relevance_section(page, knobs)
    return columns


def _inside_head(page: Page, knobs: Knobs) -> None:
    """Draws what the chosen head writes and why it looks where it does, while its switch is on, and what it copies."""
    st.markdown("## Inside this head")
    if knobs.value(_WRITES):
        writes.writes_section(page, knobs)
        writes.score_terms_section(page, knobs)
    copying.copying_section(page, knobs)


_WRITES = Knob("heads_inside", False, Switch(), "What it writes, and why it looks there", "What the chosen cell adds to a logit, and its score as a sum over the parts of the model.")  # fmt: skip
_GRADIENT = token_relevance.STEP

PANELS = Panels(
    exports=(
        Export(f"{direct_effects.NAME}.csv", CSV, "what each cell of a head adds to a logit (`target=`, `against=`)", _writes),
        Export("logit-parts.csv", CSV, "what every part of the model adds to a logit (`target=`, `against=`)", _logit_parts),
        Export("score-terms.csv", CSV, "a score as a sum over the parts that wrote its query and its key", _score_terms),
        Export("circuits.py", PYTHON, "these three with this package", _circuits_program),
    ),
    which_heads=_which_heads,
    inside_head=_inside_head,
    head_maps=(HeadMap(_GRADIENT.name, _GRADIENT.formula, copying.gradient_map),),
)  # fmt: skip
"""What this feature adds to the pages."""
