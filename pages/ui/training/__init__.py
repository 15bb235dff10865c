"""The film of a training."""

from __future__ import annotations

from pages.ui.features import Panels, Script

PANELS = Panels(scripts=(Script(70, "pages/training.py", "Training"),))
"""What this feature adds to the pages."""
