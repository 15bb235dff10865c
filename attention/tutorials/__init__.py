"""Five published notebooks as a source."""

from __future__ import annotations

from attention.tutorials.notebook import NOTEBOOKS, Notebook

__all__ = ["NOTEBOOKS", "Notebook"]
