"""Published notebooks as a source."""

from __future__ import annotations

from pages.ui.features import Panels
from pages.ui.tutorials import continue_notebook

PANELS = Panels(below_source=continue_notebook.copy_button)
"""What this feature adds to the pages."""
