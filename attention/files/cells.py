"""Rows of text as cells: their separator, quotation marks and decimal commas, which of them are labels, and the numbers of the others.

One reading for pasted matrices and for files. `csv` cuts what has quotation marks. pandas guesses neither separators nor headings with
certainty, reads a million cells into objects before it refuses them, and rounds numbers unless it is told not to.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple

from attention.base.errors import MatrixError
from attention.files.matrix import MAX_SIDE, excerpt

MAX_PIECES = MAX_SIDE + 1  # a split into this many pieces shows that there are too many

_MARKS = "\t&|;,"
_QUOTED = re.compile(r'"[^"]*"')
_DECIMAL_COMMA = re.compile(r"[+-]?\d+(?:,\d+)?(?:[eE][+-]?\d+)?", re.ASCII)


def decode(content: bytes) -> str:
    """The text of a file: UTF-16 (the “Unicode text” of Excel) by its first bytes, otherwise UTF-8, or what Windows wrote."""
    if content.startswith((b"\xff\xfe", b"\xfe\xff")):
        return content.decode("utf-16", errors="replace")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        return content.decode("cp1252", errors="replace")


def split(
    lines: Iterable[str], sample: Sequence[str], name: str, most: int = MAX_PIECES
) -> tuple[Iterator[list[str]], str | None]:
    """The cells of each line, at most one more than `most`, and their separator; None: blanks. The `sample`, the first lines or all, decides.

    A cell in quotation marks may hold anything; R writes a quotation mark in it as a backslash and the mark, others double it.

    Raises:
        MatrixError: a cell in quotation marks is as long as a text. It is raised while the lines are read.
    """
    mark = _separator(sample)
    if not any('"' in line for line in sample):
        return ([cell.strip() for cell in line.split(mark, most)] or [""] for line in lines), mark
    # Without quotation marks around cells, a token may be one.
    is_token = mark in (None, "\t") and any(line.replace('\\"', "").count('"') % 2 for line in sample)
    rows = csv.reader(
        (line if mark else line.strip() for line in lines),
        delimiter=mark or " ",
        quoting=csv.QUOTE_NONE if is_token else csv.QUOTE_MINIMAL,
        skipinitialspace=True,
        escapechar="\\" if any('\\"' in line for line in sample) else None,
    )
    return _stripped(rows, name), mark


def _stripped(rows: Iterator[list[str]], name: str) -> Iterator[list[str]]:
    try:
        yield from ([cell.strip() for cell in row] for row in rows if row)
    except csv.Error as error:
        raise MatrixError(
            f"{name} needs rows of numbers; got text in quotation marks that does not end ({error}): save it again as .csv."
        ) from None


def _separator(sample: Sequence[str]) -> str | None:
    """The mark that every line has equally often outside of quotation marks; blanks, if they give columns; or any mark that there is."""
    bare = [_QUOTED.sub('""', line) for line in sample]
    marks = [mark for mark in _MARKS if any(mark in line for line in bare)]
    even = next((mark for mark in marks if len({line.count(mark) for line in bare}) == 1), None)
    if even not in (None, ",") or not marks:
        return even
    cells = [line.split(None, MAX_PIECES) for line in bare]
    if len(cells) > 1 and all(len(row) > 1 and all(map(_DECIMAL_COMMA.fullmatch, row)) for row in cells):
        return None
    widths = {len(row) for row in cells[1:]}
    ends = {cell[-1] for row in cells for cell in row if len(cell) > 1}
    is_aligned = len(widths) == 1 and 1 < max(widths) <= len(cells[0]) + 1 and not ends & set(_MARKS)
    return even or (None if is_aligned else next(mark for mark in "&|\t;," if mark in marks))


class Labels(NamedTuple):
    """Which cells of a table are labels.

    Attributes:
        has_heading: whether the first row is a heading.
        has_names: whether the first cell of each other row is its name.
        columns: the names of the columns of numbers; empty without a heading.
        numbers: where the numbers of a row are; a table of the Lab has places of patches before them, and their sum after them.
        corner: the cell above the names of the rows.
    """

    has_heading: bool = False
    has_names: bool = False
    columns: tuple[str, ...] = ()
    numbers: slice = slice(None)
    corner: str = ""


AXES = ("query_pos", "key_pos")
"""The corner of a table that the Lab wrote."""
_CORNERS = {"", "Unnamed: 0", "index", *AXES}  # pandas' and ours
_PLACES, _SUM = ("picture", "row", "column"), "Σ row"
_NAME = re.compile(r"(?=.*[^\W\d_])[^()\[\]{}=*/+^\\]{1,60}")
_NO_LABELS = {"nan", "inf", "-inf", "infinity", "-infinity", "none", "null", "na", "true", "false", ""}


def find_labels(rows: Sequence[Sequence[str]]) -> Labels:
    """The labels of a table, by its first rows.

    An empty corner makes labels of the first row and column, whatever they are. Otherwise a heading has mostly words, and names of rows
    without a heading are words.
    """
    if len(rows) < 2 or not rows[0] or not rows[1]:
        return Labels()
    first, names = rows[0], [row[0] for row in rows[1:] if row]
    lacks_corner = len(first) == len(rows[1]) - 1  # as pandas and R print
    corner, columns = ("", first) if lacks_corner else (first[0], first[1:])
    heading = index = False
    if corner in _CORNERS and columns:
        heading = index = (
            not lacks_corner
            or _are_labels(columns)
            or (_is_consecutive(columns) and (_are_whole(names) or _are_labels(names)))
        )
    elif _is_label(corner):
        index = _are_labels(names) if _are_labels(columns) else bool(columns) and _are_names([corner, *names])
        heading = (counts_from_zero(columns) and (index or not columns)) or _are_labels(columns)
        index = index and (heading or all(map(is_number, columns)))
    if not heading:
        return Labels(has_names=index, numbers=slice(int(index), None))
    columns = columns if index else first
    start = len(_PLACES) if tuple(columns[: len(_PLACES)]) == _PLACES else 0
    end = -1 if columns[-1] == _SUM else None
    return Labels(True, index, tuple(columns[start:end]), slice(index + start, end), corner)


def counts_from_zero(values: Sequence[str]) -> bool:
    """Whether these are the whole numbers from zero."""
    return all(cell == str(i) for i, cell in enumerate(values))


def _is_consecutive(values: Sequence[str]) -> bool:
    """Whether these are consecutive whole numbers, from any start."""
    return _are_whole(values) and all(int(cell) == int(values[0]) + i for i, cell in enumerate(values))


def _are_whole(values: Sequence[str]) -> bool:
    return all(len(cell) < 10 and cell.isascii() and cell.isdecimal() for cell in values)


def _is_label(cell: str) -> bool:
    return not is_number(cell) and cell.lower() not in _NO_LABELS


def _are_labels(values: Sequence[str]) -> bool:
    """Whether most of these are no numbers; some tokens are."""
    return 2 * sum(map(_is_label, values)) > len(values)


def _are_names(values: Sequence[str]) -> bool:
    """Whether all of these are words, and no expression such as sqrt(2)."""
    return all(_NAME.fullmatch(cell) and _is_label(cell) for cell in values)


def as_tokens(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels of an axis as tokens, without the positions of the Lab's tables; none if they only count."""
    if _is_consecutive(labels) and labels[:1] in (("0",), ("1",), ["0"], ["1"]):
        return ()
    if all(label.startswith(f"{i} ") for i, label in enumerate(labels)):
        return tuple(label.partition(" ")[2] for label in labels)
    return tuple(labels)


