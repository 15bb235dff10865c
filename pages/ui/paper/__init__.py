"""Figures as files for a paper, below each figure and by their addresses."""

from __future__ import annotations

from pages.ui.exports.request import STEP, Export
from pages.ui.features import Panels
from pages.ui.paper import takeaway

PANELS = Panels(
    exports=tuple(
        Export(f"{name}.{kind}", media, about, make, is_picture=True)
        for name, about, make, more in (
            (STEP, "heads of a step as a figure for a paper", takeaway.step_file, takeaway.CAPTION),
            ("maps", "the maps of the Lab, side by side", takeaway.maps_file, {}),
        )
        for kind, media in (takeaway.MEDIA | more).items()
    ),
    below_figures=takeaway.save_menu,
)
"""What this feature adds to the pages."""
