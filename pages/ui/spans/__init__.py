"""Named parts of a text: on Explore, which of them an answer looks at, and what it loses while one is hidden; and a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pages.ui.exports.catalog import CSV
from pages.ui.exports.request import Export, ExportFile, Request
from pages.ui.features import Panels

if TYPE_CHECKING:
    from pages.ui.page.start import Page


def _table(request: Request) -> ExportFile:
    from attention.spans import table

    return ExportFile("spans.csv", table(request.trace).csv())


def _below_maps(page: Page) -> None:
    from pages.ui.spans import context  # with torch

    context.section(page)


PANELS = Panels(
    exports=(
        Export(
            "spans.csv", CSV, "for every head the weight that the queries of a span give to another (`spans=`)", _table
        ),
    ),
    below_maps=_below_maps,
)
"""What this feature adds to the pages."""
