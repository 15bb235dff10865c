"""Detectors: what their encoder and their object queries read of a picture, and the box and class that each query predicts.

A query looks for one object: in DETR it is a token of a decoder, which attends to the cells of a feature map; in YOLOS it stands after the patches.
"""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.base.tokens import BoxPlace, BoxToken
from attention.media import Medium
from attention.models.medium_inputs import ReadInput
from attention.models.seen_pixels import RawPicture, area, seen_picture, unknown_pixels
from attention.trace.trace import SeenPicture
from attention.vision.families import CELLS, DETECTORS, PICTURES
from attention.vision.reader import PictureReader

if TYPE_CHECKING:
    from attention.models.loaded import LoadedModel

_MASK = "pixel_mask"
_LARGE_SIDE = 1024  # pixels, which every stride divides


class DetectionReader(PictureReader):
    """How a detector reads a picture: patches, or cells of the feature map of its backbone, and its queries.

    Attributes:
        queries: their names before the model has run.
        decodes: whether they are those of a decoder, and the encoder reads cells.
        classes: the names of the classes, in the order of the logits; there may be one more logit, of no object.
    """

    def __init__(self, medium: Medium, model: Any, image_processor: Any, processor: Any) -> None:
        super().__init__(medium, model, image_processor, processor)
        config, self._backbone, self._notes = model.config, None, list[str]()
        self._has_mask = _MASK in signature(model.forward).parameters
        self.decodes = config.model_type in CELLS
        self.classes = tuple(str(config.id2label.get(index, f"class {index}")) for index in range(config.num_labels))
        if not self.decodes:
            self.queries = tuple(f"[DET] {index}" for index in range(config.num_detection_tokens))
            return
        self.queries = tuple(f"query {index}" for index in range(config.num_queries))
        modules = dict(model.named_modules())
        backbone = modules[next(path for path in modules if path.rpartition(".")[2] == "backbone")]
        # A copy without numbers, which says how large the feature map of a picture is.
        numbers = {id(each): each.detach().to("meta") for each in (*backbone.parameters(), *backbone.buffers())}
        self._backbone = copy.deepcopy(backbone, numbers)
        self._level = getattr(config, "encode_proj_layers", (-1,))[-1]
        rows, columns = self._cells(_LARGE_SIDE, _LARGE_SIDE)
        height, width = self.patch_size = _LARGE_SIDE // rows, _LARGE_SIDE // columns
        self._notes.append(
            f"A patch is a cell of the feature map that the encoder reads: it stands for {width} × {height} pixels, and a convolution computed it from more."
        )
        if any(re.search(r"decoder\.layers\.0\.encoder_attn\.sampling_offsets$", path) for path in modules):
            self._notes.append(
                "The cross-attention of this model is deformable: a query reads a few points between the cells instead of weighing all cells, "
                "so there is no map of it, and its layers are left out."
            )

    @property
    def unread(self) -> tuple[str, ...]:
        """What the image processor gives beside the arguments of the model."""
        return () if self._has_mask or not self.image_processor.do_pad else (_MASK,)

    @property
    def computes(self) -> str:
        """As `InputReader.computes`."""
        return "a box and a class at each of its queries, which have them in their names"

    def read(self, loaded: LoadedModel, pictures: Sequence[RawPicture], text: str) -> tuple[ReadInput, Tensor | None]:
        """As `PictureReader.read`, for one picture."""
        from PIL import Image

        (picture,) = pictures
        processed = self.image_processor(images=Image.fromarray(picture.rgb), return_tensors="pt")
        pixels = processed[PICTURES]
        if not isinstance(pixels, Tensor) or pixels.shape[:2] != (1, 3):
            raise unknown_pixels()
        mask = processed.get(_MASK, torch.ones_like(pixels[:, 0], dtype=torch.int64))
        seen = self._seen(pixels, mask, picture)
        cells = tuple(area(0, 0, 0, seen.rows, seen.columns, self.patch_size))
        arguments = {PICTURES: pixels} | ({_MASK: mask} if self._has_mask else {})
        if self.decodes:
            sides = {"decoder": (self.queries, self.queries), "cross": (self.queries, cells)}
            return ReadInput(arguments, (seen,), cells, (), (len(cells),), (), sides, tuple(self._notes)), None
        tokens = (*self.first_tokens, *cells, *self.queries)
        return ReadInput(arguments, (seen,), tokens, (), (len(tokens),), ()), None

    def names_after(self, read: ReadInput, output: Any) -> Mapping[str, str]:
        """Each query with its box, and with its class and score where the model is sure enough of an object."""
        logits, boxes = output.get("logits"), output.get("pred_boxes")
        if not isinstance(logits, Tensor) or not isinstance(boxes, Tensor) or boxes.shape[1] != len(self.queries):
            return {}
        found = read_boxes(logits[0], boxes[0], len(self.classes), _size_of(read))
        names = dict[str, str]()
        for query, (index, score, box) in zip(self.queries, found, strict=True):
            if all(map(math.isfinite, (score, *box))):
                token = BoxToken(query, BoxPlace(0, box, score))
                is_named = token.is_object
                names[query] = (
                    BoxToken(f"{query}: {self.classes[index]} {score:.2f}", token.place) if is_named else token
                )
        return names

    def _cells(self, height: int, width: int) -> tuple[int, int]:
        """The rows and columns of the feature map of a picture."""
        assert self._backbone is not None
        with torch.no_grad():
            pixels = torch.empty(1, 3, height, width, device="meta")
            features = self._backbone(pixels, torch.ones(1, height, width, device="meta"))
        maps = features[0] if isinstance(features, tuple) else features  # some give positions beside the maps
        rows, columns = maps[self._level][0].shape[-2:]
        return int(rows), int(columns)

    def _seen(self, pixels: Tensor, mask: Tensor, picture: RawPicture) -> SeenPicture:
        """What the model saw, up to the ends of the last cells: a convolution goes on there with zeros, which are the mean colour."""
        height, width = pixels.shape[-2:]
        (down, across), words = _extent(mask), ""
        is_same = (across, down) == picture.rgb.shape[1::-1]
        words = "not resized" if is_same else f"resized to {across} × {down}"
        if (across, down) != (width, height):
            words += f", padded to {width} × {height}"
        if self.decodes:
            rows, columns = self._cells(height, width)
            beside = [max(0, count * size - length) for count, size, length in zip((rows, columns), self.patch_size, (height, width), strict=True)]  # fmt: skip
            pixels = torch.nn.functional.pad(pixels, (0, beside[1], 0, beside[0]))
            words += ", with the mean colour beside it up to whole cells" * any(beside)
        return seen_picture(self.image_processor, self.patch_size, pixels[0], picture, words)


