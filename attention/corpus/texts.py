"""Texts in files of any usual format, plain or compressed, or from standard input: read one after the other, as often as needed, each of bounded length."""

from __future__ import annotations

import csv
import gzip
import io
import json
import stat
import tempfile
import weakref
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

from attention.base.errors import AttentionError, ConfigError, FileError
from attention.base.printed import plural

if TYPE_CHECKING:
    from collections.abc import Iterable

LINES, _JSON_LINES, _CSV, _TSV, _PARQUET, _ARROW = "txt", "jsonl", "csv", "tsv", "parquet", "arrow"
LINE_FORMATS = (LINES, _JSON_LINES, _CSV, _TSV)
"""The formats that consist of lines, also compressed with gzip, and from standard input."""
_FORMATS = (*LINE_FORMATS, _PARQUET, _ARROW)
_STANDARD_INPUT = "-"

_MAX_TEXT_BYTES = 10_000_000  # the longest text, or line of a file: more is no text but a damaged or hostile file
_MAX_BROKEN = 0.1  # of the lines of a file: more is another encoding
_UTF8_MARK, _UTF16_MARKS = b"\xef\xbb\xbf", (b"\xff\xfe", b"\xfe\xff")
_BLOCK = 2**16
_DELIMITERS = ",;\t"
_BATCH_ROWS = 64  # of Parquet
_MAX_NAMED = 12  # columns in an error
_DATASET_STATE, _DATASET_SPLITS, _DATASET_INFO = "state.json", "dataset_dict.json", "dataset_info.json"  # of `datasets`
_MAX_DESCRIPTION = 2**24  # bytes of these


