"""Numbers out of the cells of rows: what separates them, decimal commas, and what is no number."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attention.errors import MatrixError
from attention.sources.reading.matrix import MAX_NUMBERS, MAX_SIDE, shown, too_large

ENOUGH = MAX_SIDE + 1  # pieces of a text that need to be seen to know that they are too many

_DIGITS = r"[+-]?(?:(?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?|nan|inf(?:inity)?)"
# NumPy 2 prints the numbers of a list as np.float64(0.5), torch as tensor(0.5).
_NUMBER = re.compile(
    rf"({_DIGITS})|(?:(?:np\.|numpy\.)?(?:float|u?int)\d+|tensor)\(({_DIGITS})\)", re.ASCII | re.IGNORECASE
)
_LONGEST = 5_000  # characters of a number
_DECIMAL = re.compile(r"[+-]?\d+(?:,\d+)?(?:[eE][+-]?\d+)?", re.ASCII)
_MISSING = (
    "numbers are missing, since it was printed shortened: print it again after "
    'numpy.set_printoptions(threshold=10**6) or torch.set_printoptions(profile="full")'
)


def tidied(rows: Sequence[str]) -> list[str]:
    """The rows without the blanks around them, and without a comma or semicolon at the end."""
    rows = [row.strip(" \xa0\r\n") for row in rows]  # not a tab: it stands beside an empty cell
    return [row[:-1] if row.endswith((",", ";")) else row for row in rows]


def separated(rows: Sequence[str]) -> tuple[str | None, bool]:
    """What stands between the cells of these rows, None for blanks; and whether a comma begins the decimals."""
    mark = next((mark for mark in "&|\t;," if any(mark in row for row in rows)), None)
    if mark == "," and len(rows) > 1 and all(_blanks_between_decimals(row) for row in rows):
        return None, True
    return mark, mark in ("&", "|", "\t", ";") and any("," in row for row in rows)


def _blanks_between_decimals(row: str) -> bool:
    """Whether the row is "0,5 0,25": with commas in its numbers, and blanks between them."""
    cells = row.split(None, ENOUGH)
    return len(cells) > 1 and all(map(_DECIMAL.fullmatch, cells))


def cells(row: str, separator: str | None) -> list[str]:
    """The cells of a row, no more of them than are needed to know that they are too many."""
    return [cell.strip() for cell in row.split(separator, ENOUGH) or [""]]


def numbers(rows: Sequence[str], name: str, separator: str | None, comma: bool) -> list[tuple[float, ...]]:
    """The numbers of each row, of whatever length.

    Raises:
        MatrixError: a cell that is no number, or too many of them.
    """
    found: list[tuple[float, ...]] = []
    total = 0
    for i, row in enumerate(rows):
        here = cells(row, separator)
        total += len(here)
        if len(here) > MAX_SIDE:
            raise too_large(name, f"more than {MAX_SIDE:,} numbers in row {i}")
        if total > MAX_NUMBERS:
            raise too_large(name, f"{len(rows):,} × {len(here):,}")
        found.append(tuple(_number(cell, comma, name, i, j) for j, cell in enumerate(here)))
    return found


def is_number(cell: str) -> bool:
    """Whether the cell is a number, in quotes or with a decimal comma too."""
    return _NUMBER.fullmatch(cell.strip('"').replace(",", ".", 1)) is not None


def _number(cell: str, comma: bool, name: str, row: int, column: int) -> float:
    bare = cell[1:-1] if len(cell) > 1 and cell[0] == cell[-1] == '"' else cell
    if comma and "." in bare and any(map(str.isdigit, bare[:_LONGEST])):
        # 1,234 beside 5.6 may be a thousand or a bit more than one: nobody can know.
        todo = "write all numbers with a point"
        raise refused(name, cell, row, column, "a decimal comma, as elsewhere in it,", todo)
    match = None
    if len(bare) <= _LONGEST:
        match = _NUMBER.fullmatch(bare.replace(",", ".") if comma else bare)
    if match is None:
        raise refused(name, cell, row, column, "a number")
    return float(match[1] or match[2])


def refused(
    name: str,
    cell: str,
    row: int,
    column: int,
    expected: str,
    todo: str = "delete headings and words, and write each number like 1.5",
) -> MatrixError:
    """The error for a cell that is something else than `expected`."""
    what = shown(cell)
    if not cell:
        what, todo = "nothing", "fill the cell, or delete its row or column"
    elif cell.startswith(("...", "…")):
        todo = _MISSING
    return MatrixError(f"{name} has {what} in row {row}, column {column}, where {expected} is expected: {todo}.")
