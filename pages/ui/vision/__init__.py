"""Fields and panels of pictures."""

from __future__ import annotations

from pages.ui.features import Panels

PANELS = Panels()
"""What this feature adds to the pages."""
