"""The families of models that read a video, each declared: which tokens come before its patches, and which frames its processor takes."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from attention.media import reads_text

CLS = "[CLS]"
FRAMES = "pixel_values"
"""The argument of a model that reads nothing but a video."""
VIDEOS, GRIDS = "pixel_values_videos", "video_grid_thw"
"""The arguments of a language model for its videos: their patches, and the numbers of groups of frames, rows and columns."""
SECONDS = "second_per_grid_ts"
"""The argument of a language model that must know how many seconds a group of frames lasts."""

FIRST_TOKENS: dict[str, Callable[[Any], tuple[str, ...]]] = {"videomae": lambda _: (), "vivit": lambda _: (CLS,)}
"""By `model_type` of a video transformer: the names of its tokens before the patches, which follow group by group of frames, row by row."""
TIMED = frozenset({"qwen3_vl"})
"""Language models that read a video in their text, group by group of frames, each after its time in seconds, by `model_type`."""
IN_TEXT = frozenset({"qwen2_vl", "qwen2_5_vl"}) | TIMED
"""Language models that read the tokens of a video at the places of a video token in their text, by `model_type`."""


def is_read(model: Any) -> bool:
    """Whether a model of transformers reads a video, and is of one of the families."""
    if model.config.model_type in FIRST_TOKENS:
        return FRAMES in signature(model.forward).parameters
    return model.config.model_type in IN_TEXT and VIDEOS in signature(model.forward).parameters and reads_text(model)


def tubelet(config: Any) -> tuple[int, int, int]:
    """Frames of a patch of a video transformer, and its height and width in pixels."""
    size = config.tubelet_size
    if isinstance(size, list | tuple):
        frames, height, width = map(int, size)
        return frames, height, width
    patch = config.patch_size
    height, width = map(int, patch if isinstance(patch, list | tuple) else (patch, patch))
    return int(size), height, width
