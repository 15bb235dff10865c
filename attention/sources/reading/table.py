"""Rows of numbers under headings: CSV, spreadsheet cells, Markdown, what pandas prints; and what in them only the person knows."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attention.sources.reading.cells import cells, is_number, numbers, separated, tidied
from attention.sources.reading.matrix import MAX_SIDE, Matrix, check_size, checked, shown, too_large
from attention.sources.reading.reading import Reading

_NAME = re.compile(r"(?=.*[^\W\d_])[^()\[\]{}=*/+^\\]{1,60}")
_NO_NAMES = {"nan", "inf", "-inf", "infinity", "-infinity", "none", "null", "na", "true", "false"}
_CORNERS = {"", "Unnamed: 0", "index"}  # what pandas leaves above its row numbers
_WHOLE = re.compile(r"\d{1,9}", re.ASCII)
_DECIMAL = re.compile(r"([+-]?\d+),(\d+)", re.ASCII)


def tabled(lines: Sequence[str], name: str, label: str = "", ruled: bool = False) -> Reading:
    """The numbers of a table; whether a first row or column of 0, 1, 2, … counts or belongs to them is open.

    Args:
        ruled: a line is drawn below the first row, as Markdown does below a heading.

    Raises:
        MatrixError: something else than numbers below the headings.
    """
    if len(lines) > MAX_SIDE:
        raise too_large(name, f"more than {MAX_SIDE:,} rows")
    rows = tidied(lines)
    if any("|" in row for row in rows):
        rows = [
            "|".join(cell.strip(" *`$") for cell in row.strip().strip("|").split("|", MAX_SIDE + 1)) for row in rows
        ]
    separator, comma = separated(rows)
    rest, notes, names = _without_headings(rows, separator)
    comma = comma and any("," in row for row in rest)  # a heading may have some of its own
    read = numbers(rest, name, separator, comma)
    check_size(len(read), len(read[0]), name)
    kept = checked(read, name)
    if comma:
        notes = (*notes, "Its commas are read as decimal commas.")
    choices, question, more = _open(
        rest, kept, separator, ruled, headed=len(rest) < len(rows), numbered=rest[-1] != rows[-1]
    )
    found = {", ".join(filter(None, (label, key))): matrix for key, matrix in choices.items()}
    return Reading(found, question, (*notes, *more), label, (len(kept), len(kept[0])), names)


def _without_headings(rows: list[str], separator: str | None) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """The rows without a heading and names that cannot be numbers, what was left out, and the names of the rows."""
    if len(rows) < 2:
        return rows, (), ()
    top = [cell.strip("\"'") for cell in cells(rows[0], separator)]
    below = [_first(row, separator).strip("\"'") for row in rows[1:]]
    printed = separator is None and len(top) == len(cells(rows[1], separator)) - 1  # pandas leaves the corner blank
    corner, others = ("", top) if printed else (top[0], top[1:])
    if corner in _CORNERS and others:
        header = index = (_names(others) or _numbered(others)) and (_names(below) or all(map(_WHOLE.fullmatch, below)))
    elif _names([corner]):
        index = _names(below) and bool(others)
        header = _heads(others) if index else _names(others)
        index = index and (header or all(map(is_number, others)))
    else:
        header = index = False
    if not (header or index):
        return rows, (), ()
    notes, names = [], tuple(below if header else [corner, *below]) if index else ()
    if header:
        rows = rows[1:]
        notes.append(f"The first row, {_listed(top)}, is read as a heading.")
    if index:
        rows = [row.split(separator, 1)[-1] for row in rows]
        notes.append(f"The first column, {_listed(names)}, is read as names of the rows.")
    return rows, tuple(notes), names if _names(names) else ()


def _open(
    rows: list[str], kept: Matrix, separator: str | None, ruled: bool, headed: bool, numbered: bool
) -> tuple[dict[str, Matrix], str, tuple[str, ...]]:
    """What the numbers may be, what is asked about it, and what is said."""
    first = cells(rows[0], separator)
    index = [_first(row, separator) for row in rows]
    between = separator is not None and len(rows) > 1
    points = any("." in row.split(separator, 1)[-1] for row in rows[1:])
    alone = separator is None and len(first) == 1 and first == ["0"] and len(rows) > 1
    column = None if separator != "," or headed or numbered else _as_column(rows)
    heading = not headed and (
        (between and (_counts(first) or ruled)) or (alone and all("." in row for row in rows[1:]))
    )
    numbering = not numbered and between and len(first) > 1 and _counts(index)
    below = not numbered and between and len(first) > 1 and len(rows) > 2 and _counts(index[1:])
    choices: dict[str, Matrix] = {}
    notes = []
    if column is not None and column[1]:
        choices["one column, with decimal commas"] = column[0]
    elif column is not None:
        notes.append("Its commas are read as standing between two columns; write decimals with a point.")
    if heading and not (ruled or points or len(first) > 2):
        notes.append(f"Its first row, {_listed(first)}, is read as numbers, not as a heading.")
    elif heading:
        choices["the first row is a heading"] = kept[1:]
        if below:
            choices["the first row and column are headings"] = tuple(row[1:] for row in kept[1:])
    if numbering and not (points or len(rows) > 2):
        notes.append(f"Its first column, {_listed(index)}, is read as numbers, not as names of the rows.")
    elif numbering:
        choices["the first column numbers the rows"] = tuple(row[1:] for row in kept)
    if not choices:
        return {"": kept}, "", tuple(notes)
    choices[
        "two columns" if list(choices) == ["one column, with decimal commas"] else "all are numbers of the matrix"
    ] = kept
    what = [f"the first row, {_listed(first)}, a heading"] if "the first row is a heading" in choices else []
    what += (
        [f"the first column, {_listed(index)}, a numbering"] if "the first column numbers the rows" in choices else []
    )
    asked = f"Is {' or '.join(what)}, or are these numbers of the matrix?" if what else "Are its commas decimal commas?"
    return choices, asked, tuple(notes)


def _as_column(rows: Sequence[str]) -> tuple[Matrix, bool] | None:
    """Rows such as 0,12 as one column of decimals, and whether that is likely; None where the rows are no such."""
    pieces = [_DECIMAL.fullmatch(row.strip()) for row in rows]
    if len(rows) < 2 or not all(pieces):
        return None
    whole, behind = zip(*(piece.groups() for piece in pieces if piece), strict=True)
    likely = any(len(digits) > 1 for digits in behind) or all(digits.lstrip("+-") == "0" for digits in whole)
    return tuple((float(row.strip().replace(",", ".")),) for row in rows), likely


def decimal_column(rows: Sequence[str]) -> Matrix | None:
    """Rows such as 0,05 as one column, where a column of 05 beside one of 0 makes no sense."""
    column = _as_column(rows)
    return column[0] if column and any(re.search(r",0\d", row) for row in rows) else None


def _first(row: str, separator: str | None) -> str:
    return (row.split(separator, 1) or [""])[0].strip()


def _counts(found: Sequence[str]) -> bool:
    return all(cell.strip('"') == str(i) for i, cell in enumerate(found))


def _numbered(found: Sequence[str]) -> bool:
    """Whether these are whole numbers one after the other, from any."""
    return all(map(_WHOLE.fullmatch, found)) and all(int(cell) == int(found[0]) + i for i, cell in enumerate(found))


def _names(found: Sequence[str]) -> bool:
    return all(_NAME.fullmatch(cell) and not is_number(cell) and cell.lower() not in _NO_NAMES for cell in found)


def _heads(found: Sequence[str]) -> bool:
    return _counts(found) or _names(found)


def _listed(found: Sequence[str]) -> str:
    found = [shown(cell)[1:-1] for cell in found if cell]
    return ", ".join(found[:3]) + (", …" if len(found) > 3 else "")
