"""Lessons, questions that a teacher writes, and the pages that teach one subject."""

from __future__ import annotations

from attention.explanation import tables
from pages.ui.exports.catalog import CSV
from pages.ui.exports.request import Export, ExportFile, Request
from pages.ui.features import Opener, Panels, Script
from pages.ui.lessons import lesson


def _mask_cells(request: Request) -> ExportFile:
    from attention.lessons import mask_examples  # with torch

    trace = request.trace
    cell = request.cell(trace)
    pieces = tables.long_csv(
        lambda start, stop: mask_examples.table(trace, cell.layer, cell.head, start, stop),
        mask_examples.visible_cells(trace, cell.layer, cell.head).numel(),
    )
    return ExportFile(f"mask-L{cell.layer}-H{cell.head}.csv", pieces)


PANELS = Panels(
    scripts=(
        Script(10, "pages/lessons.py", "Lessons"),
        Script(50, "pages/masks.py", "Masks"),
        Script(60, "pages/softmax.py", "Softmax"),
    ),
    exports=(Export("mask-cells.csv", CSV, "each cell of the mask: whether it may attend, its score, its weight", _mask_cells),),
    about_lab=lesson.first_lesson,
    share=lesson.ask,
    opener=Opener("lessons", "md", lesson.open_file),
)  # fmt: skip
"""What this feature adds to the pages."""
