"""From a picture to the tokens of a model: the processor of the model, the grid of patches, and the picture that the model saw."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.base.errors import ModelError
from attention.base.tokens import NEWLINE
from attention.vision.families import (
    FIRST_TOKENS,
    GRID,
    IN_TEXT,
    MERGED,
    PADDED_TEXTS,
    TILES,
    TOKEN_TYPES,
    VIEWS,
    patch_size,
    reads_text,
    vision_config,
)
from attention.vision.picture_layouts import COUNTS, LAYOUTS, NamedImage, PatchReader, ReadPictures

if TYPE_CHECKING:
    from numpy import uint8
    from numpy.typing import NDArray
    from torch import Tensor

    from attention.models.folder import Folder

_MAX_SIDE = 1024  # pixels that a processor may ask for; the longer side may be longer
_BY_HAND = (MERGED, VIEWS)
"""Layouts of families whose processor of texts needs torchvision, for videos: their image tokens are repeated here."""
_MAX_PIXELS = (
    2**24
)  # of all tiles of a picture, or of one that keeps its sides, whose number of tokens is checked before it is resized


class RawPicture(NamedTuple):
    """A picture before a model reads it.

    Attributes:
        rgb: red, green and blue from 0 to 255, [row column 3].
        digest: of its file.
    """

    rgb: NDArray[uint8]
    digest: str


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
        layout: how patches are laid out, one of `LAYOUTS`.
        around: the ids in the text before and after the tokens of a picture, if its family has some.
        n_merged: how many patches, in each direction, are merged into one token of the text.
        needs_token_types: whether the model must be told which tokens of the text are those of a picture.
        window_size: the side in pixels of the windows in which some layers attend; 0 without windows.
    """

    image_processor: Any
    processor: Any
    first_tokens: tuple[str, ...]
    patch_size: tuple[int, int]
    reads_text: bool
    n_left_out: int = 0
    image_token_id: int | None = None
    pads_text: bool = False
    layout: str = GRID
    around: tuple[int, int] | None = None
    n_merged: int = 1
    needs_token_types: bool = False
    window_size: int = 0

    @classmethod
    def of(cls, model: Any, image_processor: Any, processor: Any) -> PictureReader:
        """The reader of a model of a declared family, from its processors."""
        vision, config = vision_config(model), model.config
        assert vision is not None  # the caller has checked it
        layout = IN_TEXT.get(config.model_type, GRID) if reads_text(model) else GRID
        in_text = config.model_type in IN_TEXT and reads_text(model)
        n_merged = getattr(vision, "spatial_merge_size", round(1 / getattr(config, "downsample_ratio", 1)))
        before, after = (getattr(config, f"vision_{name}_token_id", None) for name in ("start", "end"))
        return cls(
            image_processor,
            processor if in_text and layout not in _BY_HAND else None,
            FIRST_TOKENS[vision.model_type](vision),
            patch_size(vision),
            reads_text(model),
            int(in_text and getattr(config, "vision_feature_select_strategy", "") == "default"),
            config.image_token_id if in_text else None,
            config.model_type in PADDED_TEXTS,
            layout,
            None if before is None or after is None else (before, after),
            n_merged,
            TOKEN_TYPES in signature(model.forward).parameters,
            getattr(vision, "window_size", 0) if layout == MERGED else 0,
        )

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The tokens of pictures that are no patches."""
        return (*self.first_tokens, *([NEWLINE] if self.layout == TILES else []))

    @property
    def options(self) -> dict[str, bool]:
        """The options of the image processor, as the processor of texts of the family asks for them."""
        return {"crop_to_patches": True} if self.layout == VIEWS else {}

    @property
    def unread(self) -> tuple[str, ...]:
        """What the image processor gives beside the arguments of the model."""
        return (COUNTS,) if self.layout == VIEWS else ()

    def read(self, pictures: Sequence[RawPicture], text: str, tokenizer: Any) -> tuple[ReadPictures, Tensor | None]:
        """Pictures as the model reads them; for a model that reads them in its text, also the token ids [1 pos] of the text.

        In the text, the model's processor repeats each image token for every token of a picture.

        Raises:
            ModelError: the processor gives something else than pictures in three colours.
        """
        from PIL import Image

        images = [NamedImage(Image.fromarray(picture.rgb), picture.digest) for picture in pictures]
        plain = [named.image for named in images]
        grid = PatchReader(
            self.image_processor, self.first_tokens, self.patch_size, self.n_left_out, self.n_merged, self.window_size
        )
        if self.processor is not None:
            processed = self.processor(images=plain, text=[text], return_tensors="pt")
            return LAYOUTS[self.layout](grid, processed, images), processed["input_ids"]
        processed = self.image_processor(images=plain, return_tensors="pt", **self.options)
        read = LAYOUTS[self.layout](grid, processed, images)
        if self.image_token_id is None:
            return read, None
        token, before, after = self.image_token(tokenizer), "", ""
        if self.layout == VIEWS:
            before, after = (getattr(tokenizer, f"{name}_image_token", "") for name in ("start", "end"))
        first, *others = text.split(token)
        tokens = (before + token * count + after for count in read.n_in_text)
        expanded = first + "".join(own + part for own, part in zip(tokens, others, strict=True))
        return read, tokenizer(expanded, return_tensors="pt", verbose=False)["input_ids"]

    def image_token(self, tokenizer: Any) -> str:
        """The token that stands for a picture in a text."""
        own = getattr(self.processor, "image_token", None)
        return str(own or tokenizer.convert_ids_to_tokens(self.image_token_id))

    def place_of_picture(self, tokenizer: Any) -> str:
        """The tokens of a text at which a picture stands, as a user writes them."""
        before, after = ("", "") if self.around is None else tokenizer.convert_ids_to_tokens(list(self.around))
        return f"{before}{self.image_token(tokenizer)}{after}"

    def count_in_advance(self, picture: RawPicture) -> int:
        """How many tokens of the vision transformer a picture makes, where its number of pixels decides it; otherwise 0."""
        if self.layout != MERGED:
            return 0
        return int(self.image_processor.get_number_of_image_patches(*picture.rgb.shape[:2]))


def load_reader(folder: Folder, name: str, model: Any) -> PictureReader:
    """The reader of a model of a declared family, from the files of its folder.

    Raises:
        ModelError: a file is missing or broken, or asks for pictures that are too large.
    """
    from transformers import AutoImageProcessor, AutoProcessor

    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    in_text = model.config.model_type in IN_TEXT and reads_text(model)
    has_processor = in_text and IN_TEXT[model.config.model_type] not in _BY_HAND
    try:
        # The other backend of transformers needs torchvision.
        image_processor = AutoImageProcessor.from_pretrained(folder.path, backend="pil", **options)  # type: ignore[no-untyped-call]  # transformers has no annotation
        processor = None
        if has_processor:
            processor = AutoProcessor.from_pretrained(folder.path, backend="pil", **options)  # type: ignore[no-untyped-call]  # as above
            processor.image_processor = image_processor
        reader = PictureReader.of(model, image_processor, processor)
        check_size(image_processor, name)
    except ModelError:
        raise
    except Exception as error:  # a missing or broken file can raise anything in transformers
        raise ModelError(
            f"{name} has no processor of pictures that can be read without torchvision: add its preprocessor_config.json to the folder"
            f"{', and processor_config.json' if has_processor else ''}."
        ) from error
    return reader


def check_size(image_processor: Any, name: str) -> None:
    """Check the size that a processor resizes to, before it allocates it.

    Raises:
        ModelError: it is larger than any that the Lab reads, or it keeps pictures as large as they are.
    """
    fields = {field: dict(getattr(image_processor, field, None) or {}) for field in ("size", "crop_size", "pad_size")}
    # A processor of merged patches has numbers of pixels as its sizes, one of tiles has a list of sizes to choose from.
    most = _MAX_PIXELS if hasattr(image_processor, "merge_size") else _MAX_SIDE
    numbers = [side for size in fields.values() for side in size.values() if side is not None]
    areas = [height * width for height, width in getattr(image_processor, "image_grid_pinpoints", None) or ()]
    is_small = all(0 < side <= most for side in numbers) and all(0 < area <= _MAX_SIDE**2 for area in areas)
    largest = max(fields["size"].get("height") or 0, fields["size"].get("width") or 0)
    is_small &= getattr(image_processor, "max_patches", 1) * largest**2 <= _MAX_PIXELS
    if not image_processor.do_resize or not is_small:
        raise ModelError(
            f"A processor resizes each picture to at most {_MAX_SIDE} pixels; that of {name} does not: choose another model, or change its preprocessor_config.json."
        )
