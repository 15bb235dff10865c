"""Three pictures and two tiny models of ours, made by code: a link that names them opens without an upload, and nobody needs a licence."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError
from attention.files.picture import Picture

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EXAMPLES = {
    "circle-and-square": "a red circle left of a blue square",
    "two-cats": "two cats, one awake and one asleep",
    "odd-patch": "stripes with one odd patch",
}
"""What each picture shows, by its name."""

_WIDTH, _HEIGHT = 320, 240  # pixels
_FINE = 4  # samples of a pixel in each direction, so that edges are smooth
_STRIPE = 12  # pixels
_ODD = (144, 72, 192, 120)  # left, top, right and bottom of the odd patch

_Colour = tuple[int, int, int]
_Shape = Callable[["NDArray[np.float64]", "NDArray[np.float64]"], "NDArray[np.bool_]"]  # which points x, y are inside
_Drawing = tuple[_Colour, list[tuple[_Shape, _Colour]]]  # a background, and shapes over it


@cache
def example_picture(name: str) -> Picture:
    """The picture of this name, one of `EXAMPLES`: shapes over a background, each pixel the mean of its samples.

    Raises:
        FileError: there is no such picture.
    """
    import numpy as np
    from PIL import Image

    if name not in _SHAPES:
        raise FileError(f"An example picture is one of {', '.join(EXAMPLES)}; got {name[:40]!r}: choose one of them.")
    background, shapes = _SHAPES[name]()
    y, x = (np.mgrid[: _HEIGHT * _FINE, : _WIDTH * _FINE] + 0.5) / _FINE
    samples = np.empty((*x.shape, 3), np.uint16)
    samples[:] = background
    for shape, color in shapes:
        samples[shape(x, y)] = color
    of_pixel = samples.reshape(_HEIGHT, _FINE, _WIDTH, _FINE, 3).sum((1, 3))  # whole numbers: the same on every machine
    return Picture.of(Image.fromarray(((of_pixel + _FINE**2 // 2) // _FINE**2).astype(np.uint8)))


def _disc(centre_x: float, centre_y: float, radius: float) -> _Shape:
    return lambda x, y: (x - centre_x) ** 2 + (y - centre_y) ** 2 < radius**2


def _box(left: float, top: float, right: float, bottom: float) -> _Shape:
    return lambda x, y: (left <= x) & (x < right) & (top <= y) & (y < bottom)


def _triangle(left: float, right: float, tip: float, top: float, bottom: float) -> _Shape:
    """A triangle that stands on its base from `left` to `right`, with its tip above at `tip`."""
    height = bottom - top
    return lambda x, y: (
        (top <= y) & (y < bottom)
        & ((x - tip) * height > (left - tip) * (y - top))
        & ((x - tip) * height < (right - tip) * (y - top))
    )  # fmt: skip


def _circle_and_square() -> _Drawing:
    return (244, 241, 234), [(_disc(92, 124, 58), (206, 52, 44)), (_box(182, 68, 294, 180), (38, 84, 176))]


def _two_cats() -> _Drawing:
    shapes: list[tuple[_Shape, _Colour]] = [(_box(0, 196, 320, 240), (150, 112, 80))]
    for x, y, fur, is_awake in ((94, 134, (70, 66, 72), True), (226, 150, (226, 170, 104), False)):
        red, green, blue = (min(255, part + 50) for part in fur)
        shapes += [(_disc(x, y + 64, 50), fur), (_box(x - 50, y + 64, x + 50, 240), fur)]
        for side in (-1, 1):
            ear = sorted((x + side * 46, x + side * 10))
            shapes.append((_triangle(ear[0], ear[1], x + side * 42, y - 78, y - 22), fur))
            shapes.append((_triangle(ear[0] + 9, ear[1] - 9, x + side * 38, y - 60, y - 26), (red, green, blue)))
        shapes.append((_disc(x, y, 52), fur))
        for side in (-1, 1):
            eye = x + side * 20
            if is_awake:
                shapes += [(_disc(eye, y - 8, 12), (196, 220, 96)), (_disc(eye, y - 8, 5), (20, 20, 20))]
            else:
                shapes.append((_box(eye - 11, y - 8, eye + 11, y - 4), (90, 60, 34)))
            left, right = sorted((x + side * 24, x + side * 58))
            shapes += [(_box(left, y + line, right, y + line + 2), (240, 236, 228)) for line in (14, 22)]
        shapes.append((_disc(x, y + 14, 7), (222, 120, 130)))
    return (188, 212, 226), shapes


def _odd_patch() -> _Drawing:
    dark, light = (46, 60, 72), (232, 228, 214)
    odd = _box(*_ODD)
    return light, [
        (lambda x, y: x // _STRIPE % 2 == 0, dark),
        (odd, light),
        (lambda x, y: odd(x, y) & (y // _STRIPE % 2 == 0), dark),
    ]


_SHAPES = {"circle-and-square": _circle_and_square, "two-cats": _two_cats, "odd-patch": _odd_patch}


def tiny_vit() -> tuple[Any, Any]:
    """A vision transformer of 8 × 8 patches that has learned nothing, and its processor."""
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=_SIDE,
        patch_size=16,
    )
    return _random(ViTModel(config, add_pooling_layer=False))


def tiny_swin() -> tuple[Any, Any]:
    """A Swin of 16 × 16 patches in windows of 4 × 4, which are shifted in every second layer and merged after two, that has learned nothing; and its processor."""
    from transformers import SwinConfig, SwinModel

    sizes: dict[str, Any] = {"embed_dim": 16, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}
    return _random(SwinModel(SwinConfig(image_size=_SIDE, patch_size=8, **sizes), add_pooling_layer=False))


def tiny_mae() -> tuple[Any, Any]:
    """A ViT-MAE of 8 × 8 patches, of which 48 are hidden from its encoder, that has learned nothing; and its processor."""
    from transformers import ViTMAEConfig, ViTMAEForPreTraining

    encoder: dict[str, Any] = {
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
    }
    decoder: dict[str, Any] = {f"decoder_{name}": size for name, size in encoder.items()}
    return _random(ViTMAEForPreTraining(ViTMAEConfig(image_size=_SIDE, patch_size=16, **encoder, **decoder)))


_SIDE = 128  # pixels of a picture of our models


def _random(model: Any) -> tuple[Any, Any]:
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    from attention.models.ours import with_random_weights

    return with_random_weights(model), ViTImageProcessorPil(size={"height": _SIDE, "width": _SIDE})


def tiny_detr() -> tuple[Any, Any]:
    """A DETR of 6 × 8 cells and 12 object queries that has learned nothing, and its processor."""
    from transformers import DetrConfig, DetrForObjectDetection, ResNetConfig
    from transformers.models.detr.image_processing_pil_detr import DetrImageProcessorPil

    from attention.models.ours import with_random_weights

    of_backbone: dict[str, Any] = {
        "embedding_size": 8,
        "hidden_sizes": [8, 16, 24, 32],
        "depths": [1] * 4,
        "layer_type": "basic",
        "out_features": ["stage4"],
    }
    backbone = ResNetConfig(**of_backbone)
    names = dict(enumerate(("circle", "square")))
    sizes: dict[str, Any] = {
        "use_timm_backbone": False,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
    }
    config = DetrConfig(
        backbone_config=backbone, d_model=32, encoder_layers=2, decoder_layers=2, num_queries=12, id2label=names,
        label2id={name: index for index, name in names.items()}, **sizes,
    )  # fmt: skip
    size = {"shortest_edge": 192, "longest_edge": 256}
    model = with_random_weights(DetrForObjectDetection(config), seed=11)
    # Larger, since all queries would ask, and predict, almost the same.
    factors = {
        "query_position": 16,
        "_proj.weight": 2,
        "v_proj": 0.5,
        "o_proj": 0.5,
        "class_labels": 4,
        "bbox_predictor": 1.5,
    }
    for name, parameter in model.named_parameters():
        for part, factor in factors.items():
            if parameter.ndim == 2 and part in name:
                parameter.data.mul_(factor)
    return model, DetrImageProcessorPil(size=size)
