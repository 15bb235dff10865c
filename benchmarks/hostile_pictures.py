"""Hostile pictures: bombs of pixels, of scans and of metadata, broken files, other kinds; and thirty photos at once."""

from __future__ import annotations

import asyncio
import io
import struct
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlencode

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.session import Session
from benchmarks.uploads import SHOWN, TAKEN, each_ends, unrefused

FIELD = "image_upload_0"
ENVIRONMENT = {"LAB_ALLOW_LOCAL_MODELS": "yes"}


@contextmanager
def picture_model() -> Iterator[str]:
    """The address of a page with a tiny vision transformer of random weights."""
    import torch
    from transformers import ViTConfig, ViTModel
    from transformers.models.vit.image_processing_pil_vit import ViTImageProcessorPil

    with tempfile.TemporaryDirectory(prefix="attention-lab-") as folder, torch.random.fork_rng():
        config = ViTConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8)  # fmt: skip
        ViTModel(config).save_pretrained(folder)
        ViTImageProcessorPil(size={"height": 32, "width": 32}).save_pretrained(folder)
        yield urlencode({"source": "model", "model": folder})


def encoded(image: Any, kind: str, **options: Any) -> bytes:
    """An image of Pillow as a file."""
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def photo(width: int = 4000, height: int = 3000, seed: int = 0) -> bytes:
    """A JPEG as large as that of a telephone."""
    import numpy as np
    from PIL import Image

    coarse = np.random.default_rng(seed).integers(0, 256, (height // 16, width // 16, 3), dtype=np.uint8)
    return encoded(Image.fromarray(coarse).resize((width, height)), "JPEG", quality=90)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def _png(width: int, height: int, *more: bytes, bits: int = 8) -> bytes:
    """A grey PNG in which all pixels are 0, packed as small as zlib can, with `more` chunks before them."""
    packer = zlib.compressobj(9)
    line = bytes(1 + (width * bits + 7) // 8)
    data = b"".join(packer.compress(line) for _ in range(height)) + packer.flush()
    header = _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, bits, 0, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + b"".join(more) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _with_many_scans(n_scans: int) -> bytes:
    """A progressive JPEG whose last scan is repeated."""
    from PIL import Image

    content = encoded(Image.new("L", (3000, 3000), 128), "JPEG", progressive=True)
    last, end = content.rfind(b"\xff\xda"), content.rfind(b"\xff\xd9")
    return content[:end] + content[last:end] * n_scans + content[end:]


def hostile_pictures() -> Iterator[tuple[str, bytes, str]]:
    """Each hostile file with its name, and words of the sentence that refuses it, or `SHOWN`."""
    from PIL import Image

    small = Image.effect_noise((64, 48), 90).convert("RGB")
    frames = [Image.new("RGB", (64, 48), color) for color in ("red", "blue")] * 20
    zeros = zlib.compress(bytes(2**26), 9)
    yield "pixels.png", _png(20_000, 20_000, bits=1), "pixels; got 20,000 × 20,000"
    yield "line.png", _png(60_000, 10), "times as long"
    yield "largest.png", _png(3_500, 3_500), SHOWN
    yield "header.jpg", _jpeg_of_size(65_500, 65_500), "pixels; got 65,500 × 65,500"
    yield "header.webp", b"RIFF\0\0\0\0WEBPVP8X" + bytes(8) + b"\xff" * 6, "16,777,216"
    yield "scans.jpg", _with_many_scans(5_000), "scans"
    yield "text.png", _png(64, 48, _chunk(b"zTXt", b"a\0\0" + zeros)), "broken"
    yield "profile.png", _png(64, 48, _chunk(b"iCCP", b"a\0\0" + zeros)), "broken"
    for kind, ending in (("PNG", "png"), ("JPEG", "jpg"), ("WEBP", "webp")):
        content = encoded(small, kind)
        yield f"cut.{ending}", content[: len(content) // 2], "broken"
        yield f"start.{ending}", content[:13], "broken"
    yield "drawing.png", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>", "SVG"
    yield "moving.png", encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]), "GIF"
    yield "frames.png", encoded(frames[0], "PNG", save_all=True, append_images=frames[1:]), SHOWN
    yield "frames.webp", encoded(frames[0], "WEBP", save_all=True, append_images=frames[1:]), SHOWN
    yield "16-bit.png", encoded(Image.new("I;16", (64, 48), 40_000), "PNG"), SHOWN
    yield "ink.jpg", encoded(Image.new("CMYK", (64, 48), (0, 255, 255, 0)), "JPEG"), SHOWN
    yield "clear.png", encoded(Image.new("RGBA", (64, 48), (255, 0, 0, 9)), "PNG"), SHOWN
    yield "<img src=x onerror=alert(1)>.png", encoded(small, "PNG"), SHOWN
    yield f"{'x' * 5_000}:\n.png", encoded(small, "PNG"), SHOWN
    yield "heavy.png", b"\x89PNG\r\n\x1a\n" + bytes(9 * 2**20), "at most 8 MB"
    yield "nothing.png", b"", "empty"


def _jpeg_of_size(width: int, height: int) -> bytes:
    """A small JPEG whose header claims another size."""
    from PIL import Image

    content = encoded(Image.new("L", (64, 48)), "JPEG")
    place = content.index(b"\xff\xc0") + 5
    return content[:place] + struct.pack(">HH", height, width) + content[place + 4 :]


async def show_hostile(server: Server) -> list[str]:
    """Uploads each hostile file; each must be shown, or refused by its sentence."""
    with picture_model() as query:
        return await each_ends(server, query, FIELD, hostile_pictures())


async def many_photos(server: Server, people: int = 30, width: int = 4000) -> list[str]:
    """Many visitors upload a photo at once, each another one; each sees a map, or a sentence."""
    contents = [photo(width, width * 3 // 4, seed) for seed in range(min(people, 5))]
    broken = []

    async def person(query: str, number: int) -> None:
        async with Session(server.base, query, timeout=600) as session:
            await session.open()
            content = contents[number % len(contents)] + bytes(number)  # another digest, so nothing is cached
            status, run = await session.upload(FIELD, "photo.jpg", content)
            broken.extend(unrefused([status], TAKEN))
            if run is not None:
                broken.extend(run.exceptions or ([] if run.figures or run.sentences else ["neither a map nor a sentence"]))  # fmt: skip

    with picture_model() as query:
        await asyncio.gather(*(person(query, number) for number in range(people)))
    if "Traceback" in server.errors():
        broken.append(f"the server's log after many photos: {server.errors()[-1500:]}")
    return broken


ATTACKS = (
    Attack(
        "bombs of pixels, scans and metadata, broken and other pictures",
        show_hostile,
        900,
        environment=ENVIRONMENT,
        guard=True,
    ),
    Attack("thirty photos of 12 million pixels at once", many_photos, 1000, environment=ENVIRONMENT),
)
