"""A sound as samples: of a WAV, FLAC or MP3 file, checked before it is decoded, or in memory with its rate.

A `Sound` keeps the file and decodes it when its samples are read. Channels are averaged, and nothing else is done to the samples.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from io import BytesIO
from numbers import Real
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError
from attention.files.archives import read_at_most

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray

MAX_BYTES = 2**25  # the largest sound file
_MAX_SECONDS = 600
_MAX_SAMPLES = 2**24  # of all channels; a minute of stereo at 44.1 kHz has a third of it
_MAX_CHANNELS = 8
_RATES = (4_000, 192_000)  # samples in a second, the lowest and the highest
BLOCK = 2**16
"""Samples of each channel that are decoded, or resampled, at a time."""
_AROUND = 0.1  # seconds that are heard before and after a stretch
_KINDS = {"WAV": b"RIFF", "FLAC": b"fLaC", "MP3": b"ID3"}  # how each kind of file begins; an MP3 may begin with a frame
_FORMATS = {"WAV": "WAV", "WAVEX": "WAV", "FLAC": "FLAC", "MP3": "MP3"}
"""The kind of each format that libsndfile names, of those that are read."""
_BROKEN = "This {kind} file is broken or cut off, so its samples cannot be read: save or download it again."

CUT_OFF = "The file of the sound ends before its header says: it is read as far as it goes."


@dataclass(frozen=True)
class Sound:
    """A sound, compared by its digest.

    Attributes:
        digest: of the file, BLAKE2b in hexadecimal.
        rate: samples in a second.
        n_samples: of each channel.
        content: the file; or the samples, [time] in float32.
        kind: "WAV", "FLAC" or "MP3"; empty: `content` has the samples.
        notes: what was done to the file's own samples, a sentence each.
        name: of the file; empty if it is not known.
    """

    digest: str
    rate: int = field(compare=False)
    n_samples: int = field(compare=False)
    content: bytes = field(compare=False, repr=False)
    kind: str = field(default="", compare=False)
    notes: tuple[str, ...] = field(default=(), compare=False)
    name: str = field(default="", compare=False)

    @classmethod
    def open(cls, path: str | PathLike[str]) -> Sound:
        """The sound of a file.

        Raises:
            FileError: there is no such file, or as for `of`.
        """
        return cls.of(read_at_most(path, MAX_BYTES, "A sound is a WAV, FLAC or MP3 file"), Path(path).name)

    @classmethod
    def of(cls, content: Any, name: str = "", max_bytes: int = MAX_BYTES) -> Sound:
        """The sound of the bytes of a file; or of samples with their rate, as `(samples, 16000)` or as a dict with "array" and "sampling_rate".

        Raises:
            FileError: it is no WAV, FLAC or MP3, and no samples; it is broken; or it is too large.
        """
        if isinstance(content, Sound):
            return content
        if not isinstance(content, bytes | bytearray | memoryview):
            return _in_memory(content, name)
        content = bytes(content)
        kind = _kind(content)
        if len(content) > max_bytes:
            raise FileError(
                f"A sound file may take at most {max_bytes / 2**20:.0f} MB here; got {len(content) / 2**20:.1f} MB: cut a part of it, or save it as FLAC or MP3."
            )
        n_samples, is_finite = 0, True
        with _opened(content, kind) as file:
            for block in _blocks(file, kind):  # once, since a broken file shows only then
                n_samples += len(block)
                is_finite &= bool(_is_finite(block))
            rate, n_channels, n_claimed = int(file.samplerate), int(file.channels), int(file.frames)
        _check(rate, n_channels, n_samples, is_finite)
        is_cut = n_claimed > n_samples or (kind == "WAV" and int.from_bytes(content[4:8], "little") + 8 > len(content))
        notes = [CUT_OFF] * is_cut
        notes += [f"The {n_channels} channels of the sound are averaged."] if n_channels > 1 else []
        return cls(_digest(content), rate, n_samples, content, kind, tuple(notes), name)

    @property
    def seconds(self) -> float:
        """How long it lasts."""
        return self.n_samples / self.rate

    def samples(self, most: int | None = None) -> NDArray[float32]:
        """The mean of its channels, [time] from −1 to 1, all or the first ones; of a file, decoded anew."""
        import numpy as np

        if not self.kind:
            return np.frombuffer(self.content, np.float32)[:most]
        samples, n_read = np.empty(min(self.n_samples, most or self.n_samples), np.float32), 0
        with _opened(self.content, self.kind) as file:
            for block in _blocks(file, self.kind):
                part = samples[n_read : n_read + len(block)]
                part[:] = block[: len(part)].mean(axis=1, dtype=np.float32)
                n_read += len(part)
                if n_read == len(samples):
                    break
        return samples[:n_read]

    def wav(self, start: float = 0, stop: float | None = None) -> bytes:
        """A WAV file of 16 bit of its samples between two times in seconds."""
        first, last = (None if at is None else max(0, round(at * self.rate)) for at in (start, stop))
        return wav(self.samples(last)[first:], self.rate)

    def heard(self, start: float, stop: float) -> tuple[float, float, bytes] | None:
        """A stretch between two times in seconds with 0.1 s around it, as far as the sound goes: where it begins and ends, and as `wav`; None after its end."""
        if start >= self.seconds:
            return None
        first, last = max(0.0, start - _AROUND), min(self.seconds, stop + _AROUND)
        return first, last, self.wav(first, last)


def bytes_to_decode(content: bytes) -> int:
    """The bytes of memory that the samples of a sound file take, by its header.

    Raises:
        FileError: it is no WAV, FLAC or MP3, or its header cannot be read.
    """
    with _opened(content, _kind(content)) as file:
        return 4 * int(file.frames)


def wav(samples: NDArray[float32], rate: int) -> bytes:
    """A WAV file of 16 bit of samples [time]; those beyond −1 and 1 are clipped."""
    import soundfile

    file = BytesIO()
    soundfile.write(file, samples, rate, format="WAV", subtype="PCM_16")
    return file.getvalue()


def resampled(samples: NDArray[float32], rate: int, new_rate: int) -> NDArray[float32]:
    """Samples [time] at another rate: each is a mean of those around its time, weighted by a sinc under a Hann window.

    The sinc ends after 6 zeros on each side, at a cutoff of 0.99 of the lower half rate, as by default in `torchaudio.functional.resample`. Sums are in
    float64.

    Source: Smith, Digital Audio Resampling (https://ccrma.stanford.edu/~jos/resample/).
    """
    import numpy as np

    if rate == new_rate:
        return samples
    n_zeros, cutoff = 6, 0.99 * min(1, new_rate / rate)  # in zeros of the sinc; relative to half of `rate`
    reach = int(np.ceil(n_zeros / cutoff))  # samples on each side
    padded = np.pad(samples.astype(np.float64), reach + 1)
    n_new = -(-len(samples) * new_rate // rate)
    result = np.empty(n_new, np.float32)
    for first in range(0, n_new, BLOCK):
        ticks = np.arange(first, min(first + BLOCK, n_new), dtype=np.int64) * rate
        whole, part = ticks // new_rate, (ticks % new_rate) / new_rate
        total = np.zeros(len(ticks))
        for offset in range(-reach, reach + 2):
            x = np.clip((offset - part) * cutoff, -n_zeros, n_zeros)
            total += padded[whole + (offset + reach + 1)] * np.sinc(x) * np.cos(x * np.pi / (2 * n_zeros)) ** 2
        result[first : first + len(ticks)] = total * cutoff
    return result


def _in_memory(value: Any, name: str) -> Sound:
    import numpy as np

    is_dict = (
        isinstance(value, Mapping) and {"array", "sampling_rate"} <= value.keys()
    )  # as an item of a data set has them
    samples, rate = (value["array"], value["sampling_rate"]) if is_dict else _pair(value)
    try:
        array = np.asarray(samples.detach().cpu() if hasattr(samples, "detach") else samples)
    except (TypeError, ValueError) as error:
        raise _no_sound(value) from error
    if array.ndim != 1 or array.dtype.kind not in "fi" or array.itemsize == 1:
        raise FileError(
            f"Samples are one row of numbers, [time], from −1 to 1 or whole ones of 16 or 32 bit; got {array.dtype} with the shape {list(array.shape)}: "
            "give the mean of the channels, such as samples.mean(axis=0)."
        )
    scale = 2.0 ** (8 * array.itemsize - 1) if array.dtype.kind == "i" and array.itemsize < 8 else 1.0
    n_bits, array = 8 * array.itemsize, (array / scale).astype(np.float32)
    _check(rate, 1, len(array), bool(_is_finite(array)))
    content = array.tobytes()
    notes = (f"The samples of {n_bits} bit are divided by {scale:,.0f}.",) if scale > 1 else ()
    return Sound(_digest(f"{rate}".encode(), content), rate, len(array), content, notes=notes, name=name)


def _pair(value: Any) -> tuple[Any, int]:
    import numpy as np

    pair = tuple(value) if isinstance(value, tuple | list) else ()
    if len(pair) != 2 or isinstance(pair[0], str | bytes):
        raise _no_sound(value)
    samples, rate = pair
    if np.ndim(rate) or isinstance(rate, bool) or not isinstance(rate, Real) or not float(rate).is_integer():
        raise FileError(
            f"A sound in memory is (samples, rate) with the whole number of samples in a second; got {type(rate).__name__} as the rate: "
            "write the samples first, such as (samples, 16000)."
        )
    return samples, int(float(rate))


def _no_sound(value: Any) -> FileError:
    return FileError(
        f"A sound is the path or the bytes of a WAV, FLAC or MP3 file, or samples with their rate, (samples, 16000); got a {type(value).__name__}: give one of these."
    )


def _digest(*parts: bytes) -> str:
    return blake2b(b"".join(parts), digest_size=16).hexdigest()


def _is_finite(array: NDArray[float32]) -> Any:
    import numpy as np

    return np.isfinite(array).all()


def _check(rate: int, n_channels: int, n_samples: int, is_finite: bool = True) -> None:
    """Raises FileError if a sound has too many samples or other numbers than those of a sound."""
    if not _RATES[0] <= rate <= _RATES[1]:
        raise FileError(
            f"A sound has from {_RATES[0]:,} to {_RATES[1]:,} samples in a second; got {rate:,}: save it with another rate, such as 16,000."
        )
    if n_channels > _MAX_CHANNELS:
        raise FileError(
            f"A sound may have at most {_MAX_CHANNELS} channels, which are averaged; got {n_channels:,}: save one of them."
        )
    if n_samples > _MAX_SECONDS * rate or n_samples * n_channels > _MAX_SAMPLES:
        raise FileError(
            f"A sound may last at most {_MAX_SECONDS} seconds, and have {_MAX_SAMPLES:,} samples in all channels; "
            f"got more than {min(n_samples / rate, _MAX_SECONDS):,.0f} seconds in {n_channels}: cut a part of it."
        )
    if not n_samples or not is_finite:
        raise FileError(
            f"A sound has samples that are finite numbers; got {'others' if n_samples else 'none'}: save it again."
        )


def _opened(content: bytes, kind: str) -> Any:
    """The file as `soundfile` reads it, with a header that claims a sound of this kind."""
    import soundfile

    try:
        file = soundfile.SoundFile(BytesIO(content))
    except Exception as error:  # a broken file can raise anything in libsndfile
        raise FileError(_BROKEN.format(kind=kind)) from error
    if _FORMATS.get(file.format) != kind:
        raise FileError(_BROKEN.format(kind=kind))
    return file


def _blocks(file: Any, kind: str) -> Iterator[NDArray[float32]]:
    """The samples [time channel] of an opened file, some at a time, as far as the header and the samples themselves keep the limits."""
    rate, n_channels, n_samples = int(file.samplerate), int(file.channels), 0
    _check(rate, n_channels, 1)
    try:
        while len(block := file.read(BLOCK, dtype="float32", always_2d=True)):
            n_samples += len(block)
            _check(rate, n_channels, n_samples)  # a header may claim anything: what is decoded counts
            yield block
    except FileError:
        raise
    except Exception as error:  # as in `_opened`
        raise FileError(_BROKEN.format(kind=kind)) from error


def _kind(content: bytes) -> str:
    kind = next((kind for kind, start in _KINDS.items() if content.startswith(start)), "")
    if not kind and content[:1] == b"\xff" and content[1:2] >= b"\xe0":
        kind = "MP3"
    if not kind or (kind == "WAV" and content[8:12] != b"WAVE"):
        raise FileError(
            f"A sound is a WAV, FLAC or MP3 file; got {_other_kind(content)}: save it as one of these, and give that."
        )
    return kind


def _other_kind(content: bytes) -> str:
    """What a file is that is no sound we read, as far as its beginning shows it."""
    if not content:
        return "an empty file"
    known = {
        b"OggS": "an Ogg file",
        b"FORM": "an AIFF",
        b"RF64": "an RF64",
        b"\x1aE\xdf\xa3": "a WebM",
        b"RIFF": "a RIFF file without sound",
    }
    found = next((words for start, words in known.items() if content.startswith(start)), "")
    return found or ("an MP4 or M4A" if content[4:8] == b"ftyp" else "a file of another kind")
