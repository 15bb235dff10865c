"""Tiny models that read sounds, made by code: a wav2vec2 and an AST with random weights."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

_ABOUT = "A tiny {kind} with random weights (seed 0), made by the Lab: it shows the mechanism, and where it looks says nothing about sounds."
_WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_SPREAD = 0.2  # of the numbers that are added to each weight: as transformers begins, all rows would be almost equal


def _save(kind: str, name: str, config: Mapping[str, Any], extractor: Mapping[str, Any], folder: Path) -> None:
    import torch
    import transformers

    model_class, extractor_class = (getattr(transformers, f"{name}{part}") for part in ("Model", "FeatureExtractor"))
    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng([]), torch.no_grad():
        torch.manual_seed(0)
        model = model_class(model_class.config_class(**_WIDE, **config))
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=generator) * _SPREAD)
    model.save_pretrained(folder)
    extractor_class(**extractor).save_pretrained(folder)
    (folder / "lab.json").write_text(json.dumps({"about": _ABOUT.format(kind=kind)}), encoding="utf-8")


_CONVOLVED = {"conv_dim": (32,) * 7, "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 2, "feat_extract_norm": "layer"}  # fmt: skip
_PATCHED = {"max_length": 304, "num_mel_bins": 64}  # about three seconds, as the sounds of ours

MODELS: dict[str, Callable[[Path], None]] = {
    "tiny-wav2vec2": partial(_save, "wav2vec2", "Wav2Vec2", _CONVOLVED, {}),
    "tiny-ast": partial(_save, "AST", "AST", _PATCHED, _PATCHED),
}
"""By name, a function that writes the model and its feature extractor into a folder."""
