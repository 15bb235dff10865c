"""Pictures as a medium: their names, their knob, and where the code is that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from attention.base.errors import ConfigError
from attention.base.knobs import Knob
from attention.files.picture import Picture
from attention.media import DeclaredInputs, Medium
from attention.vision import examples, picture_lines
from attention.vision.families import FIRST_TOKENS, IN_TEXT, PICTURES, QUERIES, TWO_TOWERS, vision_config

if TYPE_CHECKING:
    from attention.models.folder import Folder
    from attention.sources.reader import Reader
    from attention.vision.reader import PictureReader

_MAX_PICTURES = 16  # of one input
_NAMES = examples.PictureNames(1000)
IMAGE = Knob(
    "image", f"{examples.PREFIX}{next(iter(examples.EXAMPLES))}", _NAMES,
    help="The pictures of a model that reads pictures: example:NAME for one of ours, otherwise name:digest of an uploaded one; several have / between them.",
    sources=("model",), inline=True)  # fmt: skip


class Pictures(Medium):
    """Pictures, of which a model reads patches."""

    name, noun, field, argument, knob = "pictures", "picture", "image", PICTURES, IMAGE
    files, such_as = "a PNG, JPEG or WebP file", "a ViT or CLIP"
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
        from attention.vision.reader import reader_of

        return reader_of(self, model, processor)

    def load_reader(self, folder: Folder, name: str, model: Any) -> PictureReader:
        """As `attention.vision.reader.load_reader`."""
        from attention.vision.reader import load_reader

        return load_reader(self, folder, name, model)

    def given(self, value: Any) -> Picture | tuple[Picture, ...]:
        """The picture of a file or an image; of a list of these, all of them, or the only one."""
        if isinstance(value, Picture):
            return value
        if not isinstance(value, list | tuple):
            return Picture.open(value) if isinstance(value, str | PathLike) else Picture.of(value)
        if not 0 < len(value) <= _MAX_PICTURES:
            raise ConfigError(
                f"A model reads from 1 to {_MAX_PICTURES} pictures at once; got {len(value)}: give fewer, or leave image= out for a model of texts."
            )
        if any(item is None or isinstance(item, list | tuple) for item in value):
            raise ConfigError(
                "image= is a picture or a list of pictures; got a list in a list, or nothing in one: give each picture once."
            )
        first, *others = (
            Picture.open(item) if isinstance(item, str | PathLike) else Picture.of(item) for item in value
        )
        return (first, *others) if others else first

    def from_link(self, reader: Reader, several: bool) -> tuple[Picture, ...]:
        """The pictures that a link names, of ours or uploaded."""
        names = examples.names_in(reader.knob(IMAGE, replace(_NAMES, most=examples.MOST_PICTURES if several else 1)))
        found = [reader.uploads.pictures.get(name) or examples.example_of(name) for name in names]
        if missing := [name for name, picture in zip(names, found, strict=True) if picture is None]:
            raise examples.missing_picture_error(missing)
        pictures = tuple(picture for picture in found if picture)
        examples.check_together(pictures, reader.limits)
        return pictures

    def no_link_reason(self, inputs: Sequence[Picture]) -> str:
        """Why no link names these pictures, in a sentence; empty if one does."""
        if len(inputs) > examples.MOST_PICTURES:
            return f"A link names at most {examples.MOST_PICTURES} pictures, and this input has {len(inputs)}: save the trace as a file, and open that."
        if all(map(examples.link_name, inputs)):
            return ""
        return "A link names a picture by the digest of its file, and this one is in memory: save it as a PNG, and give its path."

    def program_imports(self, inputs: Sequence[Picture]) -> tuple[list[str], list[str]]:
        """The lines that import what `program_lines` needs, and the names of transformers among it."""
        return picture_lines.imports(inputs), ["AutoImageProcessor"]

    def program_lines(self, reader: Any, inputs: Sequence[Picture], variable: str) -> list[str]:
        """As `attention.vision.picture_lines.input_lines`."""
        return picture_lines.input_lines(reader, inputs, variable)
