"""A tiny VideoMAE with random weights, made by code: where it looks says nothing, and how it reads a video is that of every VideoMAE."""

from __future__ import annotations

from functools import cache
from typing import Any

_SIDE, _PATCH, _N_FRAMES, _TUBELET = 96, 16, 8, 2  # pixels, pixels, frames, frames of a patch
_SIZES: dict[str, Any] = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
_SPREAD = 0.2  # of the numbers that are added to each weight: as transformers begins, all rows would be almost equal


@cache
def tiny_videomae() -> tuple[Any, Any]:
    """The model and its processor, as `Model.of` reads them."""
    import torch
    from transformers import VideoMAEConfig, VideoMAEModel
    from transformers.models.videomae.image_processing_pil_videomae import VideoMAEImageProcessorPil

    config = VideoMAEConfig(**_SIZES, image_size=_SIDE, patch_size=_PATCH, num_frames=_N_FRAMES, tubelet_size=_TUBELET)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = VideoMAEModel(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape) * _SPREAD)
    size = {"shortest_edge": _SIDE}
    return model, VideoMAEImageProcessorPil(size=size, crop_size={"height": _SIDE, "width": _SIDE})