class TextFiles:
    """The texts of some files: the same, in the same order, however often they are read. Only one is in memory at a time.

    A text is a line, a paragraph, or a field; it is not changed. Texts of white space alone are left out, rows without a text, and
    what is not Unicode; `counts` says how many.

    Attributes:
        counts: what was read, of the last time that the texts were read.
    """

    def __init__(
        self,
        paths: Sequence[str | Path],
        column: str = "",
        paragraphs: bool = False,
        max_texts: int = 0,
        stdin: BinaryIO | None = None,
        stdin_format: str = LINES,
    ) -> None:
        """Find the files.

        Args:
            paths: files, folders of files, datasets that `datasets` has saved, and "-" for standard input.
            column: of tables; empty: “text”, or the only column with texts.
            paragraphs: in .txt, a text is a paragraph and not a line.
            max_texts: read this number and no more; 0: all.

        Raises:
            FileError: one is missing, or its format is unknown.
            ConfigError: an option is out of its range.
        """
        if max_texts < 0:
            raise ConfigError(f"The number of texts is 0, for all, or more; got {max_texts}: choose one of these.")
        if stdin_format not in LINE_FORMATS:
            raise ConfigError(
                f"Standard input is {', '.join(LINE_FORMATS)}; got {stdin_format[:20]!r}: choose one of these."
            )
        self.column, self.max_texts, self.counts = column, max_texts, _ReadCounts()
        self._paragraphs, self._stdin_format = paragraphs, stdin_format
        if list(map(str, paths)).count(_STANDARD_INPUT) > 1:
            raise FileError("Standard input (-) can be read once; it is there twice: name it once.")
        self.files = tuple(file for path in paths for file in self._files_of(path, stdin))

    def __iter__(self) -> Iterator[str]:
        """The texts.

        Raises:
            FileError: a file is damaged, or does not have the column.
        """
        counts = self.counts = _ReadCounts()
        for file in self.files:
            counts.files += 1
            for text in self._texts(file, counts):
                if not text.strip():
                    counts.empty += 1
                elif not _is_unicode(text):
                    counts.broken += 1
                else:
                    counts.texts += 1
                    yield text
                    if counts.texts == self.max_texts:
                        return

    def words(self) -> str:
        """What was read, in words."""
        counts = self.counts
        columns = ", ".join(f"“{name}”" for name in counts.columns)
        texts = f"{counts.texts:,} text{'' if counts.texts == 1 else 's'} from {plural(counts.files, 'file')}"
        left_out = [
            f"{count:,} {what}"
            for count, what in (
                (counts.empty, "of white space alone"),
                (counts.missing, f"without a text in {columns or 'the column'}"),
                (counts.broken, "not in UTF-8"),
            )
            if count
        ]
        column = f", column {columns}" if columns else ""
        return texts + column + (f"; left out: {', '.join(left_out)}" if left_out else "")

    def _texts(self, file: _TextFile, counts: _ReadCounts) -> Iterator[str]:
        if file.format == _PARQUET:
            yield from _parquet_texts(file.path, file.name, self.column, counts)
            return
        if file.format == _ARROW:
            yield from _arrow_texts(file.path, file.name, self.column, counts)
            return
        with ExitStack() as opened:
            try:
                stream: Any = opened.enter_context(file.spool.open() if file.spool else file.path.open("rb"))
            except OSError as error:
                raise FileError(
                    f"{file.name} cannot be read ({error.strerror}): check its name and permissions."
                ) from error
            if file.is_compressed:
                stream = opened.enter_context(gzip.GzipFile(fileobj=stream, mode="rb"))
            lines = _TextLines(stream, file.name, counts, is_strict=file.format in (_CSV, _TSV))
            if file.format == _JSON_LINES:
                yield from _json_texts(lines, self.column, counts)
            elif file.format in (_CSV, _TSV):
                yield from _csv_texts(lines, self.column, counts, "\t" if file.format == _TSV else "")
            else:
                yield from _split_paragraphs(lines) if self._paragraphs else lines

    def _files_of(self, path: str | Path, stdin: BinaryIO | None) -> Iterator[_TextFile]:
        if str(path) == _STANDARD_INPUT:
            if stdin is None:
                raise FileError("There is no standard input (-) here: name a file.")
            yield _TextFile("standard input", self._stdin_format, Path(), spool=_SpooledInput(stdin))
            return
        path = Path(path)
        try:
            mode = path.stat().st_mode
            if stat.S_ISDIR(mode):
                yield from _folder(path)
            elif stat.S_ISREG(mode):
                yield _text_file(path)
            else:  # a pipe, such as <(zcat texts.gz), which can be read once
                yield _TextFile(str(path), self._stdin_format, path, spool=_SpooledInput(path.open("rb"), closes=True))
        except (OSError, ValueError) as error:  # FileError is a ValueError
            if isinstance(error, FileError):
                raise
            raise FileError(
                f"{str(path)[:200]} should be a file or a folder of texts; it cannot be read ({getattr(error, 'strerror', None) or error}): check its name."
            ) from error


class _TextFile(NamedTuple):
    """One file of texts: its name in errors, one of `_FORMATS`, and a spool that has the content where it can be read only once."""

    name: str
    format: str
    path: Path
    is_compressed: bool = False
    spool: _SpooledInput | None = None


@dataclass
class _ReadCounts:
    """What was read of some files; `empty`, `missing` and `broken` (no Unicode) were left out.

    Attributes:
        missing: rows without a text in the column.
        columns: those that the texts are from.
    """

    files: int = 0
    texts: int = 0
    empty: int = 0
    missing: int = 0
    broken: int = 0
    columns: tuple[str, ...] = ()

    def add_column(self, name: str) -> None:
        if name not in self.columns:
            self.columns = (*self.columns, name)


