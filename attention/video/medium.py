"""Videos as a medium: their names, their knob, and where the code is that reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from attention.media import DeclaredInputs, Medium
from attention.video import video_lines
from attention.video.examples import EXAMPLES, example_video
from attention.video.families import FIRST_TOKENS, IN_TEXT, VIDEOS, is_read
from attention.video.film import MAX_FRAME_PIXELS, MAX_FRAMES, MAX_SECONDS, Video

if TYPE_CHECKING:
    from attention.base.knobs import Limits
    from attention.base.tokens import Patch
    from attention.models.folder import Folder
    from attention.trace.trace import SeenPicture
    from attention.video.reader import FramePlace, VideoReader


class Videos(Medium):
    """Videos, of which a model reads patches of a few frames."""

    name, noun, field, argument = "videos", "video", "video", VIDEOS
    files, such_as = "an MP4, MOV, WebM, GIF or WebP file", "a VideoMAE or ViViT"
    endings, examples = ("mp4", "m4v", "mov", "webm", "mkv", "gif", "webp"), EXAMPLES
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

    def example(self, name: str) -> Video:
        """As `attention.video.examples.example_video`."""
        return example_video(name)

    def open(self, value: Any, name: str = "") -> Video:
        """The video of a file, of its bytes, of a list of pictures, or of an array."""
        return Video.open(value, name)

    def upload(self, content: bytes, name: str, side: int, limits: Limits) -> tuple[Video, bytes]:
        """The video of a file, and its `preview`."""
        video = Video.open(content, name)
        return video, self.preview(video, side)

    def preview(self, given: Video, side: int) -> bytes:
        """As `attention.video.film.Video.preview`."""
        return given.preview(side)

    def size_in_words(self, given: Video) -> str:
        """Its frames, their width and height, and how long it is."""
        lasts = "" if given.seconds is None else f", {given.seconds:.3g} s"
        return f"{given.n_frames:,} frames of {given.width:,} × {given.height:,} pixels{lasts}"

    def files_in_field(self, limits: Limits) -> str:
        """What a user may upload, and what is not read of it."""
        return (
            f"MP4, MOV, WebM, GIF or WebP, up to {limits.picture_mb} MB, {MAX_SECONDS} s and {MAX_FRAMES:,} frames of at most "
            f"{MAX_FRAME_PIXELS / 1e6:.2g} million pixels. Its sound is not read."
        )

    def program_imports(self, inputs: Sequence[Video]) -> tuple[list[str], list[str]]:
        """The lines that import what `program_lines` needs, and the names of transformers among it."""
        return video_lines.imports(inputs), ["AutoImageProcessor"]

    def program_lines(self, reader: Any, inputs: Sequence[Video], variable: str, max_tokens: int) -> list[str]:
        """As `attention.video.video_lines.input_lines`."""
        return video_lines.input_lines(reader, inputs, variable)
