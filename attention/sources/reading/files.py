"""An uploaded file as the text that `look` reads."""

from __future__ import annotations

from pathlib import PurePath

from attention.errors import MatrixError
from attention.sources.reading.matrix import shown, too_large
from attention.sources.reading.npy import npy_text
from attention.sources.reading.text import MAX_CHARACTERS

ENDINGS = (".csv", ".tsv", ".txt", ".npy")


def file_text(data: bytes, file_name: str, name: str = "matrix") -> str:
    """What a .csv, .tsv, .txt or .npy file holds, as a text; of a .npy file every digit.

    Raises:
        MatrixError: another ending, too many bytes, or a damaged .npy file.
    """
    ending = PurePath(file_name).suffix.lower()
    if ending not in ENDINGS:
        raise MatrixError(
            f"{name} is read from a file that ends in .csv, .tsv, .txt or .npy; got {shown(file_name)}: save it as one of these."
        )
    if len(data) > MAX_CHARACTERS:
        raise too_large(name, f"a file of {len(data):,} bytes")
    if ending == ".npy":
        return npy_text(data, name)
    wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # what Excel calls Unicode text
    text = data.decode("utf-16" if wide else "utf-8", errors="replace")
    if ending != ".txt" and "[" not in text and "\n" not in text.strip():
        return text.replace(";", "\t")  # in a table of one row, `;` separates numbers
    return text
