"""What this feature adds to the library."""

from __future__ import annotations

from attention.features import Feature

FEATURE = Feature(name="spans")
"""What this feature adds to the library."""
