"""The families of models that read a picture, each declared: which tokens come before its patches, and how a picture enters a text."""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

from attention.media import reads_text

CLS, _DISTILLATION = "[CLS]", "[distillation]"
PICTURES = "pixel_values"
"""The argument of a model for its pictures."""


def _registers(config: Any) -> tuple[str, ...]:
    return (CLS, *(f"[register {index}]" for index in range(config.num_register_tokens)))


CELLS = (
    "conditional_detr",
    "d_fine",
    "dab-detr",
    "deformable_detr",
    "detr",
    "rt_detr",
    "rt_detr_v2",
    "table-transformer",
)
"""Detectors with a decoder, by `model_type`: their encoder reads the cells of a feature map of a backbone, their decoder object queries."""
DETECTORS = ("yolos", *CELLS)
"""Models that predict a box and a class with each of their queries, by `model_type`."""
FIRST_TOKENS: dict[str, Callable[[Any], tuple[str, ...]]] = {
    "vit": lambda _: (CLS,),
    "vit_msn": lambda _: (CLS,),
    "deit": lambda _: (CLS, _DISTILLATION),
    "dinov2": lambda _: (CLS,),
    "dinov2_with_registers": _registers,
    "dinov3_vit": _registers,
    "ijepa": lambda _: (),
    "vit_mae": lambda _: (CLS,),
    "beit": lambda _: (CLS,),
    "data2vec-vision": lambda _: (CLS,),
    "swin": lambda _: (),
    "swinv2": lambda _: (),
    "blip_2_vision_model": lambda _: (CLS,),
    "clip_vision_model": lambda _: (CLS,),
    "siglip_vision_model": lambda _: (),
    "internvl_vision": lambda _: (CLS,),
    "qwen2_vl_vision": lambda _: (),
    "qwen2_5_vl_vision": lambda _: (),
    "qwen3_vl_vision": lambda _: (),
    "yolos": lambda _: (CLS,),
    **dict.fromkeys(CELLS, lambda _: ()),
}
"""By `model_type` of a vision transformer: the names of its tokens before the patches, which follow row by row, from its config."""
GRID, TILES, VIEWS, MERGED, QUERIES, MASKED, WINDOWS = (
    "grid",
    "tiles",
    "views",
    "merged",
    "queries",
    "masked",
    "windows",
)
IN_TEXT = {
    "llava": GRID,
    "llava_next": TILES,
    "internvl": VIEWS,
    "qwen2_vl": MERGED,
    "qwen2_5_vl": MERGED,
    "qwen3_vl": MERGED,
    "blip-2": QUERIES,
}
"""Language models that read the tokens of pictures at the places of an image token in their text, by `model_type`; how the tokens of a
picture are laid out, one of those above."""
ALONE = {"vit_mae": MASKED, "swin": WINDOWS, "swinv2": WINDOWS, "blip-2": QUERIES}
"""The same for models without a text; others have a grid."""
TWO_TOWERS = frozenset({"clip", "siglip"})
"""Models that read a picture and a text side by side, by `model_type`."""
PADDED_TEXTS = frozenset({"siglip"})
"""Models whose texts are padded to their full length, as they were in training: no mask hides the padding."""


def vision_config(model: Any) -> Any | None:
    """The config of the vision transformer of a model that reads pictures, if its family is declared here; otherwise None."""
    if PICTURES not in signature(model.forward).parameters:
        return None
    config = model.config
    if config.model_type in FIRST_TOKENS:
        return config
    tower = getattr(config, "vision_config", None)
    is_known = config.model_type in IN_TEXT or config.model_type in TWO_TOWERS or not reads_text(model)
    return tower if is_known and getattr(tower, "model_type", "") in FIRST_TOKENS else None


def patch_size(config: Any) -> tuple[int, int]:
    """The height and width of a patch in pixels; 1 × 1 where a backbone decides it."""
    size = getattr(config, "patch_size", 1)
    height, width = size if isinstance(size, list | tuple) else (size, size)
    return int(height), int(width)
