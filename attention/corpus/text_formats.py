"""The texts in a file of each format: lines, paragraphs, JSON lines, CSV, and the columns of Parquet and Arrow files."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attention.corpus.text_lines import MAX_TEXT_BYTES, ReadCounts, TextLines
from attention.errors import AttentionError, FileError

if TYPE_CHECKING:
    from collections.abc import Iterable

_DELIMITERS = ",;\t"
_BATCH_ROWS = 64  # of Parquet
_MAX_NAMED = 12  # columns in an error


def chosen_column(column: str, is_text: Mapping[str, bool], name: str) -> str:
    """The column of the texts: the one that users name, otherwise "text", otherwise the only one with texts.

    Args:
        column: the name that users give; may be empty.
        is_text: whether each column has texts.
        name: of the file.

    Raises:
        FileError: there is no such column, or it is not clear which.
    """
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


def paragraphs(lines: Iterable[str]) -> Iterator[str]:
    """The paragraphs of a text, which blank lines separate; a paragraph keeps its line breaks."""
    collected, size = list[str](), 0
    for line in chain(lines, [""]):
        if line.strip():
            collected.append(line)
            size += len(line)
            if size > MAX_TEXT_BYTES:
                raise FileError(
                    f"A paragraph has at most {MAX_TEXT_BYTES:,} characters; one has more: separate texts with blank lines."
                )
        elif collected:
            yield "\n".join(collected)
            collected, size = [], 0


def json_texts(lines: TextLines, column: str, counts: ReadCounts) -> Iterator[str]:
    """The texts of JSON lines: an object on each line, of which one field is the text.

    Raises:
        FileError: a line is no object, or its field is no text.
    """
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
        found = found or chosen_column("", fields, lines.name)
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
        chosen_column(column, fields, lines.name)


def csv_texts(lines: TextLines, column: str, counts: ReadCounts, delimiter: str = "") -> Iterator[str]:
    """The texts of a CSV file, whose first row names the columns.

    Args:
        lines: with their ends.
        column: the name that users give; may be empty.
        counts: receives the number of rows without a text.
        delimiter: of the fields; empty: whichever of comma, semicolon and tab the first line has most.

    Raises:
        FileError: it is no CSV file, or does not have the column.
    """
    csv.field_size_limit(max(csv.field_size_limit(), MAX_TEXT_BYTES))  # it has one limit for the process: 131,072
    source = iter(lines)
    first = next(source, "")
    rows = csv.reader(chain([first], source), delimiter=delimiter or max(_DELIMITERS, key=first.count), strict=True)
    header = [name.strip() for name in _next_row(rows, lines) or ()]
    if not any(header):
        return
    place = header.index(chosen_column(column, dict.fromkeys(header, True), lines.name))
    counts.add_column(header[place])
    while (row := _next_row(rows, lines)) is not None:
        if place < len(row):
            yield row[place]
        elif row:  # a blank line is no row
            counts.missing += 1


def _next_row(rows: Any, lines: TextLines) -> list[str] | None:
    try:
        return next(rows, None)
    except csv.Error as error:
        raise FileError(
            f"{lines.name} should be CSV with quotes around fields that have quotes or line breaks; up to line {lines.number:,} it is not "
            f"({error}): correct this line."
        ) from error


def parquet_texts(path: Path, name: str, column: str, counts: ReadCounts) -> Iterator[str]:
    """The texts of a column of a Parquet file, read in small batches.

    Raises:
        FileError: it is no Parquet file, or does not have the column.
    """
    import pyarrow.parquet as pq

    with _reading(name):
        with pq.ParquetFile(path) as file:
            found = chosen_column(column, _text_columns(file.schema_arrow), name)
        counts.add_column(found)
        # As a dictionary, a long text that a thousand rows repeat is in memory once.
        with pq.ParquetFile(path, read_dictionary=[found]) as file:
            for batch in file.iter_batches(_BATCH_ROWS, columns=[found]):
                yield from _column_texts(batch.column(found), name, counts)


def arrow_texts(path: Path, name: str, column: str, counts: ReadCounts) -> Iterator[str]:
    """The texts of a column of an Arrow file or stream, which is mapped into memory.

    Raises:
        FileError: it is no Arrow file, or does not have the column.
    """
    import pyarrow as pa

    with _reading(name), pa.memory_map(str(path)) as source:
        is_file = source.read(6) == b"ARROW1"
        source.seek(0)
        schema = (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source).schema
        found = chosen_column(column, _text_columns(schema), name)
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


def _column_texts(column: Any, name: str, counts: ReadCounts) -> Iterator[str]:
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
        if content.size > MAX_TEXT_BYTES:
            raise FileError(
                f"A text has at most {MAX_TEXT_BYTES:,} bytes; one of {name} has {content.size:,}: break it into several."
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
