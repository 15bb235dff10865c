"""How the source "file" is read: its knob, and the file that it names."""

from __future__ import annotations

from dataclasses import replace

from attention.errors import AwaitedError
from attention.io.arrays import EXTENSIONS, quote
from attention.params.knob import Knob
from attention.params.ranges import Text
from attention.sources.file import File
from attention.sources.kinds.source_kind import SourceKind
from attention.sources.layer_knobs import read_override
from attention.sources.reader import ParameterReader

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
