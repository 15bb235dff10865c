"""A link as a source: the reader of links, and the function that reads any source through its declaration."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from attention.base.knobs import Choice, Knob, Limits, Range
from attention.files.matrix import Matrix, Stack
from attention.files.matrix_text import parse_matrix
from attention.files.picture import Picture
from attention.sources import Source
from attention.sources.file import File
from attention.sources.file_source import missing_file_error
from attention.sources.layer_knobs import SEQUENCE, single_sequence_notes
from attention.sources.matrices import MATRICES, UPLOADED, matrix_too_long_error, uploaded_sizes
from attention.sources.reader import Divisors, ParameterReader
from attention.sources.registry import SOURCE, source_kinds
from attention.sources.split_heads import SYMBOLS
from attention.vision.examples import PictureNames, example_of, missing_picture_error, names_in


def read_source(reader: ParameterReader) -> Source:
    """The source that the knobs describe. Only the knobs of that source are read.

    Raises:
        AttentionError: the knobs contradict each other, or a matrix cannot be read.
    """
    return source_kinds()[reader.knob(SOURCE)].read(reader)


class LinkReader:
    """Reads the knobs from a link or a state file; `notes` collects a sentence for each value that was replaced."""

    def __init__(self, texts: Mapping[str, str], limits: Limits) -> None:
        self.limits = limits
        self._texts = texts
        self.notes: list[str] = []

    def knob(self, knob: Knob, within: Range | None = None, fixed: str = "") -> Any:
        """The value in the link; the default where the link has none, or one outside the range."""
        within = within or page_range(knob, self.limits)
        default = within.nearest(knob.default)
        if knob.key not in self._texts:
            return default
        value, note = knob.read(self._texts[knob.key], within, default)
        if note:
            self.notes.append(note)
        return value

    def raw_value(self, knob: Knob) -> str:
        """The raw text in the link."""
        return self._texts.get(knob.key, "")

    def divisor(self, knob: Knob, within: Divisors, fixed: str) -> int | None:
        """A number of heads; a default that does not divide is replaced by the next smaller divisor."""
        if not self.raw_value(knob) and within.nearest(knob.default) != knob.default and not fixed:
            self.notes.append(within.adjusted_note(knob.default))
        divisor: int | None = self.knob(knob, within)
        return divisor

    def sequence(self, names: Sequence[str]) -> int:
        """The index of the sequence in the link."""
        if len(names) > 1:
            return int(self.knob(SEQUENCE, Choice(tuple(range(len(names))))))
        self.notes += single_sequence_notes(self._texts.get(SEQUENCE.key))
        return 0

    def matrices(self, names: Sequence[str]) -> dict[str, Matrix | Stack]:
        """The matrices in the link.

        Raises:
            AttentionError: a matrix cannot be read, or the link has only its size.
        """
        defaults = {knob.key: knob.default for knob in MATRICES}
        texts = {name: self._texts.get(name, defaults[name]) for name in names}
        missing = uploaded_sizes(self._texts.get(UPLOADED, ""))
        for name in (name for name in names if name in missing and name not in self._texts):
            raise matrix_too_long_error(name, missing[name])
        return {
            name: parse_matrix(texts[name], SYMBOLS[name]) for name in names if texts[name].strip() or defaults[name]
        }

    def file(self, knob: Knob) -> File:
        """Always raises: a link has the name and the digest of a file, never its content.

        Raises:
            AwaitedError: always.
        """
        raise missing_file_error(self.knob(knob))

    def pictures(self, knob: Knob, within: PictureNames) -> tuple[Picture, ...]:
        """The pictures of ours that the link names.

        Raises:
            AwaitedError: it names an uploaded one, of which a link has only the name and the digest.
        """
        names = names_in(self.knob(knob, within))
        found = {name: self.known_picture(name) for name in names}
        if missing := [name for name, picture in found.items() if picture is None]:
            raise missing_picture_error(missing)
        return tuple(picture for name in names if (picture := found[name]))

    def known_picture(self, name: str) -> Picture | None:
        """The picture of this name, if this reader has it."""
        return example_of(name)


def source_of(texts: Mapping[str, str], limits: Limits) -> tuple[Source, tuple[str, ...]]:
    """The source that a link describes, and a sentence for each value that was replaced.

    Args:
        texts: the values of a link or a state file, by key.
        limits: the operator's limits.

    Raises:
        AttentionError: the knobs contradict each other, or a matrix cannot be read.
    """
    link = LinkReader(texts, limits)
    return read_source(link), tuple(link.notes)


def page_range(knob: Knob, limits: Limits) -> Range:
    """The range of a knob under these limits."""
    return knob.on_pages(asdict(limits))
