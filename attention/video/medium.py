"""Videos as a medium: their names, their knob, and where the code is that reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attention.media import DeclaredInputs, Medium
from attention.video.families import FIRST_TOKENS, IN_TEXT, VIDEOS, is_read
from attention.video.film import Video

if TYPE_CHECKING:
    from attention.base.tokens import Patch
    from attention.models.folder import Folder
    from attention.trace.trace import SeenPicture
    from attention.video.reader import FramePlace, VideoReader


class Videos(Medium):
    """Videos, of which a model reads patches of a few frames."""

    name, noun, field, argument = "videos", "video", "video", VIDEOS
    files, such_as = "an MP4, MOV, WebM, GIF or WebP file, or a list of pictures", "a VideoMAE or ViViT"
    families = (*FIRST_TOKENS, *IN_TEXT)
    classifier = "ForVideoClassification"
    vectors = "a vector for every patch of a video"

    def declared(self, model_type: str, class_name: str) -> DeclaredInputs | None:
        """What a model reads, by its config.json alone; None if its family is not one of this medium."""
        if model_type in IN_TEXT:
            return DeclaredInputs(text=True, medium=self, continues=True)
        return DeclaredInputs(text=False, medium=self, continues=False) if model_type in FIRST_TOKENS else None

    def is_read_by(self, model: Any) -> bool:
        """Whether a model of transformers is of a family that is declared."""
        return is_read(model)

    def reader_of(self, model: Any, processor: Any) -> tuple[VideoReader, Any]:
        """As `attention.video.reader.reader_of`."""
        from attention.video.reader import reader_of

        return reader_of(self, model, processor)

    def load_reader(self, folder: Folder, name: str, model: Any) -> VideoReader:
        """As `attention.video.reader.load_reader`."""
        from attention.video.reader import load_reader

        return load_reader(self, folder, name, model)

    def place(self, seen: SeenPicture, patch: Patch) -> FramePlace:
        """As `attention.video.reader.place_of`."""
        from attention.video.reader import place_of

        return place_of(seen, patch)

    def given(self, value: Any) -> Video:
        """The video of a file, of its bytes, of a list of pictures, or of an array."""
        return Video.open(value)

    def from_link(self, reader, several):
        raise NotImplementedError

    def no_link_reason(self, inputs):
        return "x"

    def program_imports(self, inputs):
        return [], []

    def program_lines(self, reader, inputs, variable):
        return []
