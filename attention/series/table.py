"""A table of numbers over time: a CSV file as people and programs write them, a DataFrame or an array, checked before it is read.

Each row is a step and each column a series of its own. A first column of dates, or of numbers that count evenly, is the time axis.
pandas reads the numbers, here as in a copied program: a million cells in a twentieth of a second. Its options are found first from the texts that
it reads as no numbers, of which each is looked at once.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from hashlib import blake2b
from io import StringIO
from itertools import pairwise
from os import PathLike
from pathlib import Path
from statistics import median
from sys import getsizeof
from typing import TYPE_CHECKING, Any

from attention.base.errors import FileError
from attention.files.archives import quote, read_at_most
from attention.files.cells import decode
from attention.files.reading_cost import ReadingCost, of_text

if TYPE_CHECKING:
    import pandas as pd
    from numpy import float64
    from numpy.typing import NDArray

MAX_BYTES = 2**24  # the largest file
_MAX_STEPS, MAX_COLUMNS, _MAX_NUMBERS = 2**18, 256, 2**21
_LONGEST_LINE = 2**14  # characters
_LONGEST_NAME = 24  # characters of the name of a column
_LARGEST = 1e30  # 1e999 is infinite, and no model of single precision reads 1e99
_SAMPLE = 64  # lines that decide what separates cells
_SEPARATORS = ";\t,|"  # a line of numbers with decimal commas has many of the third
_MISSING = frozenset(("", "na", "n/a", "#n/a", "nan", "null", "none", "-", "."))
_SEPARATOR_LINE = re.compile(r"sep=(.)", re.IGNORECASE)  # the first line that Excel writes, if it is asked to
_THOUSANDS = " '"  # of Swiss and French tables, which pandas reads if it is told
_SIGNS = {"−": "-", "\xa0": "", "\u202f": ""}
"""A minus, and blanks between thousands, that pandas does not read as such: they are replaced before it reads."""
_PLAIN = str.maketrans(_SIGNS | dict.fromkeys(_THOUSANDS, ""))
_NUMBER = r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?"
_IN_THOUSANDS = re.compile(r"[+-]?\d{1,3}(,\d{3})+")
_DATES = ("%Y", "%Y-%m", "%Y/%m/%d", "%d.%m.%Y", "%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%b %Y", "%B %Y")
_TIMES = ("", " %H:%M", " %H:%M:%S")


@dataclass(frozen=True)
class Series:
    """Columns of numbers over time, compared by their digest.

    Attributes:
        digest: of the file, BLAKE2b in hexadecimal.
        content: the file; of an array or a DataFrame, what one of them would be.
        kind: "CSV"; empty: it was given in memory.
        notes: how the file was read, a sentence each.
        name: of the file; empty if it is not known.
        columns: the name of each column.
        values: the numbers, [step column]; NaN where one is missing.
        times: of each step, as the file writes it; empty without a time axis.
        pandas_options: what pandas.read_csv needs to read the same.
        replaced: pairs of a character and what stands for it before pandas reads.
    """

    digest: str
    content: bytes = field(compare=False, repr=False)
    kind: str = field(compare=False)
    notes: tuple[str, ...] = field(compare=False)
    name: str = field(compare=False)
    columns: tuple[str, ...] = field(compare=False)
    values: NDArray[float64] = field(compare=False, repr=False)
    times: tuple[str, ...] = field(compare=False, repr=False)
    pandas_options: dict[str, Any] = field(compare=False, repr=False)
    replaced: tuple[tuple[str, str], ...] = field(default=(), compare=False, repr=False)

    @classmethod
    def open(cls, value: Any, name: str = "") -> Series:
        """The series of the path or the bytes of a CSV file, of a DataFrame, or of an array [step] or [step column].

        Raises:
            FileError: it is none of these, too large, or a cell is no number.
        """
        if isinstance(value, Series):
            return value
        if isinstance(value, str | PathLike):
            content = read_at_most(value, MAX_BYTES, "A series is a CSV file")
            return cls._of_file(content, "CSV", Path(value).name)
        if isinstance(value, bytes | bytearray | memoryview):
            return cls._of_file(bytes(value), "CSV", name)
        if hasattr(value, "to_csv") and hasattr(value, "columns"):
            _check_size(*value.shape)
            counts = type(value.index).__name__ == "RangeIndex"
            return cls._of_file(value.to_csv(index=not counts).encode(), "", name)
        return cls._of_array(value, name)

    @classmethod
    def _of_array(cls, value: Any, name: str) -> Series:
        import numpy as np

        try:
            given = np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)
            values = given.astype(float) if given.dtype.kind in "fiub" else None
        except (TypeError, ValueError):
            values = None
        if values is None or values.ndim not in (1, 2):
            raise FileError(
                "A series is the path or the bytes of a CSV file, a DataFrame, or an array of numbers [step column]; got "
                f"{'a ' + type(value).__name__ if values is None else f'an array of {values.ndim} axes'}: give one of these."
            )
        values = values[:, None] if values.ndim == 1 else values
        _check_size(*values.shape)
        if np.isinf(values).any():
            raise _no_number_error("inf", "an array", int(np.isinf(values).any(1).argmax()))
        columns = tuple(f"column {index}" for index in range(values.shape[1]))
        lines = (",".join(map(repr, row)) for row in values.tolist())
        content = "\n".join((",".join(columns), *lines)).replace("nan", "").encode()
        return cls(_digest(content), content, "", (), name, columns, values, (), {})

    @classmethod
    def _of_file(cls, content: bytes, kind: str, name: str) -> Series:

        if len(content) > MAX_BYTES:
            raise FileError(
                f"A CSV file of a series may take at most {MAX_BYTES / 2**20:.0f} MB; got more: save fewer rows or columns."
            )
        lines, header, separator = _lines(content)
        (names,) = _cells(lines[:1], separator)
        first = [_first_cell(line, separator) for line in lines[header:]]
        notes, times, axis = list[str](), tuple[str, ...](), 0
        if _is_axis(first, len(names), header):
            times, axis = tuple(first), 1
            what = f"The first column{f' ({names[0]})' if header and names[0] else ''} is the time axis"
            notes.append(f"{what}, from {times[0]} to {times[-1]}: its numbers do not enter the model.")
        names = [name if header else "" for name in names]
        columns = tuple(_shortened(each or f"column {index}") for index, each in enumerate(names[axis:]))
        options: dict[str, Any] = {"sep": separator} if separator != "," else {}
        options |= {"index_col": 0} if axis else {}
        options |= {} if header else {"header": None}
        table = _Table(lines, header, separator, axis, columns)
        values, found, replaced = table.read(options)
        if "decimal" in found:
            notes.append("The numbers of the file are read with a decimal comma.")
        options |= found
        options |= {"skiprows": 1} if _SEPARATOR_LINE.fullmatch(content[:5].decode("ascii", "replace")) else {}
        options |= {"encoding": encoding} if (encoding := _encoding(content)) else {}
        return cls(_digest(content), content, kind, tuple(notes), name, columns, values, times, options, replaced)

    @property
    def nbytes(self) -> int:
        """The bytes that it takes in memory."""
        return len(self.content) + int(self.values.nbytes) + sum(map(getsizeof, self.times))

    @cached_property
    def days(self) -> float | None:
        """The days from one step to the next, of the first steps; None if its times are not known."""
        found = [_as_time(text) for text in self.times[:_SAMPLE]]
        known = [each for each in found if each is not None]
        if len(known) < max(2, len(found)):
            return None
        return float(median((b - a) / timedelta(days=1) for a, b in pairwise(known)))


def reading_cost(content: bytes) -> ReadingCost:
    """What reading a file takes: measured, pandas takes 0.05 µs for a cell, and what checks its lines and finds its texts as much again."""
    return of_text(content, 3e-7, 16)


def _lines(content: bytes) -> tuple[list[str], bool, str]:
    """The lines of a file, whether the first has names, and what separates cells; all have equally many cells."""
    _check_size(max(1, content.count(b"\n"), content.count(b"\r")))
    text = decode(content).replace("\r\n", "\n").replace("\r", "\n")
    lines = [line for line in text.split("\n") if line.strip()]
    separator = ""
    if lines and (found := _SEPARATOR_LINE.fullmatch(lines[0].strip())):
        separator, lines = found[1], lines[1:]
    if len(lines) < 2:
        raise FileError(
            "A series has a row of names and a row of numbers for each step, as a CSV file; got fewer than two rows: save it as CSV."
        )
    longest = max(map(len, lines))
    if longest > _LONGEST_LINE or "\0" in lines[0]:
        raise FileError(
            f"A row of a series has at most {_LONGEST_LINE:,} characters of text; got {longest:,} or bytes that are no text: save it as CSV."
        )
    if any(line.count('"') % 2 for line in lines):
        raise FileError(
            "Each quoted cell of a series ends in its line; got a quotation mark without an end: save the file as CSV of numbers."
        )
    separator = separator or _separator(lines[:_SAMPLE])
    _check_size(len(lines), lines[0].count(separator) + 1)
    (first,) = _cells(lines[:1], separator)
    for index, line in enumerate(lines):
        if (width := _width(line, separator)) != len(first):
            raise FileError(
                f"Each row of a series has as many cells as the first, {len(first):,}; row {index} has {width:,}: save the file as CSV again."
            )
    has_names = any(not _is_number(cell) for cell in first[1:] or first) and any(first)
    return lines, has_names, separator


def _cells(lines: Sequence[str], separator: str) -> list[list[str]]:
    return [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator)]


def _width(line: str, separator: str) -> int:
    return len(_cells([line], separator)[0]) if '"' in line else line.count(separator) + 1


def _first_cell(line: str, separator: str) -> str:
    return _cells([line], separator)[0][0] if '"' in line else line.partition(separator)[0].strip()


@dataclass(frozen=True)
class _Table:
    """The lines of a table that are all equally wide, with or without a header, and with a time axis or without; and the names of its columns."""

    lines: Sequence[str]
    header: bool
    separator: str
    axis: int
    columns: Sequence[str]

    def read(self, options: dict[str, Any]) -> tuple[NDArray[float64], dict[str, Any], tuple[tuple[str, str], ...]]:
        """The numbers [step column], what pandas needs to read them beside these options, and what is replaced before it reads."""
        import numpy as np

        frame = self._frame(options, ())
        found, replaced = self._options(_odd_texts(frame))
        if found or replaced:
            frame = self._frame(options | found, replaced)
        values = np.ascontiguousarray(np.stack([_numbers(column) for _, column in frame.items()], axis=1))
        missing = np.stack([column.isna().to_numpy() for _, column in frame.items()], axis=1)
        is_wrong = (np.isnan(values) & ~missing) | (np.abs(values) > _LARGEST)
        if is_wrong.any():
            row, column = divmod(int(is_wrong.argmax()), len(self.columns))
            (cells,) = _cells([self.lines[row + self.header]], self.separator)
            raise _no_number_error(cells[column + self.axis], quote(self.columns[column]), row + self.header)
        return values, found, replaced

    def _frame(self, options: dict[str, Any], replaced: Sequence[tuple[str, str]]) -> pd.DataFrame:
        import pandas as pd

        text = "\n".join(self.lines)
        for sign, other in replaced:
            text = text.replace(sign, other)
        # All of a column at once: in parts, it might have texts in one and numbers in the other.
        frame: pd.DataFrame = pd.read_csv(StringIO(text), **options, low_memory=False)
        return frame

    def _options(self, texts: Sequence[str]) -> tuple[dict[str, Any], tuple[tuple[str, str], ...]]:
        """What makes numbers of texts that pandas reads as none."""
        missing = [text for text in texts if text.lower() in _MISSING]
        others = [text for text in texts if text.lower() not in _MISSING]
        replaced = tuple((sign, other) for sign, other in _SIGNS.items() if any(sign in text for text in others))
        marks = [mark for mark in _THOUSANDS if any(mark in text for text in others)]
        found: dict[str, Any] = {}
        if self._has_decimal_commas([text for text in others if "," in text]):
            found = {"decimal": ",", "thousands": marks[0] if marks else "."}
        elif marks or any("," in text for text in others):
            found = {"thousands": marks[0] if marks else ","}
        return found | ({"na_values": sorted(missing)} if missing else {}), replaced

    def _has_decimal_commas(self, texts: Sequence[str]) -> bool:
        """Whether the commas in cells stand before decimals, and not between thousands."""
        if not texts or any("." in text[text.rindex(",") :] for text in texts):
            return False
        in_thousands = all(_IN_THOUSANDS.fullmatch(text.translate(_PLAIN)) for text in texts)
        return not in_thousands or (self.separator != "," and not self._has_points())

    def _has_points(self) -> bool:
        """Whether a number has a point, which a name or a time may have as well."""
        for line in self.lines[self.header :]:
            start = len(_first_cell(line, self.separator)) if self.axis else 0
            if line.find(".", start) >= 0:
                return True
        return False


def _odd_texts(frame: pd.DataFrame) -> list[str]:
    """The texts that pandas reads as no numbers, each once."""
    import pandas as pd

    odd = dict[str, None]()
    for _, column in frame.items():
        if column.dtype.kind not in "iuf":
            texts = column.dropna().astype(str).str.strip().drop_duplicates()
            odd |= dict.fromkeys(texts[pd.to_numeric(texts, errors="coerce").isna()])
    return list(odd)


def _numbers(column: pd.Series[Any]) -> NDArray[float64]:
    """The numbers of a column; NaN where there is none."""
    import pandas as pd

    numbers = column if column.dtype.kind in "iuf" else pd.to_numeric(column.astype(str), errors="coerce")
    return numbers.to_numpy(float)


def _separator(lines: Sequence[str]) -> str:
    """What separates the cells of all lines into equally many; a comma if nothing does."""
    for separator in _SEPARATORS:
        widths = {len(row) for row in csv.reader(lines, delimiter=separator)}
        if len(widths) == 1 and widths != {1}:
            return separator
    has_one_column = "," not in lines[0] and any(re.fullmatch(r"\s*[+-]?\d+,\d+\s*", line) for line in lines[1:])
    return ";" if has_one_column else ","


def _check_size(n_steps: int, n_columns: int = 1) -> None:
    if n_columns > MAX_COLUMNS or n_steps > _MAX_STEPS or n_steps * n_columns > _MAX_NUMBERS or not n_steps * n_columns:
        raise FileError(
            f"A series may have at most {_MAX_STEPS:,} rows, {MAX_COLUMNS} columns and {_MAX_NUMBERS:,} numbers; "
            f"got {n_steps:,} rows of {n_columns:,} columns: give a part of it."
        )


def _is_number(cell: str) -> bool:
    text = cell.strip().translate(_PLAIN).lower()
    return (
        text in _MISSING
        or re.fullmatch(_NUMBER, text.replace(",", "").replace(".", "", text.count(".") - 1)) is not None
    )


def _is_axis(cells: Sequence[str], n_columns: int, header: bool) -> bool:
    """Whether the cells of a first column are dates or other names of steps, or, with a header, whole numbers that count evenly."""
    if n_columns < 2 or len(cells) < 2:
        return False
    if not any(map(_is_number, cells[:_SAMPLE])):
        return True
    if all(_as_time(cell) is not None and not cell.isdecimal() for cell in cells[:_SAMPLE]):
        return True  # such as 01.07.2016
    whole = [int(cell) for cell in cells if header and cell.isdecimal() and len(cell) < 19]
    return len(whole) == len(cells) > 2 and len({b - a for a, b in pairwise(whole)}) == 1 and whole[1] > whole[0]


def _no_number_error(cell: str, column: str, row: int) -> FileError:
    return FileError(
        f"Every cell of a series is a number of ordinary size, or empty where it is missing; got {quote(cell[:40])} in {column}, row {row}: "
        "leave out columns that are no numbers, but for dates in the first."
    )


def _as_time(text: str) -> datetime | None:
    try:
        if not text.isdecimal():
            return datetime.fromisoformat(text).replace(tzinfo=None)
    except ValueError:
        pass
    for day in _DATES if len(text) < 40 else ():
        for time in _TIMES:
            try:
                return datetime.strptime(text, day + time)
            except ValueError:
                continue
    return None


def _encoding(content: bytes) -> str:
    """What pandas must be told of the encoding that `decode` finds; empty for UTF-8."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    try:
        content.decode("utf-8")
    except UnicodeDecodeError:
        return "cp1252"
    return ""


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else name[: _LONGEST_NAME - 1] + "…"


def _digest(content: bytes) -> str:
    return blake2b(content, digest_size=16).hexdigest()
