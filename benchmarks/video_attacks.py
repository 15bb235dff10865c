"""Hostile videos: too many frames and pixels, headers that lie, broken files, other kinds; each is shown, or refused in a sentence."""

from __future__ import annotations

import asyncio
import io
import struct
from collections.abc import Iterator
from fractions import Fraction
from typing import Any
from urllib.parse import urlencode

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.uploads import SHOWN, each_ends

FIELD = "video_upload_0"
_QUERY = urlencode({"source": "model", "model": "tiny-videomae"})


def encoded(n_frames: int, width: int, height: int, fps: Any = 25, codec: str = "libx264", kind: str = "mp4") -> bytes:
    """A file of grey frames."""
    import av
    import numpy as np

    stream = io.BytesIO()
    with av.open(stream, "w", format=kind) as container:
        own = container.add_stream(codec, rate=Fraction(fps))
        own.height, own.width, own.pix_fmt = height, width, "yuv420p"
        own.options = {"preset": "ultrafast"} if codec == "libx264" else {}
        grey = np.full((height, width, 3), 128, np.uint8)
        for _ in range(n_frames):
            container.mux(own.encode(av.VideoFrame.from_ndarray(grey, "rgb24")))
        container.mux(own.encode())
    return stream.getvalue()


def hostile_videos() -> Iterator[tuple[str, bytes, str]]:
    """Each hostile file with its name, and words of the sentence that refuses it, or `SHOWN`."""
    from PIL import Image

    small = encoded(30, 64, 48)
    at = small.index(b"avc1", small.index(b"stsd")) + 28  # the size in the description of the codec
    frames = [Image.new("L", (64, 48), grey) for grey in range(0, 240, 8)]
    gif = io.BytesIO()
    frames[0].save(gif, "GIF", save_all=True, append_images=frames[1:], duration=40)
    yield "good.mp4", small, SHOWN
    yield "good.gif", gif.getvalue(), SHOWN
    yield "long.mp4", encoded(4_000, 64, 48), "at most 3,600 frames"
    yield "slow.mp4", encoded(3, 64, 48, Fraction(1, 500)), "300 s"
    yield "large.mp4", encoded(2, 4096, 2160), "2,097,152 pixels"
    yield "many.mp4", encoded(530, 1920, 1080), "pixels in all frames together"
    yield "lies.mp4", small[:at] + struct.pack(">HH", 16, 16) + small[at + 4 :], SHOWN
    yield "cut.mp4", small[: len(small) // 2], "broken"
    yield "start.webm", encoded(9, 64, 48, codec="libvpx-vp9", kind="webm")[:200], "broken"
    yield "screen.gif", b"GIF89a" + struct.pack("<HHBBB", 65_535, 65_535, 0, 0, 0) + b";", "65,535 × 65,535"
    yield "canvas.webp", b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\xff" * 6, "16,777,216"
    yield "list.mp4", b"#EXTM3U\nhttp://127.0.0.1/a.ts\n", "another kind"
    yield "other.mkv", encoded(3, 64, 48, codec="ffv1", kind="matroska"), "got ffv1"
    yield "nothing.mp4", b"", "empty"


async def show_hostile(server: Server) -> list[str]:
    """Uploads each hostile file; each must be shown, or refused by its sentence."""
    # Beside the other visitor: encoding takes a minute, and is no part of the attack.
    return await each_ends(server, _QUERY, FIELD, await asyncio.to_thread(lambda: [*hostile_videos()]))


ATTACKS = (Attack("too many frames and pixels, lying, broken and other videos", show_hostile, 900, guard=True),)