_DIGITS = r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|nan|inf(?:inity)?)"
# NumPy 2 prints the numbers of a list as np.float64(0.5), torch as tensor(0.5); OpenNMT marks the largest of a row with stars.
_NUMBER = re.compile(
    rf"\**({_DIGITS})|(?:(?:np\.|numpy\.)?(?:float|u?int)\d+|tensor)\(({_DIGITS})\)", re.ASCII | re.IGNORECASE
)
_TRUTH = {"true": 1.0, "false": 0.0}
_MAX_NUMBER = 5_000  # characters of a number
_MISSING = (
    "the printed output is abbreviated and lacks numbers: print it again after "
    'numpy.set_printoptions(threshold=10**6) or torch.set_printoptions(profile="full")'
)


def is_number(cell: str) -> bool:
    """Whether the cell is a number, also with a decimal comma."""
    return len(cell) <= _MAX_NUMBER and _NUMBER.fullmatch(cell.replace(",", ".", 1)) is not None


def parse_row(cells: Sequence[str], comma: bool, name: str, row: int) -> list[float]:
    """The numbers in the cells of a row, of truth values 1 and 0; with decimal commas if `comma`.

    Raises:
        MatrixError: a cell has none.
    """
    joined = "".join(cells)
    if not comma and joined.isascii() and "_" not in joined:  # float reads underscores and other digits
        with suppress(ValueError):
            return list(map(float, cells))
    return [_parse_number(cell, comma, name, row, column) for column, cell in enumerate(cells)]


def _parse_number(cell: str, comma: bool, name: str, row: int, column: int) -> float:
    if comma and "." in cell and any(map(str.isdigit, cell[:_MAX_NUMBER])):
        # 1,234 beside 5.6 is ambiguous: 1234 or 1.234.
        advice = "write all numbers with a point"
        raise cell_error(name, cell, row, column, "a decimal comma, as in the other cells,", advice)
    if len(cell) <= _MAX_NUMBER:
        if match := _NUMBER.fullmatch((cell.replace(",", ".") if comma else cell).replace("−", "-")):
            return float(match[1] or match[2])
        if cell.lower() in _TRUTH:
            return _TRUTH[cell.lower()]
    raise cell_error(name, cell, row, column, "a number")


def cell_error(
    name: str,
    cell: str,
    row: int,
    column: int,
    expected: str,
    advice: str = "delete headings and words, and write each number like 1.5",
) -> MatrixError:
    """The error for a cell that is not `expected`."""
    got = excerpt(cell)
    if not cell:
        got, advice = "nothing", "fill the cell, or delete its row or column"
    elif cell.startswith(("...", "…")):
        advice = _MISSING
    return MatrixError(f"{name} has {got} in row {row}, column {column}, where {expected} is expected: {advice}.")
