"""From a sound to the tokens of a model: its feature extractor, what the model saw, and the tokens with their places."""

from __future__ import annotations

from collections.abc import Sequence
from math import log
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attention.base.errors import AttentionError, ConfigError, ModelError
from attention.base.tokens import Patch
from attention.media import DECODER_TEXT, InputReader, Medium, has_decoder
from attention.models.in_memory import kind_of
from attention.models.medium_inputs import MediumInputs, ReadInput
from attention.sound import spectrogram
from attention.sound.decoder import decoder_ids
from attention.sound.families import CONVOLVED, PADDED, PATCHED
from attention.sound.places import NOUN, PADDING, from_mel, patches_of, to_mel
from attention.sound.sound_file import Sound, resampled
from attention.trace.trace import Axis, SeenPicture

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

    from attention.models.folder import Folder
    from attention.models.loaded import LoadedModel

_RATES = (4_000, 96_000)
"""Samples in a second that a feature extractor may ask for, the fewest and the most."""
_MOST_OF = {"n_fft": 2**14, "feature_size": 2**10, "num_mel_bins": 2**10}
"""The largest numbers of a feature extractor by which it makes tables."""
_MOST_PADDED = 2**22  # samples
_PROBE_TOKENS = 12
_MOST_COLUMNS = 16  # of a drawn spectrogram, for the hop of one token
_SHIFT, _LENGTH = 160, 400  # samples of AST's frames, whatever its rate, as its feature extractor has them
_LOWEST = 20  # hertz, of its mel bands


