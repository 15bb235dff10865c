"""Tiny models that read pictures, with random weights, and pictures drawn for them."""

from __future__ import annotations

import re
import struct
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from tiny_models import SENTENCES, byte_level

from attention.base.tokens import BoxPlace, BoxToken, Patch
from attention.trace.layer import Layer
from attention.trace.trace import SeenPicture, Trace

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

_TILES = [[12, 24], [24, 12], [24, 24]]

FAMILIES: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "ViT": ("ViTForImageClassification", _VIT, "ViTImageProcessorPil", _FIXED),
    "ViT-MSN": ("ViTMSNModel", _VIT, "ViTImageProcessorPil", _FIXED),
    "I-JEPA": ("IJepaModel", _VIT, "ViTImageProcessorPil", _FIXED),
    "DeiT": ("DeiTModel", _VIT, "DeiTImageProcessorPil", _FIXED | {"do_center_crop": False}),
    "DINOv2": ("Dinov2Model", _DINO, "BitImageProcessorPil", {"size": {"shortest_edge": 8}, "do_center_crop": False}),
    "DINOv2 with registers": ("Dinov2WithRegistersModel", _DINO | {"num_register_tokens": 3}, "BitImageProcessorPil", _CROP),
    "DINOv3": ("DINOv3ViTModel", _SQUARE | {"num_register_tokens": 2}, "BitImageProcessorPil", _FIXED | {"do_center_crop": False}),
    "BEiT": ("BeitModel", _SQUARE | {"use_relative_position_bias": True}, "BeitImageProcessorPil", {"size": {"height": 12, "width": 12}, "do_center_crop": False}),
    "CLIP vision": ("CLIPVisionModel", _SQUARE, "CLIPImageProcessorPil", _CROP),
    "SigLIP vision": ("SiglipVisionModel", _SQUARE, "SiglipImageProcessorPil", {"size": {"height": 12, "width": 12}}),
    "CLIP": ("CLIPModel", _TOWERS | {"projection_dim": 16}, "CLIPImageProcessorPil", _CROP),
    "SigLIP": ("SiglipModel", _TOWERS, "SiglipImageProcessorPil", {"size": {"height": 12, "width": 12}}),
    "LLaVA": ("LlavaForConditionalGeneration", {}, "CLIPImageProcessorPil", _CROP),
    "LLaVA-NeXT": ("LlavaNextForConditionalGeneration", {}, "LlavaNextImageProcessorPil", {"size": {"shortest_edge": 12}, "crop_size": {"height": 12, "width": 12}, "image_grid_pinpoints": _TILES}),
    "InternVL": ("InternVLForConditionalGeneration", {}, "GotOcr2ImageProcessorPil", {"size": {"height": 16, "width": 16}, "max_patches": 6}),
    "Qwen2-VL": ("Qwen2VLForConditionalGeneration", {}, "Qwen2VLImageProcessorPil", {"patch_size": 4, "merge_size": 2, "size": {"shortest_edge": 64, "longest_edge": 64 * 8}}),
    "Qwen2.5-VL": ("Qwen2_5_VLForConditionalGeneration", {}, "Qwen2VLImageProcessorPil", {"patch_size": 4, "merge_size": 2, "size": {"shortest_edge": 64, "longest_edge": 64 * 8}}),
    "Qwen3-VL": ("Qwen3VLForConditionalGeneration", {}, "Qwen2VLImageProcessorPil", {"patch_size": 4, "merge_size": 2, "size": {"shortest_edge": 64, "longest_edge": 64 * 8}}),
}  # fmt: skip
"""The class of the model, the values of its config, the class of the image processor, and its values."""
_MAE = _SQUARE | {
    "mask_ratio": 0.5, "decoder_hidden_size": 16, "decoder_num_hidden_layers": 2, "decoder_num_attention_heads": 2, "decoder_intermediate_size": 24,
}  # fmt: skip
# Its grid, 7 × 5, fills no whole windows, nor does that after it, 4 × 3.
_SWIN = {
    "image_size": (28, 20),
    "patch_size": 4,
    "embed_dim": 8,
    "depths": [2, 2],
    "num_heads": [2, 4],
    "window_size": 3,
}
_SWIN_SIZE = {"size": {"height": 28, "width": 20}}
OWN_LAYERS: dict[str, tuple[str, dict[str, Any], str, dict[str, Any]]] = {
    "ViT-MAE": ("ViTMAEForPreTraining", _MAE, "ViTImageProcessorPil", {"size": {"height": 12, "width": 12}}),
    "ViT-MAE encoder": ("ViTMAEModel", _MAE, "ViTImageProcessorPil", {"size": {"height": 12, "width": 12}}),
    "data2vec-vision": ("Data2VecVisionModel", FAMILIES["BEiT"][1], *FAMILIES["BEiT"][2:]),
    "Swin": ("SwinModel", _SWIN | {"image_size": 24, "window_size": 2, "depths": [2, 2, 1], "num_heads": [2, 4, 4]}, "ViTImageProcessorPil", {"size": {"height": 24, "width": 24}}),
    "Swin padded": ("SwinForImageClassification", _SWIN | {"num_labels": 3}, "ViTImageProcessorPil", _SWIN_SIZE),
    "Swin backbone": ("SwinBackbone", _SWIN, "ViTImageProcessorPil", _SWIN_SIZE),
    "SwinV2": ("Swinv2Model", _SWIN, "ViTImageProcessorPil", _SWIN_SIZE),
    "BLIP-2": ("Blip2ForConditionalGeneration", {}, "BlipImageProcessorPil", {"size": {"height": 12, "width": 12}}),
    "BLIP-2 vision": ("Blip2VisionModelWithProjection", {}, "BlipImageProcessorPil", {"size": {"height": 12, "width": 12}}),
}  # fmt: skip
"""The same for models with layers of other tokens than the patches of the grid."""
MERGED = ("Qwen2-VL", "Qwen2.5-VL", "Qwen3-VL")
"""Those that merge patches in squares for their text."""
IN_TEXT = ("LLaVA", "LLaVA-NeXT", "InternVL", *MERGED)
"""Those that read pictures in their text, also several."""
_CLASSES = {"id2label": dict(enumerate(("red circle", "blue square", "grey owl"))), "num_labels": 3}
_CLASSIFIED = {
    "ViT": "ViT", "ViT-MSN": "ViTMSN", "I-JEPA": "IJepa", "DeiT": "DeiT", "DINOv2": "Dinov2",
    "DINOv2 with registers": "Dinov2WithRegisters", "CLIP vision": "CLIP", "SigLIP vision": "Siglip",
}  # fmt: skip
CLASSIFIERS = {
    f"{family} classes": (
        f"{name}ForImageClassification",
        _CLASSES | ({"vision_config": FAMILIES[family][1]} if "vision" in family else FAMILIES[family][1]),
        *FAMILIES[family][2:],
    )
    for family, name in _CLASSIFIED.items()
} | {"DeiT with a teacher": ("DeiTForImageClassificationWithTeacher", _CLASSES | _VIT, *FAMILIES["DeiT"][2:])}
"""The same for classifiers, of three classes."""
WITH_TEXT = ("CLIP", "SigLIP", "BLIP-2", *IN_TEXT)
PLACES = (
    dict.fromkeys(IN_TEXT, "<image>")
    | {"InternVL": "<IMG_CONTEXT>"}
    | dict.fromkeys(MERGED, "<|vision_start|><|image_pad|><|vision_end|>")
)
"""What a user writes where a picture stands."""


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

    name, values, processor_name, options = (FAMILIES | CLASSIFIERS | OWN_LAYERS)[family]
    tokenizer = byte_level(SENTENCES)
    cls = getattr(transformers, name)
    if "BLIP-2" in family:
        config = _blip_2(tokenizer)
    else:
        config = _config_in_text(family, tokenizer) if family in IN_TEXT else cls.config_class(**values)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        network = cls(config)
        with torch.no_grad():
            for parameter in network.parameters():
                parameter.add_(torch.randn(parameter.shape) * 0.2)
    network.save_pretrained(path)
    image_processor = _image_processor(processor_name)(**options)
    if family in ("LLaVA", "LLaVA-NeXT"):
        processor = getattr(transformers, name.removesuffix("ForConditionalGeneration") + "Processor")
        processor(
            image_processor, tokenizer, patch_size=4, vision_feature_select_strategy="default",
            num_additional_image_tokens=1,
        ).save_pretrained(path)  # fmt: skip
    image_processor.save_pretrained(path)
    if family == "BLIP-2":
        transformers.Blip2Processor(image_processor, tokenizer, num_query_tokens=4).save_pretrained(path)
    if family in WITH_TEXT:
        tokenizer.save_pretrained(path)


