"""A link as a source."""

from __future__ import annotations

from collections.abc import Mapping

from attention.base.knobs import Limits
from attention.sources import Source
from attention.sources.reader import Reader
from attention.sources.registry import SOURCE, source_kinds


def read_source(reader: Reader) -> Source:
    """The source that the knobs describe. Only the knobs of that source are read.

    Raises:
        AttentionError: the knobs contradict each other, a matrix cannot be read, or an upload is missing.
    """
    return source_kinds()[reader.knob(SOURCE)].read(reader)


def source_of(texts: Mapping[str, str], limits: Limits) -> tuple[Source, tuple[str, ...]]:
    """The source that a link describes, and a sentence for each value that was replaced.

    Args:
        texts: the values of a link or a state file, by key.
        limits: the operator's limits.

    Raises:
        AttentionError: the knobs contradict each other, or a matrix cannot be read.
    """
    reader = Reader(texts, limits)
    return read_source(reader), tuple(reader.notes.values())
