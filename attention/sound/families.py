"""The families of models that read a sound, each declared: by which convolutions a token comes from samples, or that it is a part of a spectrogram."""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from operator import mul
from typing import Any, NamedTuple

SAMPLES = "input_values"
"""The argument of a model for its sound: samples, or a spectrogram."""
FEATURES = "input_features"
"""The argument of other models for a spectrogram."""


class Frames(NamedTuple):
    """Tokens that each read some samples: `field` of them, the next token `hop` samples later."""

    hop: int
    field: int

    def count(self, n_samples: int) -> int:
        """How many tokens a sound has."""
        return max(0, (n_samples - self.field) // self.hop + 1)


def _convolutions(config: Any) -> Frames:
    """Those of several convolutions without padding, one after the other."""
    return _frames(tuple(config.conv_kernel), tuple(config.conv_stride))


def _frames(kernels: tuple[int, ...], strides: tuple[int, ...]) -> Frames:
    """Those of convolutions of these sizes and steps."""
    *hops, hop = accumulate(strides, mul, initial=1)
    return Frames(hop, 1 + sum((kernel - 1) * before for kernel, before in zip(kernels, hops, strict=True)))


def _squeezed(config: Any) -> Frames:
    """Those of convolutions of which the encoder reads means of several."""
    hop, field = _convolutions(config)
    return Frames(hop * config.squeeze_factor, field + (config.squeeze_factor - 1) * hop)


CONVOLVED: dict[str, Callable[[Any], Frames]] = {
    "wav2vec2": _convolutions,
    "wav2vec2-conformer": _convolutions,
    "hubert": _convolutions,
    "wavlm": _convolutions,
    "data2vec-audio": _convolutions,
    "unispeech": _convolutions,
    "unispeech-sat": _convolutions,
    "sew": _squeezed,
    "moonshine": lambda _: _frames((127, 7, 3), (64, 3, 2)),  # which its config does not say
}
"""By `model_type` of a model that reads samples: its tokens, from its config."""
PATCHED: dict[str, tuple[str, ...]] = {"audio-spectrogram-transformer": ("[CLS]", "[distillation]")}
"""By `model_type` of a model that reads patches of a spectrogram: its tokens before them; the patches follow by time in each band, from the lowest."""
PADDED = ("whisper",)
"""The `model_type` of encoders that read a spectrogram of one length, with silence after the sound; each token is some columns of it."""
DECODED = frozenset({"whisper", "moonshine"})
"""The `model_type` of those with a decoder, which reads a text."""
