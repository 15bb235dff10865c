"""Tiny models that read pictures, with random weights, and pictures drawn for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from tiny_models import SENTENCES, byte_level

_WIDE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
_VIT = _WIDE | {"intermediate_size": 48, "image_size": (8, 12), "patch_size": 4}
_SQUARE = _VIT | {"image_size": 12}
_DINO = _WIDE | {"mlp_ratio": 2, "image_size": 12, "patch_size": 4}
_TEXT = _WIDE | {
    "intermediate_size": 48,
    "vocab_size": 400,
    "max_position_embeddings": 48,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
_TOWERS = {"vision_config": _SQUARE, "text_config": _TEXT}

_FIXED = {"size": {"height": 8, "width": 12}}
_CROP = {"size": {"shortest_edge": 16}, "crop_size": {"height": 12, "width": 12}, "do_center_crop": True}

FAMILIES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "ViT": ("ViTForImageClassification", _VIT, "ViTImageProcessorPil", _FIXED),
    "ViT-MSN": ("ViTMSNModel", _VIT, "ViTImageProcessorPil", _FIXED),
    "I-JEPA": ("IJepaModel", _VIT, "ViTImageProcessorPil", _FIXED),
    "DeiT": ("DeiTModel", _VIT, "DeiTImageProcessorPil", _FIXED | {"do_center_crop": False}),
    "DINOv2": ("Dinov2Model", _DINO, "BitImageProcessorPil", {"size": {"shortest_edge": 8}, "do_center_crop": False}),
    "DINOv2 with registers": ("Dinov2WithRegistersModel", _DINO | {"num_register_tokens": 3}, "BitImageProcessorPil", _CROP),
    "DINOv3": ("DINOv3ViTModel", _SQUARE | {"num_register_tokens": 2}, "BitImageProcessorPil", _FIXED | {"do_center_crop": False}),
    "CLIP vision": ("CLIPVisionModel", _SQUARE, "CLIPImageProcessorPil", _CROP),
    "SigLIP vision": ("SiglipVisionModel", _SQUARE, "SiglipImageProcessorPil", {"size": {"height": 12, "width": 12}}),
    "CLIP": ("CLIPModel", _TOWERS | {"projection_dim": 16}, "CLIPImageProcessorPil", _CROP),
    "SigLIP": ("SiglipModel", _TOWERS, "SiglipImageProcessorPil", {"size": {"height": 12, "width": 12}}),
    "LLaVA": ("LlavaForConditionalGeneration", {}, "CLIPImageProcessorPil", _CROP),
}  # fmt: skip
"""The class of the model, the values of its config, the class of the image processor, and its values."""
WITH_TEXT = ("CLIP", "SigLIP", "LLaVA")


class TinyPictureModels:
    """A folder of tiny models that read pictures, each created on first use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, family: str) -> str:
        """The folder of a family's model."""
        path = self.folder / family
        if not path.exists():
            _save(path, family)
        return str(path)


def _save(path: Path, family: str) -> None:
    import transformers
    from transformers import CLIPVisionConfig, LlamaConfig, LlavaConfig, LlavaProcessor

    name, values, processor_name, options = FAMILIES[family]
    tokenizer = byte_level(SENTENCES)
    cls = getattr(transformers, name)
    if family == "LLaVA":
        tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
        image_id = tokenizer.convert_tokens_to_ids("<image>")
        text = LlamaConfig(**_TEXT | {"vocab_size": image_id + 1, "num_key_value_heads": 2})
        config = LlavaConfig(
            vision_config=CLIPVisionConfig(**_SQUARE), text_config=text, image_token_id=image_id, image_seq_length=9
        )
    else:
        config = cls.config_class(**values)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = cls(config)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    network.save_pretrained(path)
    image_processor = _image_processor(processor_name)(**options)
    if family == "LLaVA":
        LlavaProcessor(
            image_processor, tokenizer, patch_size=4, vision_feature_select_strategy="default",
            num_additional_image_tokens=1,
        ).save_pretrained(path)  # fmt: skip
    image_processor.save_pretrained(path)
    if family in WITH_TEXT:
        tokenizer.save_pretrained(path)


def _image_processor(name: str) -> Any:
    from importlib import import_module

    family = name.removesuffix("ImageProcessorPil").lower()
    return getattr(import_module(f"transformers.models.{family}.image_processing_pil_{family}"), name)


def bright_patch(row: int, column: int, rows: int = 2, columns: int = 3, side: int = 4) -> Image.Image:
    """A dark picture in which one patch is white."""
    pixels = np.full((rows * side, columns * side, 3), 10, np.uint8)
    pixels[row * side : (row + 1) * side, column * side : (column + 1) * side] = 255
    return Image.fromarray(pixels)


def noise(width: int = 20, height: int = 13, seed: int = 0) -> NDArray[np.uint8]:
    """Random colours, [row column 3]."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
