"""Numbers in the cells of rows: their separator, decimal commas, and errors for cells that are not numbers."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attention.errors import MatrixError
from attention.io.text.matrix import MAX_NUMBERS, MAX_SIDE, excerpt, too_large_error

MAX_PIECES = MAX_SIDE + 1  # a split into this many pieces shows that there are too many

_DIGITS = r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|nan|inf(?:inity)?)"
# NumPy 2 prints the numbers of a list as np.float64(0.5), torch as tensor(0.5).
_NUMBER = re.compile(
    rf"({_DIGITS})|(?:(?:np\.|numpy\.)?(?:float|u?int)\d+|tensor)\(({_DIGITS})\)", re.ASCII | re.IGNORECASE
)
_MAX_NUMBER = 5_000  # characters of a number
_DECIMAL = re.compile(r"[+-]?\d+(?:,\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_MISSING = (
    "the printed output is abbreviated and lacks numbers: print it again after "
    'numpy.set_printoptions(threshold=10**6) or torch.set_printoptions(profile="full")'
)


def strip_rows(rows: Sequence[str]) -> list[str]:
    """The rows without surrounding blanks, and without a final comma or semicolon."""
    rows = [row.strip(" \xa0\r\n") for row in rows]  # a tab marks an empty cell and stays
    return [row[:-1] if row.endswith((",", ";")) else row for row in rows]


def detect_separator(rows: Sequence[str]) -> tuple[str | None, bool]:
    """The separator between the cells of these rows (None: blanks), and whether the comma is a decimal comma."""
    mark = next((mark for mark in "&|\t;," if any(mark in row for row in rows)), None)
    if mark == "," and len(rows) > 1 and all(_blanks_between_decimals(row) for row in rows):
        return None, True
    return mark, mark in ("&", "|", "\t", ";") and any("," in row for row in rows)


def _blanks_between_decimals(row: str) -> bool:
    """Whether the row has the form "0,5 0,25": decimal commas, and blanks between the numbers."""
    cells = row.split(None, MAX_PIECES)
    return len(cells) > 1 and all(map(_DECIMAL.fullmatch, cells))


def split_cells(row: str, separator: str | None) -> list[str]:
    """The cells of a row, at most as many as are needed to know that they are too many."""
    return [cell.strip() for cell in row.split(separator, MAX_PIECES) or [""]]


def parse_numbers(rows: Sequence[str], name: str, separator: str | None, comma: bool) -> list[tuple[float, ...]]:
    """The numbers of each row; the rows may differ in length.

    Raises:
        MatrixError: a cell is not a number, or there are too many.
    """
    rows_of_numbers: list[tuple[float, ...]] = []
    total = 0
    for i, row in enumerate(rows):
        row_cells = split_cells(row, separator)
        total += len(row_cells)
        if len(row_cells) > MAX_SIDE:
            raise too_large_error(name, f"more than {MAX_SIDE:,} numbers in row {i}")
        if total > MAX_NUMBERS:
            raise too_large_error(name, f"{len(rows):,} × {len(row_cells):,}")
        rows_of_numbers.append(tuple(_parse_number(cell, comma, name, i, j) for j, cell in enumerate(row_cells)))
    return rows_of_numbers


def is_number(cell: str) -> bool:
    """Whether the cell is a number, also in quotes or with a decimal comma."""
    return _NUMBER.fullmatch(cell.strip('"').replace(",", ".", 1)) is not None


def _parse_number(cell: str, comma: bool, name: str, row: int, column: int) -> float:
    unquoted = cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell
    if comma and "." in unquoted and any(map(str.isdigit, unquoted[:_MAX_NUMBER])):
        # 1,234 beside 5.6 is ambiguous: 1234 or 1.234.
        advice = "write all numbers with a point"
        raise cell_error(name, cell, row, column, "a decimal comma, as in the other cells,", advice)
    match = None
    if len(unquoted) <= _MAX_NUMBER:
        match = _NUMBER.fullmatch(unquoted.replace(",", ".") if comma else unquoted)
    if match is None:
        raise cell_error(name, cell, row, column, "a number")
    return float(match[1] or match[2])


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
