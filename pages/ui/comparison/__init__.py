"""Two states, subtracted: the page Compare, the way to it from the Lab, and a file."""

from __future__ import annotations

from attention.base.knobs import Integer
from attention.comparison.comparison import HeadIndex, compare
from attention.explanation import tables
from attention.pictures.view import HEAD, LAYER, layer_range
from attention.sources import Patchable, second_state
from pages.ui.exports.catalog import CSV
from pages.ui.exports.request import Export, ExportFile, Request
from pages.ui.features import Panels, Script
from pages.ui.server.traces import traces_of_both
from pages.ui.state import second_sidebar


def _difference(request: Request) -> ExportFile:
    first = request.source
    state = second_state.compared_state(request.texts)
    texts = second_state.second_state(
        state, request.texts.get(second_state.KEY) or second_state.opening_differences(state)
    )
    other = Request(texts, request.tab)
    source = other.source.with_other_run(first) if isinstance(other.source, Patchable) else other.source
    a, b = traces_of_both(first, source)
    cell = request.cell(a)
    layer = other.value(LAYER, layer_range(b))
    at = HeadIndex(layer, other.value(HEAD, Integer(0, b.layers[layer].n_heads - 1)))
    difference = compare(a, b, cell.step, HeadIndex(cell.layer, cell.head), at)
    pieces = tables.csv_chunks(difference.frame())
    return ExportFile(f"{cell.step}-B-minus-A.csv", pieces)


PANELS = Panels(
    scripts=(Script(40, "pages/compare.py", "Compare"),),
    exports=(Export("{step}-B-minus-A.csv", CSV, "B − A of a step of two states (`compare=`)", _difference),),
    about_lab=second_sidebar.last_change_button,
)
"""What this feature adds to the pages."""
