"""What this feature adds to the library."""

from __future__ import annotations

from attention.features import Feature
from attention.video.medium import Videos

FEATURE = Feature(name="video", media=(Videos(),))
