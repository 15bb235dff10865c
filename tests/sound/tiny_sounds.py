"""Tiny models that read sounds, with random weights, and sounds made for them."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import torch
from numpy.typing import NDArray

_WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_CONVOLVED = _WIDE | {
    "conv_dim": (16,) * 7,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 2,
    "vocab_size": 12,
}
_PATCHED = _WIDE | {"max_length": 64, "num_mel_bins": 32, "num_labels": 3}
_LAYER_NORM = {"do_stable_layer_norm": True, "feat_extract_norm": "layer", "conv_bias": True}
_CLASSES = {"id2label": dict(enumerate(("owl", "rain", "bell"))), "num_labels": 3}

FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "wav2vec2": ("Wav2Vec2Model", _CONVOLVED),
    "wav2vec2 large": ("Wav2Vec2Model", _CONVOLVED | _LAYER_NORM),
    "wav2vec2 classes": ("Wav2Vec2ForSequenceClassification", _CONVOLVED | _CLASSES),
    "wav2vec2 letters": ("Wav2Vec2ForCTC", _CONVOLVED),
    "wav2vec2-conformer": ("Wav2Vec2ConformerModel", _CONVOLVED | {"position_embeddings_type": "rotary"}),
    "HuBERT": ("HubertModel", _CONVOLVED),
    "data2vec-audio": ("Data2VecAudioModel", _CONVOLVED | {"conv_pos_kernel_size": 3}),
    "UniSpeech": ("UniSpeechModel", _CONVOLVED),
    "UniSpeech-SAT": ("UniSpeechSatModel", _CONVOLVED),
    "SEW": ("SEWModel", _CONVOLVED | {"squeeze_factor": 2, "conv_dim": (16,) * 13}),
    "AST": ("ASTModel", _PATCHED),
    "AST classes": ("ASTForAudioClassification", _PATCHED | _CLASSES),
}  # fmt: skip
"""The class of the model, and the values of its config."""


class TinySoundModels:
    """A folder of tiny models that read sounds, each created on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, family: str) -> str:
        """The folder of a family's model."""
        path = self.folder / family
        if not path.exists():
            network(family).save_pretrained(path)
            extractor(family).save_pretrained(path)
            if family == "wav2vec2 letters":
                _save_letters(path)
        return str(path)


def network(family: str) -> Any:
    """A model with random weights, which are the same each time."""
    import transformers

    name, values = FAMILIES.get(family) or ("WavLMModel", _CONVOLVED)
    cls = getattr(transformers, name)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(cls.config_class(**values))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.1)
    return model.eval()


def extractor(family: str) -> Any:
    """The feature extractor of transformers for a family."""
    import transformers

    if family.startswith("AST"):
        return transformers.ASTFeatureExtractor(max_length=64, num_mel_bins=32)
    return transformers.Wav2Vec2FeatureExtractor(return_attention_mask=family == "wav2vec2 large")


def _save_letters(path: Path) -> None:
    import json

    import transformers

    vocabulary = path / "vocab.json"
    vocabulary.write_text(
        json.dumps({name: index for index, name in enumerate(["<pad>", "<s>", "</s>", "<unk>", "|", *"OWLSEA'"])})
    )
    transformers.Wav2Vec2CTCTokenizer(str(vocabulary)).save_pretrained(path)


def noise(seconds: float = 0.5, rate: int = 16_000, seed: int = 0) -> NDArray[np.float32]:
    """Random samples [time]."""
    return (np.random.default_rng(seed).normal(size=round(seconds * rate)) * 0.1).astype(np.float32)


def encoded(samples: NDArray[Any], rate: int = 16_000, kind: str = "WAV", subtype: str | None = None) -> bytes:
    """Samples [time] or [time channel] as a file, written by soundfile."""
    stream = BytesIO()
    soundfile.write(stream, samples, rate, format=kind, subtype=subtype)
    return stream.getvalue()
