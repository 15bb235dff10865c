"""Sounds as a medium: their names, their knob, and where the code is that reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from attention.base.knobs import EncodedText, Knob
from attention.media import DeclaredInputs, Medium
from attention.sound import examples
from attention.sound.families import CONVOLVED, DECODED, FEATURES, PADDED, PATCHED, SAMPLES
from attention.sound.places import NOUN, SoundPlace, place_of
from attention.sound.sound_file import Sound

if TYPE_CHECKING:
    from attention.base.tokens import Patch
    from attention.models.folder import Folder
    from attention.sound.reader import SoundReader
    from attention.sources.reader import Reader
    from attention.trace.trace import SeenPicture


class Sounds(Medium):
    """Sounds, of which a model reads stretches of time, or patches of a spectrogram."""

    name, noun, field, argument = "sounds", NOUN, "sound", SAMPLES
    files, such_as = "a WAV, FLAC or MP3 file, or samples with their rate, (samples, 16000)", "a wav2vec2 or AST"
    endings = ("wav", "flac", "mp3")
    families = (*CONVOLVED, *PATCHED, *PADDED)
    classifier = "For(Audio|Sequence)Classification"
    vectors = "a vector for every stretch of time of a sound"
    examples = examples.EXAMPLES
    knob = Knob("sound", "example:rising-tones", EncodedText(1000), help="The sound of a model that reads sounds.", sources=("model",), inline=True)  # fmt: skip

    def declared(self, model_type: str, class_name: str) -> DeclaredInputs | None:
        """What a model reads, by its config.json alone; None if its family is not one of this medium."""
        has_decoder = model_type in DECODED and not re.search(self.classifier, class_name)
        return DeclaredInputs(text=False, medium=self, continues=has_decoder) if model_type in self.families else None

    def is_read_by(self, model: Any) -> bool:
        """Whether a model of transformers is of a family that is declared."""
        return model.config.model_type in self.families and model.main_input_name in (SAMPLES, FEATURES)

    def reader_of(self, model: Any, processor: Any) -> tuple[SoundReader, Any]:
        """As `attention.sound.reader.reader_of`."""
        from attention.sound.reader import reader_of

        return reader_of(self, model, processor)

    def load_reader(self, folder: Folder, name: str, model: Any) -> SoundReader:
        """As `attention.sound.reader.load_reader`."""
        from attention.sound.reader import load_reader

        return load_reader(self, folder, name, model)

    def open(self, value: Any) -> Sound:
        """The sound of a file, of its bytes, or of samples with their rate."""
        return Sound.open(value) if isinstance(value, str | PathLike) else Sound.of(value)

    def example(self, name: str) -> Sound:
        """The sound of ours of this name."""
        return examples.example_sound(name)

    def place(self, seen: SeenPicture, patch: Patch) -> SoundPlace:
        """Which seconds of the sound a patch reads, and which frequencies."""
        return place_of(seen, patch)

    def given(self, value: Any) -> Sound:
        """As `open`."""
        return self.open(value)

    def from_link(self, reader: Reader, several: bool) -> tuple[Sound, ...]:
        """The sound that a link names."""
        return (self.example(str(reader.knob(self.knob)).removeprefix("example:")),)

    def no_link_reason(self, inputs: Sequence[Sound]) -> str:
        """Why no link names these sounds, in a sentence; empty if one does."""
        return ""

    def program_imports(self, inputs: Sequence[Sound]) -> tuple[list[str], list[str]]:
        """The lines that import what `program_lines` needs, and the names of transformers among it."""
        return [], ["AutoFeatureExtractor"]

    def program_lines(self, reader: Any, inputs: Sequence[Sound], variable: str) -> list[str]:
        """The lines of a copied program that read the sound."""
        return []
