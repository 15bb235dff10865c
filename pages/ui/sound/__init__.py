"""Sounds as input: on Explore, the seconds of the chosen query and key are heard."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pages.ui.features import Panels

if TYPE_CHECKING:
    from pages.ui.page.start import Page


def _beside_maps(page: Page) -> None:
    from pages.ui.sound import player

    player.players(page)


PANELS = Panels(beside_maps=_beside_maps)
"""What this feature adds to the pages."""
