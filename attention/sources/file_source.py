"""How the source "file" is read: its knob, and the file that it names."""

from __future__ import annotations

from dataclasses import replace

from attention.base.errors import AwaitedError
from attention.base.knobs import Knob, Text
from attention.files.archives import EXTENSIONS, quote
from attention.sources.file import File
from attention.sources.layer_knobs import read_override
from attention.sources.reader import ParameterReader, SourceKind

NAME = "file"
FILE = Knob("file", "", Text(300), help="The displayed file, as name:digest.", sources=(NAME,), inline=True)


def read(reader: ParameterReader) -> File:
    """The uploaded file, with overrides of its formula.

    Raises:
        AwaitedError: the file has not been uploaded.
    """
    return replace(reader.file(FILE), config=read_override(reader, NAME))


KIND = SourceKind(NAME, read)


def missing_file_error(file: str) -> AwaitedError:
    """The error for a `file` (name:digest, or empty) that has not been uploaded."""
    name, _, digest = file.rpartition(":")
    if not name:
        return AwaitedError(
            f"A file with saved attention ({', '.join(EXTENSIONS)}): upload it, and every page shows it."
        )
    return AwaitedError(
        f"The link shows the file {quote(name)} (digest {digest[:8]}…), which is not on this server: upload it to open the link."
    )
