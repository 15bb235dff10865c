"""Panels about what heads write and read."""

from __future__ import annotations

from pages.ui.features import Panels, Script

PANELS = Panels(scripts=(Script(30, "pages/circuits.py", "Circuits"),))
"""What this feature adds to the pages."""
