"""Sounds as a medium: their names, their knob, and where the code is that reads them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

from attention.files.reading_cost import ReadingCost
from attention.media import DeclaredInputs, Medium
from attention.program import literals
from attention.sound import examples
from attention.sound.families import CONVOLVED, DECODED, FEATURES, PADDED, PATCHED, SAMPLES
from attention.sound.places import NOUN, SoundPlace, place_of
from attention.sound.sound_file import BLOCK, Sound, bytes_to_decode, resampled

if TYPE_CHECKING:
    from attention.base.knobs import Limits
    from attention.base.tokens import Patch
    from attention.models.folder import Folder
    from attention.sound.reader import SoundReader
    from attention.trace.trace import SeenPicture

_SECONDS_OF_BYTE = 2e-8  # of a decoded sample: it is decoded twice, and its spectrogram drawn
_MEDIA_TYPES = {"WAV": "audio/wav", "FLAC": "audio/flac", "MP3": "audio/mpeg"}
_UNNAMED = "sound.wav"
"""The file of a sound that was given without one."""


class Sounds(Medium):
    """Sounds, of which a model reads stretches of time, or patches of a spectrogram."""

    name, noun, field, argument = "sounds", NOUN, "sound", SAMPLES
    files, such_as = (
        "a WAV, FLAC or MP3 file, or samples with their rate, (samples, 16000)",
        "a wav2vec2, AST or Whisper",
    )
    endings = ("wav", "flac", "mp3")
    families = (*CONVOLVED, *PATCHED, *PADDED)
    classifier = "For(Audio|Sequence)Classification"
    vectors = "a vector for every stretch of time of a sound"
    examples = examples.EXAMPLES

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

    def open(self, value: Any, name: str = "") -> Sound:
        """The sound of a file, of its bytes, or of samples with their rate."""
        return Sound.open(value) if isinstance(value, str | PathLike) else Sound.of(value, name)

    def upload(self, content: bytes, name: str, side: int, limits: Limits) -> tuple[Sound, bytes]:
        """The sound of an uploaded file, and its spectrogram."""
        sound = Sound.of(content, name, limits.picture_mb * 2**20)
        return sound, self.preview(sound, side)

    def preview(self, given: Sound, side: int) -> bytes:
        """The spectrogram of all of a sound, a PNG of this width."""
        from attention.sound import spectrogram

        return spectrogram.png(given.samples(), given.rate, side)

    def size_in_words(self, given: Sound) -> str:
        """How long it lasts, and its rate."""
        return f"{given.seconds:,.2f} seconds, {given.rate:,} samples in a second"

    def reading_cost(self, content: bytes, limits: Limits) -> ReadingCost:
        """By the samples that its header says; a spectrogram takes as much as they do again."""
        n_bytes = bytes_to_decode(content)
        return ReadingCost(n_bytes * _SECONDS_OF_BYTE, 2 * n_bytes)

    def sound(self, given: Sound) -> tuple[bytes, str]:
        """Its file, or one of its samples, to be played."""
        return (given.content, _MEDIA_TYPES[given.kind]) if given.kind else (given.wav(), _MEDIA_TYPES["WAV"])

    def example(self, name: str) -> Sound:
        """The sound of ours of this name."""
        return examples.example_sound(name)

    def place(self, seen: SeenPicture, patch: Patch) -> SoundPlace:
        """Which seconds of the sound a patch reads, and which frequencies."""
        return place_of(seen, patch)

    def program_imports(self, inputs: Sequence[Sound]) -> tuple[list[str], list[str]]:
        """The lines that import what `program_lines` needs, and the names of transformers among it."""
        return ["import soundfile"], ["AutoFeatureExtractor"]

    def program_lines(self, reader: SoundReader, inputs: Sequence[Sound], variable: str, max_tokens: int) -> list[str]:  # type: ignore[override]  # of this medium
        """The lines of a copied program that read the sound."""
        (sound,) = inputs
        return [
            *literals.file_lines("sound", sound.name, _UNNAMED),
            f'{variable}, rate = soundfile.read(file, dtype="float32", always_2d=True)',
            f"{variable} = {variable}.mean(axis=1)",
            *self._resampling_lines(reader, sound, variable),
            *self._cutting_lines(reader, sound, variable, max_tokens),
            "extractor = AutoFeatureExtractor.from_pretrained(folder, local_files_only=True)",
            f'{variable}_inputs = extractor({variable}, sampling_rate={reader.rate}, return_tensors="pt")',
        ]

    def _cutting_lines(self, reader: SoundReader, sound: Sound, variable: str, max_tokens: int) -> list[str]:
        most = reader.most_samples(max_tokens)
        is_longer = sound.n_samples * reader.rate > most * sound.rate
        return [f"{variable} = {variable}[:{most}]  # as many as are read"] if is_longer else []

    def _resampling_lines(self, reader: SoundReader, sound: Sound, variable: str) -> list[str]:
        from attention.formula.inline import defined

        if sound.rate == reader.rate:
            return []
        return [*defined(resampled, BLOCK=f"{BLOCK}"), f"{variable} = resampled({variable}, rate, {reader.rate})"]
