"""What this feature adds to the library."""

from __future__ import annotations

from attention.features import Feature
from attention.series.medium import SeriesMedium

FEATURE = Feature(name="series", media=(SeriesMedium(),))
