"""What this feature adds to the library."""

from __future__ import annotations

from attention.features import Feature
from attention.sound.medium import Sounds

FEATURE = Feature(name="sound", media=(Sounds(),))
