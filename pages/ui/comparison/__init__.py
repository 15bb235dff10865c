"""Two states, subtracted."""

from __future__ import annotations

from pages.ui.features import Panels, Script

PANELS = Panels(scripts=(Script(40, "pages/compare.py", "Compare"),))
"""What this feature adds to the pages."""
