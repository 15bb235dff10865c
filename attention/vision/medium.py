"""Pictures as a medium, and where the code is that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError
from attention.files.picture import Picture, bytes_to_decode, with_preview
from attention.files.reading_cost import ReadingCost
from attention.media import DeclaredInputs, Medium
from attention.vision import picture_lines
from attention.vision.examples import EXAMPLES, example_picture
from attention.vision.families import FIRST_TOKENS, IN_TEXT, PICTURES, QUERIES, TWO_TOWERS, vision_config

if TYPE_CHECKING:
    from attention.base.knobs import Limits
    from attention.models.folder import Folder
    from attention.vision.reader import PictureReader

_SECONDS_OF_BYTE = 5e-9  # of a decoded picture: a third of a second for 12 million pixels


class Pictures(Medium):
    """Pictures, of which a model reads patches."""

    name, noun, field, argument, most = "pictures", "picture", "image", PICTURES, 4
    files, such_as, endings = "a PNG, JPEG or WebP file", "a ViT or CLIP", ("png", "jpg", "jpeg", "webp")
    examples = EXAMPLES
    families = (*FIRST_TOKENS, *TWO_TOWERS, *IN_TEXT)
    classifier = "ForImageClassification"
    vectors = "a vector for every patch of a picture, or one for the picture and one for the text"

    def declared(self, model_type: str, class_name: str) -> DeclaredInputs | None:
        """What a model reads, by its config.json alone; None if its family is not one of this medium."""
        if model_type in IN_TEXT and not class_name.endswith("WithProjection"):
            return DeclaredInputs(text=True, medium=self, continues=True, several=IN_TEXT[model_type] != QUERIES)
        if model_type in FIRST_TOKENS or model_type in TWO_TOWERS or model_type in IN_TEXT:
            reads_text = model_type in TWO_TOWERS and not class_name.endswith(self.classifier)
            return DeclaredInputs(reads_text, medium=self, continues=False)
        return None

    def is_read_by(self, model: Any) -> bool:
        """Whether a model of transformers is of a family that is declared."""
        return vision_config(model) is not None

    def reader_of(self, model: Any, processor: Any) -> tuple[PictureReader, Any]:
        """As `attention.vision.reader.reader_of`."""
        from attention.vision.detection import reader_class
        from attention.vision.reader import reader_of

        return reader_of(reader_class(model), self, model, processor)

    def load_reader(self, folder: Folder, name: str, model: Any) -> PictureReader:
        """As `attention.vision.reader.load_reader`."""
        from attention.vision.detection import reader_class
        from attention.vision.reader import load_reader

        return load_reader(reader_class(model), self, folder, name, model)

    def example(self, name: str) -> Picture:
        """As `attention.vision.examples.example_picture`."""
        return example_picture(name)

    def open(self, value: Any, name: str = "") -> Picture:
        """The picture of a file or an image."""
        return Picture.open(value) if isinstance(value, str | PathLike) else Picture.of(value, name)

    def upload(self, content: bytes, name: str, side: int, limits: Limits) -> tuple[Picture, bytes]:
        """As `attention.files.picture.with_preview`."""
        return with_preview(content, name, limits.picture_pixels, side)

    def preview(self, given: Picture, side: int) -> bytes:
        """As `Picture.preview`."""
        return given.preview(side)

    def files_in_field(self, limits: Limits) -> str:
        """What a user may upload, and what is not read of it."""
        return (
            f"PNG, JPEG or WebP, up to {limits.picture_mb} MB and {limits.picture_pixels / 1e6:g} million pixels. "
            "The place and camera that a photo names are not read."
        )

    def size_in_words(self, given: Picture) -> str:
        """Its width and height."""
        return f"{given.width:,} × {given.height:,} pixels"

    def reading_cost(self, content: bytes, limits: Limits) -> ReadingCost:
        """By the pixels that its header says."""
        n_bytes = bytes_to_decode(content, limits.picture_pixels)
        return ReadingCost(n_bytes * _SECONDS_OF_BYTE, n_bytes)

    def check_together(self, inputs: Sequence[Picture], limits: Limits) -> None:
        """Check that the pictures of one input are together within the limits of one picture."""
        n_bytes = sum(len(picture.content) for picture in inputs if picture.kind)
        n_pixels = sum(picture.width * picture.height for picture in inputs)
        if n_bytes > limits.picture_mb * 2**20 or n_pixels > limits.picture_pixels:
            raise FileError(
                f"The pictures of a text may together have at most {limits.picture_mb} MB and {limits.picture_pixels:,} pixels here; "
                f"got {n_bytes / 2**20:.1f} MB and {n_pixels:,} pixels: remove one, or save them smaller."
            )

    def program_imports(self, inputs: Sequence[Picture]) -> tuple[list[str], list[str]]:
        """The lines that import what `program_lines` needs, and the names of transformers among it."""
        return picture_lines.imports(inputs), ["AutoImageProcessor"]

    def program_lines(self, reader: Any, inputs: Sequence[Picture], variable: str, max_tokens: int) -> list[str]:
        """As `attention.vision.picture_lines.input_lines`."""
        return picture_lines.input_lines(reader, inputs, variable)
