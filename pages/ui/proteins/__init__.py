"""Contacts of a protein: on Explore, below the maps, the likeliest ones and what each head adds to the chosen one; and a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pages.ui.exports.catalog import CSV
from pages.ui.exports.request import Export, ExportFile, Request
from pages.ui.features import Panels

if TYPE_CHECKING:
    from pages.ui.page.start import Page


def _contacts(request: Request) -> ExportFile:
    from attention.proteins import contact_table

    trace = request.trace
    return ExportFile("contacts.csv", [contact_table(trace, most=len(trace.tokens) ** 2).to_csv(index=False)])


def _below_maps(page: Page) -> None:
    from pages.ui.proteins import contacts_section  # with torch

    contacts_section.section(page)


PANELS = Panels(
    exports=(Export("contacts.csv", CSV, "how likely residues of a protein touch, of all pairs at least 6 apart, the likeliest first", _contacts),),
    below_maps=_below_maps,
)  # fmt: skip
"""What this feature adds to the pages."""
