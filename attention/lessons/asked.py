"""A question in a link: the file of its lesson, packed, so that nobody reads the answer by looking; who unpacks it, can."""

from __future__ import annotations

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode

from attention.errors import FileError
from attention.lessons.files import several
from attention.lessons.lesson import Lesson

KEY = "ask"
LONGEST = 8_000
"""Characters of it in a link."""

_WHOLE = 64 * 2**10  # bytes of what is unpacked


def packed(file: str) -> str:
    """The file of a lesson, or of several, as it stands in a link.

    Raises:
        FileError: it is too long for one.
    """
    text = urlsafe_b64encode(zlib.compress(file.encode(), 9)).decode().rstrip("=")
    if len(text) > LONGEST:
        raise FileError(
            f"A question has at most {LONGEST:,} characters in a link; this one has {len(text):,}: shorten its text, or save it as a file."
        )
    return text


def unpacked(text: str) -> dict[str, Lesson]:
    """The lessons of a link, by name.

    Raises:
        AttentionError: it holds none.
    """
    try:
        if len(text) > LONGEST:
            raise ValueError(text)
        unpacking = zlib.decompressobj()
        file = unpacking.decompress(urlsafe_b64decode(text + "=" * (-len(text) % 4)), _WHOLE)
        if not unpacking.eof:
            raise ValueError(text)
    except (ValueError, binascii.Error, zlib.error):
        raise FileError(
            f"A link with {KEY}= holds a question as “Ask about this” in Share packs it; got {text[:24]!r}, which is none or not all of "
            "one: ask for the link again."
        ) from None
    return several(file)
