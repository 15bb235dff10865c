"""Lessons and chapters, which are the page Learn, questions that a teacher writes, and the mask that users click."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.base.knobs import Knob, Switch
from attention.explanation import tables
from attention.lessons.markdown import LINK_KEY
from pages.ui.exports.catalog import CSV
from pages.ui.exports.request import Export, ExportFile, Request
from pages.ui.features import Opener, Panels, Script
from pages.ui.lessons import lesson
from pages.ui.state.session import session
from pages.ui.state.widgets import Knobs

if TYPE_CHECKING:
    from pages.ui.page.start import Page

_CLICKED = Knob("explore_mask", False, Switch(), "Click the mask", "The mask of the chosen head as a map: a click on a cell allows or hides a key.")  # fmt: skip


def _mask_cells(request: Request) -> ExportFile:
    from attention.lessons import mask_examples  # with torch

    trace = request.trace
    cell = request.cell(trace)
    pieces = tables.long_csv(
        lambda start, stop: mask_examples.table(trace, cell.layer, cell.head, start, stop),
        mask_examples.visible_cells(trace, cell.layer, cell.head).numel(),
    )
    return ExportFile(f"mask-L{cell.layer}-H{cell.head}.csv", pieces)


def _mask(page: Page) -> None:
    """Draws the switch of the mask that users click, and the mask while it is on."""
    if Knobs(page.notes).value(_CLICKED):
        from pages.ui.lessons import mask_panel  # with torch

        mask_panel.draw(page)


def _question(page: Page) -> None:
    """Draws the question that the address asks, beside the maps."""
    if LINK_KEY in session().state.parameters:
        from pages.ui.lessons import path

        path.beside_maps(page)


PANELS = Panels(
    scripts=(Script(10, "pages/learn.py", "Learn"),),
    exports=(Export("mask-cells.csv", CSV, "each cell of the mask: whether it may attend, its score, its weight", _mask_cells),),
    about_explore=lesson.first_lesson,
    beside_maps=_question,
    below_maps=_mask,
    share=lesson.ask,
    opener=Opener("lessons", "md", lesson.open_file),
)  # fmt: skip
"""What this feature adds to the pages."""
