"""The lesson component, and questions that a teacher writes."""

from __future__ import annotations

from pages.ui.features import Panels, Script

PANELS = Panels(
    scripts=(
        Script(10, "pages/lessons.py", "Lessons"),
        Script(50, "pages/masks.py", "Masks"),
        Script(60, "pages/softmax.py", "Softmax"),
    )
)
"""What this feature adds to the pages."""