def _is_unicode(text: str) -> bool:
    """Whether it has no half of a surrogate pair, as JSON may have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _format_of(path: Path) -> tuple[str, bool] | None:
    """The format of a file by its ending, and whether it is compressed; None if it is not known."""
    endings = [suffix[1:].lower() for suffix in path.suffixes[-2:]]
    is_compressed = endings[-1:] == ["gz"]
    ending = "".join(endings[:-1][-1:] if is_compressed else endings[-1:])
    return (ending, is_compressed) if ending in (LINE_FORMATS if is_compressed else _FORMATS) else None


def _text_file(path: Path) -> _TextFile:
    known = _format_of(path)
    if known is None:
        raise FileError(
            f"A file of texts ends in {_endings()}; {str(path)[:200]} does not: rename it, or convert it to one of these."
        )
    return _TextFile(str(path), known[0], path, known[1])


def _folder(folder: Path) -> Iterator[_TextFile]:
    """The files of a folder, by name; or those of a dataset that it is."""
    if (folder / _DATASET_STATE).is_file():
        yield from _saved_dataset(folder)
        return
    if (folder / _DATASET_SPLITS).is_file():
        splits = [name for name in _description(folder / _DATASET_SPLITS, "splits") if isinstance(name, str)]
        if len(splits) != 1:
            raise FileError(
                f"{folder} has the splits {', '.join(splits)[:200] or 'of no name'}: name one, such as {folder / Path(*splits[:1]).name}."
            )
        yield from _saved_dataset(folder / Path(splits[0]).name)
        return
    files = [path for path in sorted(folder.iterdir()) if _format_of(path) and path.is_file()]
    files = [path for path in files if not path.name.startswith((".", "cache-"))]  # `datasets` leaves cache-….arrow
    if not files:
        folders = ", ".join(path.name for path in sorted(folder.iterdir()) if path.is_dir())[:200]
        raise FileError(
            f"A folder of texts has files that end in {_endings()}; {folder} has none: name {f'one of its folders ({folders})' if folders else 'another'}."
        )
    if any(path.suffix == ".arrow" for path in files) and (folder / _DATASET_INFO).is_file():
        splits = list(_description(folder / _DATASET_INFO, "splits"))
        if len(splits) > 1:
            raise FileError(
                f"{folder} has the splits {', '.join(map(str, splits))[:200]}: name the files of one, such as {folder}/*-{splits[0]}*.arrow."
            )
    yield from map(_text_file, files)


def _saved_dataset(folder: Path) -> Iterator[_TextFile]:
    """The files of a dataset that `Dataset.save_to_disk` wrote, in its order."""
    if _description(folder / _DATASET_STATE, "_indices_data_files"):
        raise FileError(f"{folder} is a selection of another dataset: save it again with a newer version of datasets.")
    for entry in _description(folder / _DATASET_STATE, "_data_files"):
        filename = str(entry.get("filename")) if isinstance(entry, dict) else ""
        path = folder / (Path(filename).name or "unnamed")  # and not elsewhere
        if not path.is_file():
            raise FileError(f"{folder} should have the file {path.name}; there is none: copy the whole folder again.")
        yield _TextFile(str(path), _ARROW, path)


def _description(path: Path, key: str) -> Any:
    """A list or dict in a JSON file of a dataset; empty if it has none."""
    try:
        with path.open("rb") as file:
            value = json.loads(file.read(_MAX_DESCRIPTION)).get(key) or []
        if not isinstance(value, list | dict):
            raise TypeError
    except (OSError, ValueError, AttributeError, TypeError, RecursionError) as error:
        raise FileError(
            f"{path} should describe a dataset as JSON; it does not: copy the whole folder again."
        ) from error
    return value


def _endings() -> str:
    return f"{', '.join(f'.{ending}' for ending in _FORMATS)}, or .gz after one of the first {len(LINE_FORMATS)}"


class _TextLines:
    """The lines of a file as text, without their ends; `number` is that of the last one.

    Where a line is no text of its own, `is_strict` keeps the ends and refuses lines that are not UTF-8.
    """

    def __init__(self, stream: BinaryIO, name: str, counts: _ReadCounts, is_strict: bool = False) -> None:
        self.name, self.number = name, 0
        self._stream, self._counts, self._is_strict = stream, counts, is_strict

    def __iter__(self) -> Iterator[str]:
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
            line = self._stream.readline(_MAX_TEXT_BYTES + 1)
        except (OSError, EOFError, zlib.error) as error:  # BadGzipFile is an OSError
            raise FileError(
                f"{self.name} cannot be read after line {self.number:,} (“{error}”): check that the file is complete."
            ) from error
        self.number += bool(line)
        if len(line) > _MAX_TEXT_BYTES:
            raise FileError(
                f"A line has at most {_MAX_TEXT_BYTES:,} bytes; line {self.number:,} of {self.name} has more: break it into several texts."
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


class _SpooledInput:
    """A stream that can be read once, such as standard input, copied into a temporary file as it is read."""

    def __init__(self, stream: BinaryIO, closes: bool = False) -> None:
        self.stream, self.n_copied = stream, 0
        self.copy = tempfile.TemporaryFile()  # noqa: SIM115  # it lives as long as this object
        weakref.finalize(self, self.copy.close)
        if closes:
            weakref.finalize(self, stream.close)

    def open(self) -> BinaryIO:
        """The content from its start; what was not read before comes from the stream."""
        return io.BufferedReader(_SpoolReader(self), _BLOCK)


class _SpoolReader(io.RawIOBase):
    def __init__(self, spool: _SpooledInput) -> None:
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


def _chosen_column(column: str, is_text: Mapping[str, bool], name: str) -> str:
    """The column of the texts: the one that users name, otherwise "text", otherwise the only one with texts."""
    with_texts = [each for each, has_texts in is_text.items() if has_texts]
    listed = ", ".join(map(_short, is_text)) if len(is_text) <= _MAX_NAMED else f"{len(is_text)} others"
    if column:
        if column not in is_text:
            raise FileError(
                f"{name} should have a column {_short(column)!r}; it has {listed or 'none'}: choose one with --column."
            )
        if not is_text[column]:
            raise FileError(
                f"A column of texts holds strings; {_short(column)!r} of {name} holds something else: choose another with --column."
            )
        return column
    if "text" in with_texts:
        return "text"
    if len(with_texts) != 1:
        raise FileError(
            f"{name} should have a column “text”, or one column of texts alone; its columns are {listed or 'none'}: name one with --column."
        )
    return with_texts[0]


def _split_paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """The paragraphs of a text, which blank lines separate; a paragraph keeps its line breaks."""
    collected, size = list[str](), 0
    for line in chain(lines, [""]):
        if line.strip():
            collected.append(line)
            size += len(line)
            if size > _MAX_TEXT_BYTES:
                raise FileError(
                    f"A paragraph has at most {_MAX_TEXT_BYTES:,} characters; one has more: separate texts with blank lines."
                )
        elif collected:
            yield "\n".join(collected)
            collected, size = [], 0


def _json_texts(lines: _TextLines, column: str, counts: _ReadCounts) -> Iterator[str]:
    """The texts of JSON lines: an object on each line, of which one field is the text."""
    found, fields, has_text = column, dict[str, bool](), False
    for line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", "") or "too deep, or too large a number"
            raise FileError(
                f"Line {lines.number:,} of {lines.name} should be JSON; it is not ({reason}): correct this line, or remove it."
            ) from error
        if not isinstance(row, dict):
            raise FileError(
                f'Line {lines.number:,} of {lines.name} should be an object such as {{"text": "…"}}; it is another kind of JSON: write an object a line.'
            )
        fields = fields or {name: value is None or isinstance(value, str) for name, value in row.items()}
        found = found or _chosen_column("", fields, lines.name)
        text = row.get(found)
        if text is None:
            counts.missing += 1
        elif isinstance(text, str):
            counts.add_column(found)
            has_text = True
            yield text
        else:
            raise FileError(
                f"A text is a string; {_short(found)!r} in line {lines.number:,} of {lines.name} is something else: choose another with --column."
            )
    if fields and not has_text and found not in fields:
        _chosen_column(column, fields, lines.name)


def _csv_texts(lines: _TextLines, column: str, counts: _ReadCounts, delimiter: str = "") -> Iterator[str]:
    """The texts of a CSV file, whose first row names the columns."""
    csv.field_size_limit(max(csv.field_size_limit(), _MAX_TEXT_BYTES))  # it has one limit for the process: 131,072
    source = iter(lines)
    first = next(source, "")
    rows = csv.reader(chain([first], source), delimiter=delimiter or max(_DELIMITERS, key=first.count), strict=True)
    header = [name.strip() for name in _next_row(rows, lines) or ()]
    if not any(header):
        return
    place = header.index(_chosen_column(column, dict.fromkeys(header, True), lines.name))
    counts.add_column(header[place])
    while (row := _next_row(rows, lines)) is not None:
        if place < len(row):
            yield row[place]
        elif row:  # a blank line is no row
            counts.missing += 1


def _next_row(rows: Any, lines: _TextLines) -> list[str] | None:
    try:
        return next(rows, None)
    except csv.Error as error:
        raise FileError(
            f"{lines.name} should be CSV with quotes around fields that have quotes or line breaks; up to line {lines.number:,} it is not "
            f"({error}): correct this line."
        ) from error


def _parquet_texts(path: Path, name: str, column: str, counts: _ReadCounts) -> Iterator[str]:
    """The texts of a column of a Parquet file, read in small batches."""
    import pyarrow.parquet as pq

    with _reading(name):
        with pq.ParquetFile(path) as file:
            found = _chosen_column(column, _text_columns(file.schema_arrow), name)
        counts.add_column(found)
        # As a dictionary, a long text that a thousand rows repeat is in memory once.
        with pq.ParquetFile(path, read_dictionary=[found]) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=[found]):
                yield from _column_texts(batch.column(found), name, counts)


def _arrow_texts(path: Path, name: str, column: str, counts: _ReadCounts) -> Iterator[str]:
    """The texts of a column of an Arrow file or stream, which is mapped into memory."""
    import pyarrow as pa

    with _reading(name), pa.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        schema = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).schema
        found = _chosen_column(column, _text_columns(schema), name)
        counts.add_column(found)
        source.seek(0)
        options = pa.ipc.IpcReadOptions(included_fields=[schema.get_field_index(found)])
        if is_file:
            file = pa.ipc.open_file(source, options=options)
            batches = (file.get_batch(index) for index in range(file.num_record_batches))
        else:
            batches = iter(pa.ipc.open_stream(source, options=options))
        for batch in batches:
            yield from _column_texts(batch.column(0), name, counts)


def _text_columns(schema: Any) -> dict[str, bool]:
    """Whether each column has texts."""
    return {field.name: _binary_type(field.type) is not None for field in schema}


def _binary_type(kind: Any) -> Any:
    """The type of the bytes of a type of texts; None for another type."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    pairs = ((pa.string(), pa.binary()), (pa.large_string(), pa.large_binary()), (pa.string_view(), pa.binary_view()))
    return next((binary for text, binary in pairs if kind == text), None)


