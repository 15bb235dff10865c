"""Tiny detectors with random weights: without timm, and with queries that differ."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch

CLASSES = ("cat", "remote", "couch")
_PARTS = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "num_queries": 7,
}  # fmt: skip
_HYBRID = _PARTS | {
    "encoder_hidden_dim": 32, "encoder_in_channels": [8, 12, 16], "feat_strides": [8, 16, 32], "decoder_in_channels": [32, 32, 32],
    "encoder_layers": 1,
}  # fmt: skip
_VIT = {
    "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "image_size": [32, 48], "patch_size": 16,
    "num_detection_tokens": 7,
}  # fmt: skip
_SIDES, _SQUARE = {"size": {"shortest_edge": 70, "longest_edge": 100}}, {"size": {"height": 96, "width": 96}}
DETECTORS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "DETR": ("DetrForObjectDetection", _PARTS, "detr", _SIDES),
    "DETR without a head": ("DetrModel", _PARTS, "detr", _SIDES),
    "DETR of masks": (
        "DetrForSegmentation",
        _PARTS | {"d_model": 64, "encoder_attention_heads": 8, "decoder_attention_heads": 8},
        "detr",
        _SIDES,
    ),
    "Conditional DETR": ("ConditionalDetrForObjectDetection", _PARTS, "conditional_detr", _SIDES),
    "DAB-DETR": ("DabDetrForObjectDetection", _PARTS | {"hidden_size": 32}, "conditional_detr", _SIDES),
    "Table Transformer": ("TableTransformerForObjectDetection", _PARTS, "detr", _SIDES),
    "Deformable DETR": ("DeformableDetrForObjectDetection", _PARTS, "deformable_detr", _SIDES),
    "RT-DETR": ("RTDetrForObjectDetection", _HYBRID, "rt_detr", _SQUARE),
    "RT-DETR v2": ("RTDetrV2ForObjectDetection", _HYBRID, "rt_detr", _SQUARE),
    "D-FINE": ("DFineForObjectDetection", _HYBRID, "rt_detr", _SQUARE),
    "YOLOS": ("YolosForObjectDetection", _VIT, "yolos", _SIDES),
}
"""The class of the model, the values of its config, the family of its processor, and its values."""
DEFORMABLE = ("Deformable DETR", "RT-DETR", "RT-DETR v2", "D-FINE")
"""Those whose cross-attention has no map."""


def detector(name: str, **options: Any) -> tuple[Any, Any]:
    """The model of a name, and its processor with some options."""
    import transformers

    class_name, values, family, of_processor = DETECTORS[name]
    cls = getattr(transformers, class_name)
    if name != "YOLOS":
        stages = [f"stage{i}" for i in range({"DETR of masks": 1}.get(name, 2 if name in DEFORMABLE else 4), 5)]
        resnet: Any = transformers.RTDetrResNetConfig if "encoder_in_channels" in values else transformers.ResNetConfig
        widths = [16, 32, 64, 128] if "masks" in name else [8, 8, 12, 16]
        backbone = resnet(embedding_size=8, hidden_sizes=widths, depths=[1] * 4, out_features=stages, layer_type="basic")  # fmt: skip
        values = values | {"backbone_config": backbone, "use_timm_backbone": False, "backbone": None}
    labels = dict(enumerate(CLASSES))
    config = cls.config_class(**values, id2label=labels, label2id={label: index for index, label in labels.items()})
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = cls(config).eval()
        with torch.no_grad():
            for path, parameter in model.named_parameters():
                if "backbone" not in path and parameter.ndim > 1:
                    parameter.add_(torch.randn(parameter.shape) * 0.2)
    module = import_module(f"transformers.models.{family}.image_processing_pil_{family}")
    processor = getattr(module, next(each for each in dir(module) if each.endswith("ImageProcessorPil")))
    return model, processor(**(of_processor | options))


def save(name: str, folder: Path) -> Path:
    """A folder with the model of a name."""
    for part in detector(name):
        part.save_pretrained(folder)
    return folder
