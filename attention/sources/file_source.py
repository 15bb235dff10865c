"""How the source "file" is read: its knob, and the file that it names."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from attention.base.errors import AttentionError, AwaitedError
from attention.base.knobs import Choice, Knob, Text
from attention.files import labelled
from attention.files.archives import quote
from attention.files.labelled import EXTENSIONS
from attention.files.plan import MAX_CHARACTERS
from attention.sources.file import File
from attention.sources.layer_knobs import read_override, read_sequence
from attention.sources.matrices import MASK_MEANS
from attention.sources.reader import Reader, SourceKind

NAME = "file"
AXES = Knob(
    "axes", "", Text(MAX_CHARACTERS), "Axes",
    "Only if they were read wrongly: the names of the axes in their order, such as head key query. A batch is left out by its name (layer batch head query key), "
    "and one of its sentences is taken with batch=1. Axes of query, key and value follow after a comma: batch pos head width.",
    (NAME,), section="More knobs", order=10, placeholder="layer head query key")  # fmt: skip
TABLE_MEANS = Knob(
    "table_means", labelled.MEANINGS[0], Choice(labelled.MEANINGS, ("what its numbers say", *labelled.MEANINGS[1:])), "The table means",
    "Of a text file (.csv, .tsv, .txt): a table without negative numbers, whose rows sum to 1, has weights; another one has scores, of which the softmax makes weights.",
    (NAME,), section="More knobs", order=50)  # fmt: skip
FILE = Knob("file", "", Text(300), help="The displayed file, as name:digest.", sources=(NAME,), inline=True)


def read(reader: Reader) -> File:
    """The uploaded file, with overrides of its formula.

    Raises:
        AwaitedError: the file has not been uploaded.
    """
    axes, mask_means, table_means = map(reader.knob, (AXES, MASK_MEANS, TABLE_MEANS))
    asked, file = reader.knob(FILE), reader.uploads.file
    if file is None or asked != link_name(file):
        name, _, digest = asked.rpartition(":")
        if not name:
            raise AwaitedError(
                f"A file with saved attention ({', '.join(EXTENSIONS)}): upload it, and every page shows it."
            )
        raise AwaitedError(
            f"The link shows the file {quote(name)} (digest {digest[:8]}…), which is not on this server: upload it to open the link."
        )
    file = replace(file, axes=axes, mask_means=mask_means, table_means=table_means)
    names: tuple[str, ...] = ()
    with suppress(AttentionError):  # the trace says what is wrong
        names = file.sequences
    return replace(file, sequence=read_sequence(reader, names), config=read_override(reader, KIND))


KIND = SourceKind(NAME, read, has_formula=True)


def link_name(file: File) -> str:
    """The name and the digest of a file, as in a link."""
    return f"{file.name}:{file.digest}"
