"""How attention learns: the page Train."""

from __future__ import annotations

from pages.ui.features import Panels, Script
from pages.ui.training import film

PANELS = Panels(scripts=(Script(70, "pages/training.py", film.TITLE),), story=film.link)
"""What this feature adds to the pages."""
