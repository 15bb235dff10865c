"""What this feature adds to the library."""

from __future__ import annotations

from attention.features import Feature
from attention.models.ours import OurModel
from attention.video.examples import tiny_videomae
from attention.video.medium import Videos

_MODELS = {"tiny-videomae": OurModel("A tiny VideoMAE with random weights: it has learned nothing.", tiny_videomae)}

FEATURE = Feature(name="video", media=(Videos(),), models=_MODELS)
