"""Tiny models that read videos, with random weights, and videos drawn for them."""

from __future__ import annotations

from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from tiny_pictures import MERGED, TinyPictureModels

_WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48}
_VIDEO = _WIDE | {"image_size": 12, "num_frames": 8}
_CLASSES = {"id2label": dict(enumerate(("throws", "catches", "drops"))), "num_labels": 3}
_CROP = {"size": {"shortest_edge": 16}, "crop_size": {"height": 12, "width": 12}}
TUBELETS: dict[str, tuple[str, dict[str, Any]]] = {
    "VideoMAE": ("VideoMAEModel", _VIDEO | {"patch_size": 4, "tubelet_size": 2}),
    "VideoMAE classes": ("VideoMAEForVideoClassification", _CLASSES | _VIDEO | {"patch_size": 4, "tubelet_size": 4}),
    "ViViT": ("VivitModel", _VIDEO | {"tubelet_size": [2, 4, 4]}),
    "ViViT classes": ("VivitForVideoClassification", _CLASSES | _VIDEO | {"tubelet_size": [2, 4, 6], "image_size": 12}),
}
"""The class of the model and the values of its config."""
PLACE = "<|vision_start|><|video_pad|><|vision_end|>"
"""What a user writes where a video stands, in each of the families that merge patches."""


class TinyVideoModels:
    """A folder of tiny models that read videos, each created on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder, self._merged = folder, TinyPictureModels(folder)

    def __call__(self, family: str) -> str:
        """The folder of a family's model."""
        if family in MERGED:
            return self._merged(family)
        path = self.folder / family
        if not path.exists():
            tiny(family).save_pretrained(path)
            frame_processor(family).save_pretrained(path)
        return str(path)


def tiny(family: str, **values: Any) -> Any:
    """A model of a family of tubelets, whose config has some other values."""
    import transformers

    name, own = TUBELETS[family]
    cls = getattr(transformers, name)
    return shaken(cls, cls.config_class(**own | values))


def shaken(cls: type, config: Any) -> Any:
    """A model with larger random weights than those with which transformers begins."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    return model


def frame_processor(family: str, **values: Any) -> Any:
    from transformers.models.videomae.image_processing_pil_videomae import VideoMAEImageProcessorPil
    from transformers.models.vivit.image_processing_vivit import VivitImageProcessor

    return (VivitImageProcessor if "ViViT" in family else VideoMAEImageProcessorPil)(**_CROP | values)


def noise(n_frames: int = 8, height: int = 13, width: int = 20, seed: int = 0) -> NDArray[np.uint8]:
    """Random colours, [frame row column 3]."""
    return np.random.default_rng(seed).integers(0, 256, (n_frames, height, width, 3), dtype=np.uint8)


def moving_bar(n_frames: int = 24, width: int = 64, height: int = 48) -> NDArray[np.uint8]:
    """Grey frames, brighter one by one, with a green bar that moves from left to right, [frame row column 3]."""
    frames = np.empty((n_frames, height, width, 3), np.uint8)
    for index in range(n_frames):
        frames[index] = 40 + index * 160 // n_frames
        frames[index, :, index * width // n_frames :][:, :6] = 30, 220, 30
    return frames


def encoded(frames: NDArray[np.uint8], fps: int | Fraction = 12, codec: str = "libx264", kind: str = "mp4") -> bytes:
    """A file of these frames, by PyAV."""
    import av

    stream = BytesIO()
    with av.open(stream, "w", format=kind) as container:
        own = container.add_stream(codec, rate=Fraction(fps))
        own.height, own.width, own.pix_fmt = *frames.shape[1:3], "yuv420p"
        for frame in frames:
            container.mux(own.encode(av.VideoFrame.from_ndarray(frame, "rgb24")))
        container.mux(own.encode())
    return stream.getvalue()


def animated(frames: NDArray[np.uint8], kind: str, **options: Any) -> bytes:
    """An animation of these frames, by Pillow."""
    stream = BytesIO()
    first, *others = map(Image.fromarray, frames)
    first.save(stream, kind, save_all=True, append_images=others, duration=125, **options)
    return stream.getvalue()
