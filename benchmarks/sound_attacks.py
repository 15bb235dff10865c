"""Hostile sounds: headers that claim hours, silence that unpacks to them, broken files and other kinds."""

from __future__ import annotations

import io
import struct
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlencode

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.uploads import SHOWN, each_ends

_FIELD = "sound_upload_0"
_QUERY = urlencode({"source": "model", "model": "tiny-wav2vec2"})


def _encoded(samples: Any, rate: int, kind: str, subtype: str | None = None) -> bytes:
    import soundfile

    stream = io.BytesIO()
    soundfile.write(stream, samples, rate, format=kind, subtype=subtype)
    return stream.getvalue()


def hostile_sounds() -> Iterator[tuple[str, bytes, str]]:
    """Each hostile file with its name, and words of the sentence that refuses it, or `SHOWN`."""
    import numpy as np

    noise = np.random.default_rng(0).normal(size=16_000).astype(np.float32) * 0.1
    wav, flac, mp3 = (_encoded(noise, 16_000, kind) for kind in ("WAV", "FLAC", "MP3"))

    def claims(place: int, form: str, number: int) -> bytes:
        return wav[:place] + struct.pack(form, number) + wav[place + struct.calcsize(form) :]

    yield "hours.wav", claims(40, "<I", 0xFFFFFFF0), SHOWN  # 4 GB of samples by its header, and a second in the file
    yield "silence.flac", _encoded(np.zeros(8_000 * 590, np.int16), 8_000, "FLAC"), SHOWN
    yield "hours.flac", _encoded(np.zeros(8_000 * 36_000, np.int16), 8_000, "FLAC"), "at most 600 seconds"
    yield "wide.flac", _encoded(np.zeros((96_000 * 60, 8), np.int16), 96_000, "FLAC"), "samples in all channels"
    yield "long.mp3", _encoded(np.zeros(16_000 * 580, np.int16), 16_000, "MP3"), SHOWN
    yield "fast.wav", _encoded(noise, 192_000, "WAV"), SHOWN
    yield "rate.wav", claims(24, "<I", 4_000_000_000), "broken"
    yield "channels.wav", claims(22, "<H", 60_000), "broken"
    for name, content in (("wav", wav), ("flac", flac), ("mp3", mp3)):
        yield f"start.{name}", content[:20], "broken"
    yield "cut.flac", flac[: len(flac) // 2], "broken"
    yield "cut.mp3", mp3[: len(mp3) // 2], SHOWN
    yield "zeros.mp3", b"ID3" + bytes(2**20), "broken"
    yield "numbers.wav", _encoded(np.full(16_000, np.inf, np.float32), 16_000, "WAV", "FLOAT"), "finite"
    yield "ogg.wav", b"OggS" + bytes(99), "an Ogg file"
    yield "film.mp3", b"\0\0\0\x20ftypM4A " + bytes(99), "an MP4 or M4A"
    yield "<img src=x onerror=alert(1)>.wav", wav, SHOWN
    yield "heavy.wav", wav[:44] + bytes(9 * 2**20), "at most 8 MB"
    yield "nothing.wav", b"", "empty"


async def show_hostile(server: Server) -> list[str]:
    """Uploads each hostile file; each must be shown, or refused by its sentence."""
    return await each_ends(server, _QUERY, _FIELD, hostile_sounds())


ATTACKS = (Attack("hours of silence, headers that lie, broken and other sounds", show_hostile, 900, guard=True),)