def reader_class(model: Any) -> type[PictureReader]:
    """The class of the reader of a model of pictures."""
    return DetectionReader if model.config.model_type in DETECTORS else PictureReader


def read_boxes(
    logits: Tensor, boxes: Tensor, n_classes: int, size: tuple[int, int]
) -> list[tuple[int, float, tuple[float, float, float, float]]]:
    """For each query its likeliest class, the score of it, and its box (left, top, right, bottom) in pixels.

    Args:
        logits: [query class]. With one more than there are classes, the last is that of no object and scores are a softmax (Carion et al.
            2020, equation 1); otherwise each class has a sigmoid of its own, as with the focal loss.
        boxes: middle (x, y), width and height as shares of the picture, [query 4].
        n_classes: the number of classes.
        size: height and width of the picture in pixels, without padding.
    """
    logits, boxes = (tensor.detach().to("cpu", torch.float32) for tensor in (logits, boxes))
    probabilities = logits.softmax(-1)[:, :n_classes] if logits.shape[-1] > n_classes else logits.sigmoid()
    scores, classes = probabilities.max(-1)
    middle, extent = boxes[:, :2], boxes[:, 2:]
    corners = torch.cat([middle - extent / 2, middle + extent / 2], -1) * torch.tensor([size[1], size[0]] * 2)
    return [
        (index, score, (box[0], box[1], box[2], box[3]))
        for index, score, box in zip(classes.tolist(), scores.tolist(), corners.tolist(), strict=True)
    ]


def _size_of(read: ReadInput) -> tuple[int, int]:
    """The height and width of a picture as the model saw it, without padding."""
    mask = read.arguments.get(_MASK)
    if mask is not None:
        return _extent(mask)
    height, width = read.arguments[PICTURES].shape[-2:]
    return int(height), int(width)


def _extent(mask: Tensor) -> tuple[int, int]:
    return int(mask[0].any(-1).sum()), int(mask[0].any(0).sum())
