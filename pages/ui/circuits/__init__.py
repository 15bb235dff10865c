"""What heads write and read: the page Circuits, which heads of the page Heads matter, and files."""

from __future__ import annotations

from attention import circuits
from attention.circuits import direct_effects, token_relevance
from attention.pictures.view import DISTRACTOR, TARGET
from attention.trace.readout import Readout
from attention.trace.trace import Trace
from pages.ui.circuits import ablation, copying
from pages.ui.exports.catalog import CSV, PYTHON, derived_map_file
from pages.ui.exports.request import Export, ExportFile, Request
from pages.ui.features import HeadMap, Panels, Script


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


_GRADIENT = token_relevance.STEP

PANELS = Panels(
    scripts=(Script(30, "pages/circuits.py", "Circuits"),),
    exports=(
        Export(f"{direct_effects.NAME}.csv", CSV, "what each cell of a head adds to a logit (`target=`, `against=`)", _writes),
        Export("logit-parts.csv", CSV, "what every part of the model adds to a logit (`target=`, `against=`)", _logit_parts),
        Export("score-terms.csv", CSV, "a score as a sum over the parts that wrote its query and its key", _score_terms),
        Export("circuits.py", PYTHON, "these three with this package", _circuits_program),
    ),
    which_heads=ablation.matters,
    head_maps=(HeadMap(_GRADIENT.name, _GRADIENT.formula, copying.gradient_map),),
)  # fmt: skip
"""What this feature adds to the pages."""