class SoundReader(InputReader):
    """How a model of a declared family reads sounds, by its feature extractor.

    Attributes:
        extractor: of transformers.
        rate: samples in a second that it asks for.
    """

    token_id = None
    types_argument = ""
    in_turn = False

    def __init__(self, medium: Medium, model: Any, extractor: Any) -> None:
        self.medium, self.extractor, self.rate = medium, extractor, int(extractor.sampling_rate)
        self._config, self._argument, self.reads_text = model.config, model.main_input_name, has_decoder(model)
        self._has_letters = type(model).__name__.endswith("ForCTC")
        convolved = CONVOLVED.get(model.config.model_type)
        self._frames = None if convolved is None else convolved(model.config)

    @property
    def computes(self) -> str:
        """As `InputReader.computes`; of a model of letters (CTC), that they are not shown."""
        return "a letter for every stretch of time (CTC), which is not shown" if self._has_letters else super().computes

    @property
    def special_tokens(self) -> tuple[str, ...]:
        """The tokens before the patches of a spectrogram."""
        return PATCHED.get(self._config.model_type, ())

    def inputs(
        self, loaded: LoadedModel, given: Sequence[Sound], text: str, max_tokens: int
    ) -> tuple[MediumInputs, list[tuple[str, int]], list[str]]:
        """As `InputReader.inputs`."""
        if len(given) > 1:
            raise ConfigError(f"{loaded.name} reads one sound at a time; got {len(given)}: make a Model for each.")
        (sound,) = given
        notes = list[str]()
        if sound.rate != self.rate:
            notes.append(
                f"The sound is resampled from {sound.rate:,} to {self.rate:,} samples in a second, which the model reads."
            )
        truncated = list[tuple[str, int]]()
        most, n_samples = self.most_samples(max_tokens), -(-sound.n_samples * self.rate // sound.rate)
        if self._frames is not None:
            if n_samples < self._frames.field:
                raise ConfigError(
                    f"A sound for {loaded.name} lasts at least {self._frames.field / self.rate:.3f} seconds, which one token reads; got {sound.seconds:.3f}: give a longer one."
                )
            truncated += [(NOUN, count)] if (count := self._frames.count(n_samples)) > max_tokens else []
        elif n_samples > most:
            notes.append(
                f"The sound lasts {sound.seconds:,.2f} s, and the model reads its first {most / self.rate:,.2f} s."
            )
        # The rest is not resampled; a sample depends on those around its time.
        enough = -(-(most + self.rate // 10) * sound.rate // self.rate)
        samples = resampled(sound.samples(enough), sound.rate, self.rate)[:most]
        try:
            read = self._read(samples, sound.digest)
        except AttentionError:
            raise
        except (ArithmeticError, AttributeError, LookupError, RuntimeError, TypeError, ValueError) as error:
            message = " ".join(str(error).split())[:150]
            raise ModelError(
                f"The feature extractor of {loaded.name} should read this sound, and fails with “{message}”: check its preprocessor_config.json."
            ) from error
        if len(read.tokens) > max_tokens:
            raise ConfigError(
                f"At most {max_tokens:,} tokens are read here; {loaded.name} makes {len(read.tokens):,} of every sound: choose a model with larger patches, or raise max_tokens."
            )
        ids = {self._argument: torch.arange(len(read.tokens))[None]}
        if n_padding := sum(token.endswith(PADDING) for token in read.tokens):
            notes.append(
                f"The model always reads {len(read.tokens):,} tokens: {n_padding:,} of them are silence after the sound, which it attends to like any others."
            )
        if self.reads_text:
            limit = min(max_tokens, loaded.max_length or max_tokens)
            ids[DECODER_TEXT], more = decoder_ids(loaded, read.arguments, text, limit)
            truncated += more
        return MediumInputs(ids, read, self), truncated, notes

    def probe(self) -> Sound:
        """A sound that rises, so that every token reads another frequency."""
        n_samples = self.rate if self._frames is None else self._frames.field + _PROBE_TOKENS * self._frames.hop
        times = torch.arange(n_samples, dtype=torch.float64) / n_samples
        return Sound.of((torch.sin(times**2 * n_samples / 4).float(), self.rate))

    def most_samples(self, max_tokens: int) -> int:
        """How many samples of a sound are read at most."""
        if self._frames is not None:
            return self._frames.field + (max_tokens - 1) * self._frames.hop
        if self._config.model_type in PADDED:
            return int(self.extractor.n_samples)
        return int(self._config.max_length - 1) * _SHIFT + _LENGTH

    def _read(self, samples: NDArray[float32], digest: str) -> ReadInput:
        """Samples at the model's rate as the model reads them."""
        extracted = self.extractor(samples, sampling_rate=self.rate, return_tensors="pt")
        arguments = dict(extracted)
        values = arguments.get(self._argument)
        if not isinstance(values, Tensor):
            raise ModelError(f"The feature extractor of this model gives no {self._argument}: choose another model.")
        if self._frames is not None:
            seen, patches = self._frames_of(samples, digest)
        elif self._config.model_type in PADDED:
            seen, patches = self._columns_of(len(samples), values[0], digest)
        else:
            seen, patches = self._patches_of(samples, values[0], digest)
        tokens = (*self.special_tokens, *patches)
        return ReadInput(arguments, (seen,), tokens, (), (len(tokens),), ())

    def _frames_of(self, samples: NDArray[float32], digest: str) -> tuple[SeenPicture, list[Patch]]:
        """Tokens that follow each other in time, over a spectrogram of ours."""
        frames = self._frames
        assert frames is not None
        n_tokens = frames.count(len(samples))
        # So many that a token is a whole number of them, too, where there are such.
        fit = [n for n in range(1, _MOST_COLUMNS + 1) if frames.hop % n == 0]
        n_columns = min((n for n in fit if frames.field * n % frames.hop == 0), default=fit[-1])
        column, first = frames.hop // n_columns, (frames.field - frames.hop) / 2
        rgb = spectrogram.of_samples(samples, self.rate, first, column, n_tokens * n_columns)
        x = Axis("s", first / self.rate, (first + n_tokens * frames.hop) / self.rate)
        words = (
            f"{len(samples) / self.rate:.2f} s at {self.rate:,} samples in a second; a token every {1000 * frames.hop / self.rate:g} ms, "
            f"from {1000 * frames.field / self.rate:g} ms of them; drawn as a spectrogram, which the model does not read"
        )
        size = spectrogram.N_MELS, round(frames.field / column)
        seen = SeenPicture(rgb, 1, n_tokens, size, words, digest, NOUN, x)
        return seen, patches_of(seen, (spectrogram.N_MELS, n_columns))

    def _columns_of(self, n_samples: int, values: Tensor, digest: str) -> tuple[SeenPicture, list[Patch]]:
        """Tokens that are some columns of the model's own spectrogram [mel time], whose log has 40 decibels for each 1."""
        n_tokens = self._config.max_source_positions
        n_columns = values.shape[1] // n_tokens
        hop = n_columns * self.extractor.hop_length
        n_heard, end = -(-n_samples // hop), n_tokens * hop / self.rate
        words = f"{n_samples / self.rate:.2f} s at {self.rate:,} samples in a second, as {len(values)} mel bands; a token every {1000 * hop / self.rate:g} ms"
        if n_heard < n_tokens:
            words += f"; from {n_samples / self.rate:.2f} to {end:.2f} s there is silence, which the model reads as well: {n_tokens - n_heard:,} of {n_tokens:,} tokens"
        rgb = spectrogram.of_energies(values.double().numpy() * 40)
        seen = SeenPicture(rgb, 1, n_tokens, (len(values), n_columns), words, digest, NOUN, Axis("s", 0.0, end))
        patches = patches_of(seen, (len(values), n_columns))
        padding = (
            Patch(each.picture, each.row, each.column, each.box, each + PADDING, each.place)
            for each in patches[n_heard:]
        )
        return seen, [*patches[:n_heard], *padding]

    def _patches_of(self, samples: NDArray[float32], values: Tensor, digest: str) -> tuple[SeenPicture, list[Patch]]:
        """Tokens that are patches of the model's own spectrogram [time mel], band by band from the lowest."""
        config, n_mels = self._config, values.shape[1]
        size, down, across = config.patch_size, config.frequency_stride, config.time_stride
        rows, columns = (n_mels - size) // down + 1, (values.shape[0] - size) // across + 1
        # A cell of the grid lies in the middle of its patch, which reaches into its neighbours.
        below, left = (size - down) // 2, (size - across) // 2
        energies = (
            values.double() * self.extractor.std * 2 + self.extractor.mean if self.extractor.do_normalize else values
        )
        mels, times = (torch.arange(count) + start for count, start in ((rows * down, below), (columns * across, left)))
        part = energies.T[mels.clamp(0, n_mels - 1)][:, times.clamp(0, len(values) - 1)]
        rgb = spectrogram.of_energies(part.numpy() * 10 / log(10))
        lowest, highest = to_mel(_LOWEST), to_mel(self.rate / 2)

        def hertz(band: float) -> float:
            return from_mel(lowest + (band + 1) * (highest - lowest) / (n_mels + 1))

        names = (f"{hertz(below + (row + 0.5) * down - 0.5):,.0f}" for row in reversed(range(rows)))
        y = Axis("Hz", hertz(below + rows * down - 0.5), hertz(below - 0.5), tuple(names))
        x = Axis("s", left * _SHIFT / self.rate, (left + columns * across) * _SHIFT / self.rate)
        words = f"{len(samples) / self.rate:.2f} s at {self.rate:,} samples in a second, as {n_mels} mel bands"
        n_frames = max(0, (len(samples) - _LENGTH) // _SHIFT + 1)
        if n_frames < len(values):
            words += f"; from {n_frames * _SHIFT / self.rate:.2f} to {len(values) * _SHIFT / self.rate:.2f} s there are zeros, which the model reads as well"
        seen = SeenPicture(rgb, rows, columns, (size, size), words, digest, NOUN, x, y)
        patches = patches_of(seen, (down, across))
        return seen, [patch for row in reversed(range(rows)) for patch in patches[row * columns : (row + 1) * columns]]


def load_reader(medium: Medium, folder: Folder, name: str, model: Any) -> SoundReader:
    """The reader of a model of a declared family, from the files of its folder.

    Raises:
        ModelError: a file is missing or broken, or asks for sounds that are too large.
    """
    from transformers import AutoFeatureExtractor, SequenceFeatureExtractor

    try:
        numbers, _ = SequenceFeatureExtractor.get_feature_extractor_dict(folder.path, local_files_only=True)
        if wrong := [field for field, most in _MOST_OF.items() if not 0 <= (numbers.get(field) or 0) <= most]:
            raise ModelError(  # before tables of this size are made
                f"A feature extractor has a {wrong[0]} of at most {_MOST_OF[wrong[0]]:,}; that of {name} has {str(numbers[wrong[0]])[:20]}: "
                "change its preprocessor_config.json."
            )
        extractor = AutoFeatureExtractor.from_pretrained(folder.path, local_files_only=True, trust_remote_code=False)
    except ModelError:
        raise
    except Exception as error:  # a missing or broken file can raise anything in transformers
        raise ModelError(
            f"{name} has no feature extractor that can be read: add its preprocessor_config.json to the folder."
        ) from error
    return _reader(medium, model, extractor, name)


def reader_of(medium: Medium, model: Any, processor: Any) -> tuple[SoundReader, Any]:
    """The reader of a model in memory, and the feature extractor in the processor of its user, which may have a tokenizer beside it.

    Raises:
        ModelError: it has none, or asks for sounds that are too large.
    """
    from transformers import SequenceFeatureExtractor

    for candidate in (processor, getattr(processor, "feature_extractor", None)):
        if isinstance(candidate, SequenceFeatureExtractor):
            return _reader(medium, model, candidate, type(model).__name__), candidate
    raise ModelError(
        f"Model.of needs the feature extractor of a model that reads sounds, such as {type(model).__name__}; got {kind_of(processor)}: "
        "load it with AutoFeatureExtractor.from_pretrained(…)."
    )


def _reader(medium: Medium, model: Any, extractor: Any, name: str) -> SoundReader:
    """Raises ModelError for a feature extractor that asks for too much, or for another spectrogram than the model's."""
    config = model.config
    rate = getattr(extractor, "sampling_rate", None)
    if not isinstance(rate, int) or not _RATES[0] <= rate <= _RATES[1]:
        raise ModelError(
            f"A feature extractor asks for {_RATES[0]:,} to {_RATES[1]:,} samples in a second; that of {name} asks for {str(rate)[:20]}: change its preprocessor_config.json."
        )
    if config.model_type in PADDED:
        shape, wanted = (
            (extractor.feature_size, extractor.nb_max_frames),
            (config.num_mel_bins, 2 * config.max_source_positions),
        )
        if shape != wanted or extractor.n_samples > _MOST_PADDED:
            raise ModelError(
                f"The feature extractor of {name} makes a spectrogram of {shape[0]:,} × {shape[1]:,} numbers, and its config.json needs {wanted[0]:,} × {wanted[1]:,}: "
                "change its preprocessor_config.json."
            )
    for field in ("max_length", "num_mel_bins") if config.model_type in PATCHED else ():
        if (own := getattr(extractor, field, None)) != (needed := getattr(config, field)):
            raise ModelError(
                f"The feature extractor of {name} makes a spectrogram of {field} {str(own)[:20]}, and its config.json needs {needed}: change its preprocessor_config.json."
            )
    return SoundReader(medium, model, extractor)
