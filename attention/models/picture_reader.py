"""From a picture to the tokens of a model: the processor of the model, the grid of patches, and the picture that the model saw."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from attention.core.seen_picture import SeenPicture
from attention.errors import ModelError
from attention.models.vision_families import (
    FIRST_TOKENS,
    IN_TEXT,
    PADDED_TEXTS,
    PICTURES,
    patch_size,
    reads_text,
    vision_config,
)
from attention.tokens import Patch

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray

    from attention.models.folder_check import Folder

_MAX_SIDE = 1024  # pixels that a processor may ask for; the longer side may be longer
_RAW = {"do_rescale": False, "do_normalize": False}  # a processor with these returns the pixels from 0 to 255


class ReadPicture(NamedTuple):
    """A picture as a model reads it.

    Attributes:
        pixels: [1 3 row column], normalized.
        seen: what the model saw.
        tokens: of the vision transformer, by position.
    """

    pixels: Tensor
    seen: SeenPicture
    tokens: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class PictureReader:
    """How a model reads pictures.

    Attributes:
        image_processor: of transformers.
        processor: the processor of picture and text, for a language model that reads pictures in its text; otherwise None.
        first_tokens: the tokens of the vision transformer before the patches.
        patch_size: height and width of a patch in pixels.
        reads_text: whether the model also reads a text.
        n_left_out: how many of the first tokens of the vision transformer do not enter the text.
        image_token_id: the id in the text that stands for a token of the picture; None if none does.
        pads_text: whether texts are padded to their full length.
    """

    image_processor: Any
    processor: Any
    first_tokens: tuple[str, ...]
    patch_size: tuple[int, int]
    reads_text: bool
    n_left_out: int = 0
    image_token_id: int | None = None
    pads_text: bool = False

    @classmethod
    def of(cls, model: Any, image_processor: Any, processor: Any) -> PictureReader:
        """The reader of a model of a declared family, from its processors."""
        vision, config = vision_config(model), model.config
        assert vision is not None  # the caller has checked it
        in_text = config.model_type in IN_TEXT and reads_text(model)
        return cls(
            image_processor,
            processor if in_text else None,
            FIRST_TOKENS[vision.model_type](vision),
            patch_size(vision),
            reads_text(model),
            int(in_text and config.vision_feature_select_strategy == "default"),
            config.image_token_id if in_text else None,
            config.model_type in PADDED_TEXTS,
        )

    def read(self, rgb: NDArray[uint8], digest: str) -> ReadPicture:
        """A picture [row column 3], from 0 to 255, as the model reads it.

        Raises:
            ModelError: the processor does not give one picture in three colours.
        """
        from PIL import Image

        image = Image.fromarray(rgb)
        pixels = self._processed(image)
        seen = self._seen(image, pixels, digest)
        height, width = self.patch_size
        patches = (
            Patch(0, row, column, (column * width, row * height, (column + 1) * width, (row + 1) * height))
            for row in range(seen.rows)
            for column in range(seen.columns)
        )
        return ReadPicture(pixels, seen, (*self.first_tokens, *patches))

    def expanded_ids(self, text: str, rgb: NDArray[uint8]) -> Tensor:
        """The token ids [1 pos] of a text with one image token, which the model's processor repeats for each token of the picture."""
        from PIL import Image

        ids: Tensor = self.processor(images=[Image.fromarray(rgb)], text=[text], return_tensors="pt")["input_ids"]
        return ids

    def _processed(self, image: Any, **options: Any) -> Tensor:
        pixels = self.image_processor(images=image, return_tensors="pt", **options)[PICTURES]
        if not isinstance(pixels, Tensor) or pixels.ndim != 4 or pixels.shape[:2] != (1, 3):
            raise ModelError(
                "The Lab reads one picture of three colours at a time, and the processor of this model makes something else of it: choose another model."
            )
        return pixels

    def _seen(self, image: Any, pixels: Tensor, digest: str) -> SeenPicture:
        processor = self.image_processor
        rgb = pixels[0].double()
        if processor.do_normalize:
            mean, std = (
                torch.tensor(numbers, dtype=torch.float64).expand(3)[:, None, None]
                for numbers in (processor.image_mean, processor.image_std)
            )
            rgb = rgb * std + mean
        if processor.do_rescale:
            rgb = rgb / processor.rescale_factor
        rows, columns = (
            length // size for length, size in zip(pixels.shape[-2:], self.patch_size, strict=True)
        )  # a convolution without padding leaves the rest out
        return SeenPicture(
            rgb.round().clamp(0, 255).to(torch.uint8).permute(1, 2, 0).contiguous().numpy(),
            rows, columns, self.patch_size, self._words(image, pixels), digest,
        )  # fmt: skip

    def _words(self, image: Any, pixels: Tensor) -> str:
        """What the processor did to a picture; its size before the crop is measured, and not computed again."""
        crops = bool(getattr(self.image_processor, "do_center_crop", False))
        before = self._processed(image, do_center_crop=False, **_RAW) if crops else pixels
        resized, final = (tuple(tensor.shape[:-3:-1]) for tensor in (before, pixels))
        steps = ["padded to a square"] * bool(getattr(self.image_processor, "do_pad", False))
        steps += ["not resized" if resized == image.size else f"resized to {resized[0]} × {resized[1]}"]
        if final != resized:
            is_larger = final[0] > resized[0] or final[1] > resized[1]
            steps.append(
                f"cropped to {final[0]} × {final[1]} at the centre" + is_larger * ", with black where it is smaller"
            )
        return ", ".join(steps)


def load_reader(folder: Folder, name: str, model: Any) -> PictureReader:
    """The reader of a model of a declared family, from the files of its folder.

    Raises:
        ModelError: a file is missing or broken, or asks for pictures that are too large.
    """
    from transformers import AutoImageProcessor, AutoProcessor

    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    in_text = model.config.model_type in IN_TEXT and reads_text(model)
    try:
        # The other backend of transformers needs torchvision.
        image_processor = AutoImageProcessor.from_pretrained(folder.path, backend="pil", **options)  # type: ignore[no-untyped-call]  # transformers has no annotation
        processor = None
        if in_text:
            processor = AutoProcessor.from_pretrained(folder.path, backend="pil", **options)  # type: ignore[no-untyped-call]
            processor.image_processor = image_processor
        reader = PictureReader.of(model, image_processor, processor)
    except Exception as error:  # a missing or broken file can raise anything in transformers
        raise ModelError(
            f"{name} has no processor of pictures that can be read without torchvision: add its preprocessor_config.json to the folder"
            f"{', and processor_config.json' if in_text else ''}."
        ) from error
    check_size(image_processor, name)
    return reader


def check_size(image_processor: Any, name: str) -> None:
    """Check the size that a processor resizes to, before it allocates it.

    Raises:
        ModelError: it is larger than any that the Lab reads, or it keeps pictures as large as they are.
    """
    sizes = [dict(getattr(image_processor, field, None) or {}) for field in ("size", "crop_size", "pad_size")]
    numbers = [side for size in sizes for side in size.values() if side is not None]
    if not image_processor.do_resize or any(not 0 < side <= _MAX_SIDE for side in numbers):
        raise ModelError(
            f"A processor resizes each picture to at most {_MAX_SIDE} pixels; that of {name} does not: choose another model, or change its preprocessor_config.json."
        )
