"""Lessons in a link: the lesson's file, compressed and base64-encoded. This obfuscates the answer; it does not encrypt it."""

from __future__ import annotations

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

from attention.base.errors import FileError
from attention.lessons.lesson import Lesson
from attention.lessons.markdown import read_many

KEY = "ask"
MAX_CHARACTERS = 8_000
"""The longest value in a link, in characters."""

_LARGEST = 64 * 2**10  # bytes after decompression


def encode(file: str) -> str:
    """The file of one or several lessons, encoded for a link.

    Raises:
        FileError: the result is too long for a link.
    """
    text = urlsafe_b64encode(zlib.compress(file.encode(), 9)).decode().rstrip("=")
    if len(text) > MAX_CHARACTERS:
        raise FileError(
            f"A question has at most {MAX_CHARACTERS:,} characters in a link; this one has {len(text):,}: shorten its text, or save it as a file."
        )
    return text


def decode(text: str) -> dict[str, Lesson]:
    """The lessons in a link, by name.

    Raises:
        AttentionError: the text encodes no lesson.
    """
    try:
        if len(text) > MAX_CHARACTERS:
            raise ValueError(text)
        decompressor = zlib.decompressobj()
        file = decompressor.decompress(urlsafe_b64decode(text + "=" * (-len(text) % 4)), _LARGEST)
        if not decompressor.eof:
            raise ValueError(text)
    except (ValueError, binascii.Error, zlib.error):
        raise FileError(
            f"A link with {KEY}= contains a question encoded by “Ask about this” in Share; got {text[:24]!r}, which is invalid or "
            "cut off: ask for the link again."
        ) from None
    return read_many(file)
