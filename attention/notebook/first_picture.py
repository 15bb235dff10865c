"""The first picture of an output, seen before the scripts are there, and where they are missing: the weights of its head as a small picture file, with the words of its rows."""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from html import escape
from typing import TYPE_CHECKING

import numpy as np

from attention.formula.names import QUERY, WEIGHTS, Cell
from attention.pictures.look import LIGHT, mix
from attention.trace.large_map import MAX_SIDE, pool_blocks
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

_PIXELS = 18  # of a cell with words beside it
_WIDEST = 400  # pixels of a picture without them
_MAX_WORDS = 24


def first_picture(trace: Trace, cell: Cell) -> str:
    """The weights of the head of this cell as HTML, from 0 to 1 in the colours of the maps; empty if its layer has none."""
    layer = trace.layer(cell.layer)
    if not layer.has(WEIGHTS):
        return ""
    weights = np.nan_to_num(layer.matrix(WEIGHTS, cell.head).double().numpy())
    down, across = (-(-size // MAX_SIDE) for size in weights.shape)
    png = _png(np.clip(pool_blocks(weights, down, across), 0, 1))
    rows, columns = weights.shape
    words = layer.labels_of("query_pos") or ()
    has_words = len(words) <= _MAX_WORDS and columns <= 2 * _MAX_WORDS
    width = columns * _PIXELS if has_words else _WIDEST
    height = width * rows // columns
    labels = "".join(f"<div>{escape(word)}</div>" for word in words) if has_words else ""
    return (
        f'<figure><figcaption>Weights of layer {cell.layer}, head {cell.head}, 0 to 1: a row for each {QUERY}</figcaption><div style="line-height:{_PIXELS}px">{labels}</div>'
        f'<img alt="" width="{width}" height="{height}" src="data:image/png;base64,{b64encode(png).decode()}"></figure>'
    )


def _png(shares: NDArray[np.float64]) -> bytes:
    """Numbers from 0 to 1 as a PNG file, with a colour for each 255th."""
    palette = "".join(mix(LIGHT["zero"], LIGHT["weight"], i / 255).removeprefix("#") for i in range(256))
    pixels = np.rint(shares * 255).astype(np.uint8)
    lines = np.pad(pixels, ((0, 0), (1, 0)))  # each line begins with the number of its filter: none

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    size = struct.pack(">IIBBBBB", *pixels.shape[::-1], 8, 3, 0, 0, 0)  # 8 bits, a palette
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        chunk(kind, content)
        for kind, content in (
            (b"IHDR", size), (b"PLTE", bytes.fromhex(palette)), (b"IDAT", zlib.compress(lines.tobytes(), 9)), (b"IEND", b""),
        )
    )  # fmt: skip