def _config_in_text(family: str, tokenizer: Any) -> Any:
    """The config of a language model that reads pictures, whose image tokens are added to the tokenizer."""
    import transformers

    special = ["<image>"] if family not in MERGED else ["<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]  # fmt: skip
    special = ["<img>", "</img>", "<video>", "<IMG_CONTEXT>"] if family == "InternVL" else special
    tokenizer.add_special_tokens({"additional_special_tokens": special})
    ids = tokenizer.convert_tokens_to_ids(special)
    text = _TEXT | {"vocab_size": ids[-1] + 1, "num_key_value_heads": 2, "max_position_embeddings": 160}
    if family in MERGED:
        vision = {"depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "mlp_ratio": 2, "patch_size": 4}
        rotary = {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4}
        names = ("vision_start_token_id", "vision_end_token_id", "image_token_id", "video_token_id")
        own = dict(zip(names, ids, strict=True))
        wide = {"hidden_size": 32, "intermediate_size": 48, "out_hidden_size": 32}
        vision |= {
            "Qwen2-VL": {},
            "Qwen2.5-VL": wide | {"window_size": 16, "fullatt_block_indexes": [1]},  # of 2 × 2 squares
            "Qwen3-VL": wide | {"num_position_embeddings": 16, "deepstack_visual_indexes": [0]},
        }[family]
        text |= {"rope_parameters": rotary} | ({"head_dim": 8} if family == "Qwen3-VL" else {})
        cls = getattr(transformers, FAMILIES[family][0].removesuffix("ForConditionalGeneration") + "Config")
        return cls(vision_config=vision, text_config=text, **own)
    if family == "InternVL":
        names = ("start_image_token", "end_image_token", "video_token", "context_image_token")
        tokenizer._set_model_specific_special_tokens(dict(zip(names, special, strict=True)))
        vision = _WIDE | {"intermediate_size": 48, "image_size": 16, "patch_size": 4}
        qwen = text | {"model_type": "qwen2"}
        return transformers.InternVLConfig(vision_config=vision, text_config=qwen, image_token_id=ids[-1], image_seq_length=4, tie_word_embeddings=False)  # fmt: skip
    cls = transformers.LlavaConfig if family == "LLaVA" else transformers.LlavaNextConfig
    own = {"image_seq_length": 9} if family == "LLaVA" else {"image_grid_pinpoints": _TILES}
    towers = {
        "vision_config": transformers.CLIPVisionConfig(**_SQUARE),
        "text_config": transformers.LlamaConfig(**text),
    }
    return cls(image_token_id=ids[0], **towers, **own)


def _blip_2(tokenizer: Any) -> Any:
    """The config of a vision transformer, a Q-Former with four queries, and OPT, whose image token is added to the tokenizer."""
    import transformers

    tokenizer.add_special_tokens({"additional_special_tokens": ["<image>"]})
    (image,) = tokenizer.convert_tokens_to_ids(["<image>"])
    size = {"hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
    text = {"hidden_size": 32, "num_attention_heads": 4, "ffn_dim": 48, "num_hidden_layers": 2, "word_embed_proj_dim": 32, "vocab_size": image + 1, "max_position_embeddings": 64}  # fmt: skip
    return transformers.Blip2Config(
        vision_config=size | {"num_hidden_layers": 2, "image_size": 12, "patch_size": 4},
        qformer_config=size | {"num_hidden_layers": 3, "encoder_hidden_size": 32, "cross_attention_frequency": 2, "vocab_size": 50},
        text_config=text | {"model_type": "opt"}, num_query_tokens=4, image_token_index=image,
    )  # fmt: skip


def processor_of(path: str, family: str) -> Any:
    """The processor of pictures and texts of transformers for a family that reads pictures in its text."""
    import transformers

    image_processor = transformers.AutoImageProcessor.from_pretrained(path, backend="pil")
    if family not in (*MERGED, "InternVL"):
        processor = transformers.AutoProcessor.from_pretrained(path, backend="pil")
        processor.image_processor = image_processor
        return processor
    # Its constructor needs torchvision for a processor of videos.
    cls = transformers.InternVLProcessor if family == "InternVL" else transformers.Qwen2VLProcessor
    processor, tokenizer = cls.__new__(cls), transformers.AutoTokenizer.from_pretrained(path)
    if family == "InternVL":
        vars(processor).update(
            image_processor=image_processor, tokenizer=tokenizer, video_processor=None, chat_template=None, image_seq_length=4,
            start_image_token="<img>", end_image_token="</img>", image_token="<IMG_CONTEXT>", video_token="<video>",
            start_image_token_id=tokenizer.convert_tokens_to_ids("<img>"), end_image_token_id=tokenizer.convert_tokens_to_ids("</img>"),
            image_token_id=tokenizer.convert_tokens_to_ids("<IMG_CONTEXT>"), video_token_id=tokenizer.convert_tokens_to_ids("<video>"),
            multimodal_pattern=re.compile("(?P<image><IMG_CONTEXT>)|(?P<video><video>)"),
        )  # fmt: skip
        return processor
    image, video = "<|image_pad|>", "<|video_pad|>"
    vars(processor).update(
        image_processor=image_processor, tokenizer=tokenizer, image_token=image, video_token=video, video_processor=None,
        image_token_id=tokenizer.convert_tokens_to_ids(image), video_token_id=tokenizer.convert_tokens_to_ids(video),
        chat_template=None,
    )  # fmt: skip
    return processor


def _image_processor(name: str) -> Any:
    from importlib import import_module

    family = {"LlavaNext": "llava_next", "Qwen2VL": "qwen2_vl", "GotOcr2": "got_ocr2"}.get(
        own := name.removesuffix("ImageProcessorPil"), own.lower()
    )
    return getattr(import_module(f"transformers.models.{family}.image_processing_pil_{family}"), name)


def bright_patch(row: int, column: int, rows: int = 2, columns: int = 3, side: int = 4) -> Image.Image:
    """A dark picture in which one patch is white."""
    pixels = np.full((rows * side, columns * side, 3), 10, np.uint8)
    pixels[row * side : (row + 1) * side, column * side : (column + 1) * side] = 255
    return Image.fromarray(pixels)


def noise(width: int = 20, height: int = 13, seed: int = 0) -> NDArray[np.uint8]:
    """Random colours, [row column 3]."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def encoded(image: Image.Image, kind: str, **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def png_header(width: int, height: int) -> bytes:
    data = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    idat = struct.pack(">I", 4) + b"IDAT" + bytes(8)
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + data + struct.pack(">I", zlib.crc32(data)) + idat


def boxes_on_a_picture() -> Trace:
    """Three object queries, of which two see an object, over a picture of 2 × 3 patches."""
    patches = tuple(Patch(0, r, c, (c * 4, r * 4, c * 4 + 4, r * 4 + 4)) for r in range(2) for c in range(3))
    places = ((0.5, 1.0, 6.0, 7.5), 0.9), ((2.0, 0.0, 3.0, 8.0), 0.2), ((-1.0, 2.0, 13.0, 4.0), 0.6)
    queries = tuple(BoxToken(f"query {index}", BoxPlace(0, *place)) for index, place in enumerate(places))
    weights = torch.softmax(torch.from_numpy(np.random.default_rng(0).normal(size=(2, 3, 6))), -1)
    layer = Layer(recorded={"weights": weights}, tokens=queries, key_tokens=patches)
    return Trace(queries, (layer,), patches, pictures=(SeenPicture(noise(12, 8), 2, 3, (4, 4), "words", "00"),))


def two_pictures() -> Trace:
    """Two layers with equal names of tokens, each of another picture, and a third with words."""
    rng = np.random.default_rng(0)

    def layer(tokens: tuple[str, ...]) -> Layer:
        weights = torch.softmax(torch.from_numpy(rng.normal(size=(2, len(tokens), len(tokens)))), -1)
        return Layer(recorded={"weights": weights}, tokens=tokens, key_tokens=tokens)

    of_picture = [
        tuple(
            Patch(p, r, c, (c * 4, r * 4, c * 4 + 4, r * 4 + 4)) for r in range(2) for c in range(3)
        ) for p in range(2)
    ]  # fmt: skip
    seen = tuple(SeenPicture(noise(13, 9, p), 2, 3, (4, 4), f"words {p}", f"0{p}") for p in range(2))
    layers = tuple(map(layer, (*of_picture, ("[CLS]", *of_picture[1], *of_picture[0], "dog"))))
    return Trace(layers[0].tokens, layers, pictures=seen)
