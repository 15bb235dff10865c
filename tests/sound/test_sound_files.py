"""Sounds from files and from samples: as soundfile and torchaudio read and resample them, and hostile files refused."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
import torch
from margins import approx
from tiny_sounds import encoded, noise

from attention.base.errors import FileError
from attention.sound import sound_file
from attention.sound.examples import EXAMPLES, example_sound
from attention.sound.sound_file import CUT_OFF, Sound, resampled

pytestmark = pytest.mark.quick

SAMPLES = noise(0.25)
WAV = encoded(SAMPLES, subtype="PCM_16")

FORMATS = [
    ("WAV", "PCM_U8", "WAV"), ("WAV", "PCM_16", "WAV"), ("WAV", "PCM_24", "WAV"), ("WAV", "PCM_32", "WAV"), ("WAV", "FLOAT", "WAV"),
    ("WAV", "DOUBLE", "WAV"), ("WAV", "ULAW", "WAV"), ("WAV", "IMA_ADPCM", "WAV"), ("WAVEX", "PCM_24", "WAV"), ("WAVEX", "FLOAT", "WAV"),
    ("FLAC", "PCM_16", "FLAC"), ("FLAC", "PCM_24", "FLAC"), ("MP3", None, "MP3"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "subtype", "expected"), FORMATS)
@pytest.mark.parametrize("n_channels", [1, 2])
def test_formats_of_soundfile_are_read_as_it_reads_them(
    kind: str, subtype: str | None, expected: str, n_channels: int, tmp_path: Path
) -> None:
    samples = np.stack([noise(0.25, seed=seed) for seed in range(n_channels)], axis=1)
    path = tmp_path / "sound.bin"
    path.write_bytes(content := encoded(samples, 16_000, kind, subtype))
    sound = Sound.open(path)
    own, rate = soundfile.read(path, dtype="float32", always_2d=True)
    assert (sound.kind, sound.rate, sound.n_samples, sound.name) == (expected, rate, len(own), "sound.bin")
    # The last bit of a decoded MP3 depends on how many samples are decoded at a time.
    assert sound.samples() == approx(own.mean(axis=1, dtype=np.float32), terms=1)
    assert sound == Sound.of(content)
    assert sound.notes == (("The 2 channels of the sound are averaged.",) if n_channels == 2 else ())
    again, _ = soundfile.read(sound_file.BytesIO(sound.wav(0.1, 0.15)))
    assert again == approx(sound.samples()[1600:2400], step=2**-14)  # 16 bits, cut


def test_samples_with_their_rate_are_a_sound() -> None:
    sound = Sound.of((SAMPLES, 16_000))
    assert np.array_equal(sound.samples(), SAMPLES)
    assert (sound.kind, sound.seconds) == ("", 0.25)
    equal: list[Any] = [
        (torch.from_numpy(SAMPLES).requires_grad_(), 16_000.0), [SAMPLES.tolist(), np.int64(16_000)],
        {"array": SAMPLES.astype(np.float64), "sampling_rate": 16_000, "path": None},
    ]  # fmt: skip
    for each in equal:
        assert Sound.of(each) == sound
        assert np.array_equal(Sound.of(each).samples(), SAMPLES)
    whole = Sound.of(((SAMPLES * 2**15).astype(np.int16), 16_000))
    assert np.array_equal(whole.samples(), (SAMPLES * 2**15).astype(np.int16) / np.float32(2**15))
    assert whole.notes == ("The samples of 16 bit are divided by 32,768.",)
    assert Sound.of((SAMPLES, 8_000)) != sound


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ((16_000, SAMPLES), "write the samples first"), ((SAMPLES,), "got a tuple"), (SAMPLES, "got a ndarray"), (3, "got a int"),
        ((SAMPLES[None], 16_000), r"got float32 with the shape \[1, 4000\]: give the mean"), ((["a"], 16_000), "got <U1 with the shape"),
        ((np.array([], np.float32), 16_000), "got none"), ((np.array([np.nan]), 16_000), "got others"), ((SAMPLES, 100), "got 100"),
        ((SAMPLES, 10**7), "got 10,000,000"), ((SAMPLES, True), "got bool as the rate"), (([[1], [1, 2]], 16_000), "got a tuple"),
        ((SAMPLES > 0, 16_000), "got bool"), ((np.broadcast_to(np.float32(0), 4_000 * 601), 4_000), "last at most 600 seconds"),
    ],
)  # fmt: skip
def test_other_samples_are_refused(value: Any, words: str) -> None:
    with pytest.raises(FileError, match=words):
        Sound.of(value)


def _claims(content: bytes, place: int, form: str, number: int) -> bytes:
    return content[:place] + struct.pack(form, number) + content[place + struct.calcsize(form) :]


def test_header_that_claims_more_than_there_is_does_not_count() -> None:
    assert WAV[36:40] == b"data"
    for content in (
        _claims(WAV, 40, "<I", 0xFFFFFFF0),  # 4 GB of samples
        _claims(_claims(WAV, 40, "<I", 0xFFFFFFFF), 4, "<I", 0xFFFFFFFF),  # as ffmpeg writes to a pipe
        WAV[:5000],
    ):
        sound = Sound.of(content)
        assert sound.n_samples == (len(content) - 44) // 2
        assert np.array_equal(sound.samples(), Sound.of(WAV).samples()[: sound.n_samples])
    assert Sound.of(WAV[:5000]).notes == (CUT_OFF,)
    mp3 = encoded(noise(5), kind="MP3")
    cut = Sound.of(mp3[: len(mp3) // 2])
    assert cut.notes == (CUT_OFF,)
    assert 1 < cut.seconds < 4


FLAC, MP3 = encoded(noise(2), kind="FLAC"), encoded(noise(2), kind="MP3")
HOSTILE = {
    "no samples": (WAV[:44], "got none"),
    "no header": (WAV[:20], "WAV file is broken"),
    "rate of 4 billion": (_claims(WAV, 24, "<I", 4_000_000_000), "WAV file is broken"),
    "rate of 0": (_claims(WAV, 24, "<I", 0), "WAV file is broken"),
    "rate of 1 million": (_claims(WAV, 24, "<I", 1_000_000), "from 4,000 to 192,000 samples in a second; got 1,000,000"),
    "60,000 channels": (_claims(WAV, 22, "<H", 60_000), "WAV file is broken"),
    "100 channels": (_claims(_claims(WAV, 22, "<H", 100), 32, "<H", 200), "at most 8 channels, which are averaged; got 100"),
    "half of a FLAC": (FLAC[: len(FLAC) // 2], "FLAC file is broken"),
    "start of a FLAC": (FLAC[:10], "FLAC file is broken"),
    "zeros in a FLAC": (FLAC[:200] + bytes(len(FLAC) - 200), "FLAC file is broken"),
    "start of an MP3": (MP3[:10], "MP3 file is broken"),
    "an ID3 and zeros": (b"ID3" + bytes(2000), "MP3 file is broken"),
    "nothing": (b"", "got an empty file"),
    "an Ogg": (b"OggS" + bytes(99), "got an Ogg file"),
    "an AVI": (b"RIFF\0\0\0\0AVI " + bytes(99), "got a RIFF file without sound"),
    "an M4A": (b"\0\0\0\x20ftypM4A " + bytes(99), "got an MP4 or M4A"),
    "a picture": (b"\x89PNG\r\n\x1a\n" + bytes(99), "got a file of another kind"),
    "not a number": (encoded(np.array([0, np.nan, 1], np.float32), subtype="FLOAT"), "got others"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_are_refused_by_a_sentence(name: str) -> None:
    content, words = HOSTILE[name]
    with pytest.raises(FileError, match=words):
        Sound.of(content)


def test_bytes_and_seconds_are_bounded_while_they_are_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(FileError, match=r"may take at most 0 MB here; got 0\.0 MB"):
        Sound.of(WAV, max_bytes=100)
    # Silence of eleven minutes is a file of 60 KB, and is refused before it is decoded as a whole.
    long = encoded(np.zeros(8_000 * 660, np.int16), 8_000, "FLAC")
    assert len(long) < 100_000
    n_decoded, read = 0, soundfile.SoundFile.read

    def counted(self: Any, n: int, **options: Any) -> Any:
        nonlocal n_decoded
        n_decoded += n
        return read(self, n, **options)

    monkeypatch.setattr(soundfile.SoundFile, "read", counted)
    with pytest.raises(FileError, match=r"at most 600 seconds, .* got more than 600 seconds in 1: cut a part of it"):
        Sound.of(long)
    assert n_decoded <= 600 * 8_000 + 2 * 2**16
    wide = encoded(np.zeros((48_000 * 100, 8), np.int16), 48_000, "FLAC")
    with pytest.raises(FileError, match=r"have 16,777,216 samples in all channels; got more than 45 seconds in 8"):
        Sound.of(wide)


def test_file_that_is_not_there_is_named() -> None:
    with pytest.raises(FileError, match=r"A sound is a WAV, FLAC or MP3 file that can be read; got “none/none\.wav”"):
        Sound.open("none/none.wav")


OF_TORCHAUDIO = {
    # By torchaudio 2.11, torchaudio.functional.resample(x, rate, new_rate)at five places, in float64 rounded to float32, of the samples = sin(k² / 500) for k from 0 to 999.
    (44_100, 16_000): [0.000130258151, 0.0152097885, 0.677720964, 0.518772423, -0.0921472609],
    (8_000, 16_000): [3.44507316e-06, 0.000610719086, 0.0245691966, -0.958906174, -0.509538114],
    (48_000, 16_000): [0.000151569591, 0.0180101171, 0.772009671, -0.072149545, -0.185863078],
    (22_050, 16_000): [3.71148381e-05, 0.00381509075, 0.185172036, 0.281642139, -0.718267739],
}


def test_resampling_is_that_of_torchaudio() -> None:
    x = np.sin(np.arange(1000) ** 2 / 500).astype(np.float32)
    for (rate, new_rate), expected in OF_TORCHAUDIO.items():
        result = resampled(x, rate, new_rate)
        assert len(result) == -(-1000 * new_rate // rate)
        assert result[[0, 1, 7, 100, -1]] == approx(expected)


def test_resampling_keeps_what_both_rates_have() -> None:
    for rate, new_rate in ((44_100, 16_000), (8_000, 16_000), (44_101, 16_000), (192_000, 16_000)):
        time, new_time = np.arange(rate) / rate, np.arange(new_rate) / new_rate
        result = resampled(np.sin(2 * np.pi * 1_000 * time).astype(np.float32), rate, new_rate)
        assert result[200:-200] == approx(
            np.sin(2 * np.pi * 1_000 * new_time)[200:-200], within=8e-3, why="the filter lets through what is near"
        )
    high = resampled(np.sin(2 * np.pi * 15_000 * np.arange(44_100) / 44_100).astype(np.float32), 44_100, 16_000)
    assert np.abs(high[200:-200]).max() < 5e-3  # above half of the new rate


@pytest.mark.parametrize("name", EXAMPLES)
def test_examples_are_tones_that_are_as_their_words_say(name: str) -> None:
    sound = example_sound(name)
    assert sound is example_sound(name)
    assert 2.5 <= sound.seconds <= 3.5
    assert np.abs(sound.samples()).max() < 0.7
    loudest = [np.abs(np.fft.rfft(part)).argmax() * 16_000 / len(part) for part in np.split(sound.samples()[: 16_000 // 20 * (sound.n_samples * 20 // 16_000)], sound.n_samples * 20 // 16_000) if np.abs(part).max() > 0.3]  # fmt: skip
    heard = [hertz for i, hertz in enumerate(loudest) if not i or abs(hertz - loudest[i - 1]) > 30]
    if name == "rising-tones":
        assert heard == sorted(heard)
        assert len(heard) == 8
    elif name == "odd-tone":
        assert [round(hertz, -1) for hertz in heard] == [880, 1320, 880]
    else:
        assert [round(hertz, -1) for hertz in heard] == [1760, 440, 1760, 440]
    with pytest.raises(FileError, match="An example sound is one of rising-tones, "):
        example_sound("another")
