"""Uploaded files as the text that `parse_text` reads."""

from __future__ import annotations

from pathlib import PurePath

from attention.errors import MatrixError
from attention.io.text.matrix import excerpt, too_large_error
from attention.io.text.matrix_text import MAX_CHARACTERS
from attention.io.text.npy import format_npy

EXTENSIONS = (".csv", ".tsv", ".txt", ".npy")


def file_text(data: bytes, file_name: str, name: str = "matrix") -> str:
    """The content of a .csv, .tsv, .txt or .npy file as text; a .npy file with all digits.

    Raises:
        MatrixError: another extension, too many bytes, or a damaged .npy file.
    """
    ending = PurePath(file_name).suffix.lower()
    if ending not in EXTENSIONS:
        raise MatrixError(
            f"{name} needs a file that ends in .csv, .tsv, .txt or .npy; got {excerpt(file_name)}: save it as one of these."
        )
    if len(data) > MAX_CHARACTERS:
        raise too_large_error(name, f"a file of {len(data):,} bytes")
    if ending == ".npy":
        return format_npy(data, name)
    is_utf16 = data.startswith((b"\xff\xfe", b"\xfe\xff"))  # UTF-16, the “Unicode text” of Excel
    text = data.decode("utf-16" if is_utf16 else "utf-8", errors="replace")
    if ending != ".txt" and "[" not in text and "\n" not in text.strip():
        return text.replace(";", "\t")  # in a single row, `;` separates numbers
    return text
