"""The scripts of a notebook's outputs, compressed, as bytes and as text: Plotly, and the Lab's own."""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from functools import cache
from pathlib import Path

from attention.export.bundling import bundle
from attention.pictures.message import SCRIPTS_DIR

PAGE_DIR = Path(__file__).parent / "page"

# 85 characters that neither HTML, an attribute in quotes nor JSON has to escape.
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{|"
_STANDARD = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TRANSLATION = str.maketrans(_STANDARD, ALPHABET)


@cache
def packed_scripts() -> bytes:
    """Plotly's script and the page's, compressed: about 540 kB."""
    plotly = (SCRIPTS_DIR / "vendor" / "plotly-cartesian.min.js").read_text(encoding="utf-8")
    return compress(f"{plotly}\n;{bundle('notebook_output', PAGE_DIR)}".encode())


@cache
def scripts_hash() -> str:
    """The SHA-256 of `packed_scripts`, by which an output recognizes them."""
    return hashlib.sha256(packed_scripts()).hexdigest()


@cache
def scripts_text() -> str:
    """`packed_scripts` as text: about 680 kB."""
    return as_text(packed_scripts())


@cache
def loader() -> str:
    """The script that every output carries, without its comments."""
    text = (PAGE_DIR / "loader.js").read_text(encoding="utf-8")
    return re.sub(r"^ *//.*\n|^ +", "", text, flags=re.MULTILINE)


@cache
def styles() -> str:
    """The styles of every output."""
    return (PAGE_DIR / "output.css").read_text(encoding="utf-8") + (SCRIPTS_DIR / "figure.css").read_text(
        encoding="utf-8"
    )


def compress(content: bytes) -> bytes:
    """The content compressed with gzip, without a time stamp."""
    compressor = zlib.compressobj(9, wbits=31)
    return compressor.compress(content) + compressor.flush()


def as_text(content: bytes) -> str:
    """Bytes as text: their number, a colon, and five characters for every four of them."""
    return f"{len(content)}:{base64.b85encode(content, pad=True).decode().translate(_TRANSLATION)}"
