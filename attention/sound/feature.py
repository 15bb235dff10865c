"""What this feature adds to the library."""

from __future__ import annotations

from attention.features import Feature
from attention.sound.medium import Sounds
from attention.sound.tiny_models import MODELS

FEATURE = Feature(name="sound", media=(Sounds(),), models=MODELS)
