"""The lines of a file of texts, each of bounded length, plain or compressed; and standard input, which can be read again."""

from __future__ import annotations

import gzip
import io
import tempfile
import weakref
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from attention.errors import FileError

MAX_TEXT_BYTES = 10_000_000
"""The longest text, or line of a file: more is no text but a damaged or hostile file."""

_MAX_BROKEN = 0.1  # of the lines of a file: more is another encoding
_UTF8_MARK, _UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_BLOCK = 2**16


@dataclass
class ReadCounts:
    """What was read of some files.

    Attributes:
        files: the number of files.
        texts: the texts.
        empty: texts of white space alone, which are left out.
        missing: rows without a text in the column, which are left out.
        broken: lines and texts that are not Unicode, which are left out.
        columns: the columns that the texts are from.
    """

    files: int = 0
    texts: int = 0
    empty: int = 0
    missing: int = 0
    broken: int = 0
    columns: tuple[str, ...] = ()

    def add_column(self, name: str) -> None:
        """Note a column that texts are from."""
        if name not in self.columns:
            self.columns = (*self.columns, name)


class TextLines:
    """The lines of a file as text, without their ends unless `is_strict`.

    Attributes:
        number: of the line that was read last, from 1.
    """

    def __init__(self, stream: BinaryIO, name: str, counts: ReadCounts, is_strict: bool = False) -> None:
        """Read a stream.

        Args:
            stream: of bytes.
            name: of the file, for errors.
            counts: receives the number of lines that are not UTF-8, which are left out.
            is_strict: refuse lines that are not UTF-8, where a line is no text of its own.
        """
        self.name, self.number = name, 0
        self._stream, self._counts, self._is_strict = stream, counts, is_strict

    def __iter__(self) -> Iterator[str]:
        """The lines.

        Raises:
            FileError: the file is damaged, has another encoding, or too long a line.
        """
        n_broken = 0
        while line := self._next_line():
            try:
                text = line.decode("utf-8")
            except UnicodeDecodeError:
                n_broken += 1
                self._counts.broken += 1
                if self._is_strict:
                    raise self._encoding_error(f"line {self.number:,} is not") from None
                continue
            yield text if self._is_strict else text.rstrip("\r\n")
        if n_broken > _MAX_BROKEN * self.number:
            raise self._encoding_error(f"{n_broken:,} of its {self.number:,} lines are not")

    def _next_line(self) -> bytes:
        try:
            line = self._stream.readline(MAX_TEXT_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
            raise FileError(
                f"{self.name} cannot be read after line {self.number:,} (“{error}”): check that the file is complete."
            ) from error
        self.number += bool(line)
        if len(line) > MAX_TEXT_BYTES:
            raise FileError(
                f"A line has at most {MAX_TEXT_BYTES:,} bytes; line {self.number:,} of {self.name} has more: break it into several texts."
            )
        if self.number == 1:
            if line.startswith(_UTF16_MARKS):
                raise self._encoding_error("it is UTF-16, not")
            line = line.removeprefix(_UTF8_MARK)
        return line

    def _encoding_error(self, what: str) -> FileError:
        return FileError(
            f"{self.name} should be a text in UTF-8; {what}: convert it, for example with iconv -f latin1 -t utf-8."
        )


def uncompressed(stream: BinaryIO) -> BinaryIO:
    """The content of a stream that gzip has compressed, decompressed as it is read."""
    return gzip.GzipFile(fileobj=stream, mode="rb")  # type: ignore[return-value]  # it has what a BinaryIO has


class SpooledInput:
    """A stream that can be read once, such as standard input, copied into a temporary file as it is read."""

    def __init__(self, stream: BinaryIO, closes: bool = False) -> None:
        """Read a stream.

        Args:
            stream: of bytes.
            closes: whether it is closed with this object.
        """
        self.stream, self.n_copied = stream, 0
        self.copy = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as this object
        weakref.finalize(self, self.copy.close)
        if closes:
            weakref.finalize(self, stream.close)

    def open(self) -> BinaryIO:
        """The content from its start; what was not read before comes from the stream."""
        return io.BufferedReader(_SpoolReader(self), _BLOCK)


class _SpoolReader(io.RawIOBase):
    def __init__(self, spool: SpooledInput) -> None:
        self._spool, self._position = spool, 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object) -> int:
        spool, view = self._spool, memoryview(buffer)  # type: ignore[arg-type]  # a writable buffer
        if self._position == spool.n_copied:
            block = spool.stream.read1(_BLOCK) if hasattr(spool.stream, "read1") else spool.stream.read(_BLOCK)
            spool.copy.seek(spool.n_copied)
            spool.copy.write(block)
            spool.n_copied += len(block)
        spool.copy.seek(self._position)
        block = spool.copy.read(min(len(view), spool.n_copied - self._position))
        view[: len(block)] = block
        self._position += len(block)
        return len(block)
