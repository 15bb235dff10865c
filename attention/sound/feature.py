"""What this feature adds to the library."""

from __future__ import annotations

from attention.features import Feature
from attention.models.ours import OurModel
from attention.sound.medium import Sounds
from attention.sound.tiny_models import tiny_ast, tiny_wav2vec2, tiny_whisper

_MODELS = {
    "tiny-wav2vec2": OurModel("A tiny wav2vec2 with random weights: it has learned nothing.", tiny_wav2vec2),
    "tiny-ast": OurModel("A tiny audio spectrogram transformer with random weights: it has learned nothing.", tiny_ast),
    "tiny-whisper": OurModel(
        "A tiny Whisper of four seconds with random weights: it has learned nothing, and its words say nothing.",
        tiny_whisper,
    ),
}

FEATURE = Feature(name="sound", media=(Sounds(),), models=_MODELS)
