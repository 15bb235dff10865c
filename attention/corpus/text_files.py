"""Texts in files of any usual format, read one after the other, as often as needed."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from attention.corpus import text_formats
from attention.corpus.text_lines import ReadCounts, SpooledInput, TextLines, uncompressed
from attention.errors import ConfigError, FileError
from attention.printed import plural

LINES, JSON_LINES, CSV, TSV, PARQUET, ARROW = "txt", "jsonl", "csv", "tsv", "parquet", "arrow"
LINE_FORMATS = (LINES, JSON_LINES, CSV, TSV)
"""The formats that consist of lines, also compressed with gzip, and from standard input."""
FORMATS = (*LINE_FORMATS, PARQUET, ARROW)
STANDARD_INPUT = "-"

_DATASET_STATE, _DATASET_SPLITS, _DATASET_INFO = "state.json", "dataset_dict.json", "dataset_info.json"  # of `datasets`
_MAX_DESCRIPTION = 2**24  # bytes of these


@dataclass(frozen=True)
class TextFile:
    """One file of texts.

    Attributes:
        name: in errors.
        format: one of `FORMATS`.
        path: of the file.
        is_compressed: with gzip.
        spool: has the content, where it can be read once only.
    """

    name: str
    format: str
    path: Path
    is_compressed: bool = False
    spool: SpooledInput | None = None


class TextFiles:
    """The texts of some files: the same, in the same order, however often they are read. Only one is in memory at a time.

    A text is a line, a paragraph, or a field; it is not changed. Texts of white space alone are left out, rows without a text, and
    what is not Unicode; `counts` says how many.

    Attributes:
        files: the files, in order.
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
            stdin: the standard input.
            stdin_format: its format.

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
        self.column, self.max_texts, self.counts = column, max_texts, ReadCounts()
        self._paragraphs, self._stdin_format = paragraphs, stdin_format
        if list(map(str, paths)).count(STANDARD_INPUT) > 1:
            raise FileError("Standard input (-) can be read once; it is there twice: name it once.")
        self.files = tuple(file for path in paths for file in self._files_of(path, stdin))

    def __iter__(self) -> Iterator[str]:
        """The texts.

        Raises:
            FileError: a file is damaged, or does not have the column.
        """
        counts = self.counts = ReadCounts()
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

    def _texts(self, file: TextFile, counts: ReadCounts) -> Iterator[str]:
        if file.format == PARQUET:
            yield from text_formats.parquet_texts(file.path, file.name, self.column, counts)
        elif file.format == ARROW:
            yield from text_formats.arrow_texts(file.path, file.name, self.column, counts)
        else:
            with ExitStack() as opened:
                stream = opened.enter_context(file.spool.open() if file.spool else _opened(file))
                if file.is_compressed:
                    stream = opened.enter_context(uncompressed(stream))
                yield from self._line_texts(file, stream, counts)

    def _line_texts(self, file: TextFile, stream: BinaryIO, counts: ReadCounts) -> Iterator[str]:
        lines = TextLines(stream, file.name, counts, is_strict=file.format in (CSV, TSV))
        match file.format:
            case "jsonl":
                yield from text_formats.json_texts(lines, self.column, counts)
            case "csv":
                yield from text_formats.csv_texts(lines, self.column, counts)
            case "tsv":
                yield from text_formats.csv_texts(lines, self.column, counts, "\t")
            case _:
                yield from text_formats.paragraphs(lines) if self._paragraphs else lines

    def _files_of(self, path: str | Path, stdin: BinaryIO | None) -> Iterator[TextFile]:
        """The files behind a path that users name."""
        if str(path) == STANDARD_INPUT:
            if stdin is None:
                raise FileError("There is no standard input (-) here: name a file.")
            yield TextFile("standard input", self._stdin_format, Path(), spool=SpooledInput(stdin))
            return
        path = Path(path)
        try:
            mode = path.stat().st_mode
            if stat.S_ISDIR(mode):
                yield from _folder(path)
            elif stat.S_ISREG(mode):
                yield _text_file(path)
            else:  # a pipe, such as <(zcat texts.gz), which can be read once
                yield TextFile(str(path), self._stdin_format, path, spool=SpooledInput(path.open("rb"), closes=True))
        except (OSError, ValueError) as error:  # FileError is a ValueError
            if isinstance(error, FileError):
                raise
            raise FileError(
                f"{str(path)[:200]} should be a file or a folder of texts; it cannot be read ({getattr(error, 'strerror', None) or error}): check its name."
            ) from error


def _is_unicode(text: str) -> bool:
    """Whether it has no half of a surrogate pair, as JSON may have."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _opened(file: TextFile) -> BinaryIO:
    try:
        return file.path.open("rb")
    except OSError as error:
        raise FileError(f"{file.name} cannot be read ({error.strerror}): check its name and permissions.") from error


def _format_of(path: Path) -> tuple[str, bool] | None:
    """The format of a file by its ending, and whether it is compressed; None if it is not known."""
    endings = [suffix[1:].lower() for suffix in path.suffixes[-2:]]
    is_compressed = endings[-1:] == ["gz"]
    ending = "".join(endings[:-1][-1:] if is_compressed else endings[-1:])
    return (ending, is_compressed) if ending in (LINE_FORMATS if is_compressed else FORMATS) else None


def _text_file(path: Path) -> TextFile:
    known = _format_of(path)
    if known is None:
        raise FileError(
            f"A file of texts ends in {_endings()}; {str(path)[:200]} does not: rename it, or convert it to one of these."
        )
    return TextFile(str(path), known[0], path, known[1])


def _folder(folder: Path) -> Iterator[TextFile]:
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


def _saved_dataset(folder: Path) -> Iterator[TextFile]:
    """The files of a dataset that `Dataset.save_to_disk` wrote, in its order."""
    if _description(folder / _DATASET_STATE, "_indices_data_files"):
        raise FileError(f"{folder} is a selection of another dataset: save it again with a newer version of datasets.")
    for entry in _description(folder / _DATASET_STATE, "_data_files"):
        filename = str(entry.get("filename")) if isinstance(entry, dict) else ""
        path = folder / (Path(filename).name or "unnamed")  # and not elsewhere
        if not path.is_file():
            raise FileError(f"{folder} should have the file {path.name}; there is none: copy the whole folder again.")
        yield TextFile(str(path), ARROW, path)


def _description(path: Path, key: str) -> Any:
    """A list or dict in a JSON file of a dataset; empty if it has none.

    Raises:
        FileError: it is no such file.
    """
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
    return f"{', '.join(f'.{ending}' for ending in FORMATS)}, or .gz after one of the first {len(LINE_FORMATS)}"