def _column_texts(column: Any, name: str, counts: _ReadCounts) -> Iterator[str]:
    """The texts of a column; as bytes first, so that one that is not UTF-8 is no error of the file."""
    import pyarrow as pa

    binary = _binary_type(column.type)
    if pa.types.is_dictionary(column.type):
        column = pa.DictionaryArray.from_arrays(column.indices, column.dictionary.cast(binary), safe=False)
    else:
        column = column.cast(binary)
    column.validate(full=True)  # offsets of a hostile file may be anywhere
    for scalar in column:
        value = scalar.value if pa.types.is_dictionary(column.type) and scalar.is_valid else scalar
        if not value.is_valid:
            counts.missing += 1
            continue
        content = value.as_buffer()
        if content.size > _MAX_TEXT_BYTES:
            raise FileError(
                f"A text has at most {_MAX_TEXT_BYTES:,} bytes; one of {name} has {content.size:,}: break it into several."
            )
        try:
            yield str(content, "utf-8")
        except UnicodeDecodeError:
            counts.broken += 1


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """A context in which errors of pyarrow are a sentence."""
    import pyarrow as pa

    try:
        yield
    except AttentionError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:150]
        raise FileError(f"{name} cannot be read (“{reason}”): check that the file is complete.") from error


def _short(name: str) -> str:
    return name if len(name) <= 60 else f"{name[:59]}…"
