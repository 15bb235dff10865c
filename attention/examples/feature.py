"""What this feature adds to the library."""

from __future__ import annotations

from attention.examples import example
from attention.features import Feature

FEATURE = Feature(name="examples", sources=(example.KIND,))
