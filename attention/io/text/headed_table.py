"""Tables of numbers with headings: CSV, spreadsheet cells, Markdown, the output of pandas; and the questions that they leave open."""

from __future__ import annotations

import re
from collections.abc import Sequence

from attention.io.text.matrix import MAX_SIDE, Matrix, check_size, excerpt, too_large_error, validate_matrix
from attention.io.text.number_cells import detect_separator, is_number, parse_numbers, split_cells, strip_rows
from attention.io.text.parsed import ParsedText

_NAME = re.compile(r"(?=.*[^\W\d_])[^()\[\]{}=*/+^\\]{1,60}")
_NOT_NAMES = {"nan", "inf", "-inf", "infinity", "-infinity", "none", "null", "na", "true", "false"}
_CORNERS = {"", "Unnamed: 0", "index"}  # the cell above the row index of pandas
_INTEGER = re.compile(r"\d{1,9}", re.ASCII)
_DECIMAL = re.compile(r"([+-]?\d+),(\d+)", re.ASCII)


def parse_table(lines: Sequence[str], name: str, label: str = "", ruled: bool = False) -> ParsedText:
    """The numbers of a table. Whether a first row or column of 0, 1, 2, … is an index or belongs to the matrix may be a question.

    Args:
        ruled: whether there is a rule below the first row, as below a heading in Markdown.

    Raises:
        MatrixError: anything but numbers below the headings.
    """
    if len(lines) > MAX_SIDE:
        raise too_large_error(name, f"more than {MAX_SIDE:,} rows")
    rows = strip_rows(lines)
    if any("|" in row for row in rows):
        rows = [
            "|".join(cell.strip(" *`$") for cell in row.strip().strip("|").split("|", MAX_SIDE + 1)) for row in rows
        ]
    separator, comma = detect_separator(rows)
    data_rows, notes, names = _strip_headings(rows, separator)
    comma = comma and any("," in row for row in data_rows)  # a heading may have commas, too
    rows_of_numbers = parse_numbers(data_rows, name, separator, comma)
    check_size(len(rows_of_numbers), len(rows_of_numbers[0]), name)
    matrix = validate_matrix(rows_of_numbers, name)
    if comma:
        notes = (*notes, "Its commas are read as decimal commas.")
    choices, question, more_notes = _open_choices(
        data_rows, matrix, separator, ruled, had_heading=len(data_rows) < len(rows), had_index=data_rows[-1] != rows[-1]
    )
    labelled_choices = {", ".join(filter(None, (label, key))): matrix for key, matrix in choices.items()}
    return ParsedText(labelled_choices, question, (*notes, *more_notes), label, (len(matrix), len(matrix[0])), names)


def _strip_headings(rows: list[str], separator: str | None) -> tuple[list[str], tuple[str, ...], tuple[str, ...]]:
    """The rows without a heading and row names that cannot be numbers; notes on what was removed; and the row names."""
    if len(rows) < 2:
        return rows, (), ()
    first_row = [cell.strip("\"'") for cell in split_cells(rows[0], separator)]
    first_column = [_first_cell(row, separator).strip("\"'") for row in rows[1:]]
    # pandas prints no cell in the corner.
    lacks_corner = separator is None and len(first_row) == len(split_cells(rows[1], separator)) - 1
    corner, other_headings = ("", first_row) if lacks_corner else (first_row[0], first_row[1:])
    if corner in _CORNERS and other_headings:
        header = index = (_are_names(other_headings) or _is_consecutive(other_headings)) and (
            _are_names(first_column) or all(map(_INTEGER.fullmatch, first_column))
        )
    elif _are_names([corner]):
        index = _are_names(first_column) and bool(other_headings)
        header = _are_headings(other_headings) if index else _are_names(other_headings)
        index = index and (header or all(map(is_number, other_headings)))
    else:
        header = index = False
    if not (header or index):
        return rows, (), ()
    notes, names = [], tuple(first_column if header else [corner, *first_column]) if index else ()
    if header:
        rows = rows[1:]
        notes.append(f"The first row, {_format_cells(first_row)}, is read as a heading.")
    if index:
        rows = [row.split(separator, 1)[-1] for row in rows]
        notes.append(f"The first column, {_format_cells(names)}, is read as names of the rows.")
    return rows, tuple(notes), names if _are_names(names) else ()


def _open_choices(
    rows: list[str], matrix: Matrix, separator: str | None, ruled: bool, had_heading: bool, had_index: bool
) -> tuple[dict[str, Matrix], str, tuple[str, ...]]:
    """The possible matrices, the question that selects one, and notes."""
    first_row = split_cells(rows[0], separator)
    first_column = [_first_cell(row, separator) for row in rows]
    has_separator = separator is not None and len(rows) > 1
    has_points = any("." in row.split(separator, 1)[-1] for row in rows[1:])
    is_zero_column = separator is None and len(first_row) == 1 and first_row == ["0"] and len(rows) > 1
    column = None if separator != "," or had_heading or had_index else _parse_decimal_column(rows)
    is_heading = not had_heading and (
        (has_separator and (_counts_from_zero(first_row) or ruled))
        or (is_zero_column and all("." in row for row in rows[1:]))
    )
    is_index = not had_index and has_separator and len(first_row) > 1 and _counts_from_zero(first_column)
    is_index_below = (
        not had_index and has_separator and len(first_row) > 1 and len(rows) > 2 and _counts_from_zero(first_column[1:])
    )
    choices: dict[str, Matrix] = {}
    notes = []
    if column is not None and column[1]:
        choices["one column, with decimal commas"] = column[0]
    elif column is not None:
        notes.append("Its commas are read as column separators; write decimals with a point.")
    if is_heading and not (ruled or has_points or len(first_row) > 2):
        notes.append(f"Its first row, {_format_cells(first_row)}, is read as numbers, not as a heading.")
    elif is_heading:
        choices["the first row is a heading"] = matrix[1:]
        if is_index_below:
            choices["the first row and column are headings"] = tuple(row[1:] for row in matrix[1:])
    if is_index and not (has_points or len(rows) > 2):
        notes.append(f"Its first column, {_format_cells(first_column)}, is read as numbers, not as names of the rows.")
    elif is_index:
        choices["the first column numbers the rows"] = tuple(row[1:] for row in matrix)
    if not choices:
        return {"": matrix}, "", tuple(notes)
    choices[
        "two columns" if list(choices) == ["one column, with decimal commas"] else "all are numbers of the matrix"
    ] = matrix
    candidates = (
        [f"the first row, {_format_cells(first_row)}, a heading"] if "the first row is a heading" in choices else []
    )
    candidates += (
        [f"the first column, {_format_cells(first_column)}, a numbering"]
        if "the first column numbers the rows" in choices
        else []
    )
    question = (
        f"Is {' or '.join(candidates)}, or are these numbers of the matrix?"
        if candidates
        else "Are its commas decimal commas?"
    )
    return choices, question, tuple(notes)


def _parse_decimal_column(rows: Sequence[str]) -> tuple[Matrix, bool] | None:
    """Rows such as 0,12 as one column of decimals, and whether that is likely; None if the rows have another form."""
    pieces = [_DECIMAL.fullmatch(row.strip()) for row in rows]
    if len(rows) < 2 or not all(pieces):
        return None
    integers, decimals = zip(*(piece.groups() for piece in pieces if piece), strict=True)
    is_likely = any(len(digits) > 1 for digits in decimals) or all(digits.lstrip("+-") == "0" for digits in integers)
    return tuple((float(row.strip().replace(",", ".")),) for row in rows), is_likely


def decimal_column(rows: Sequence[str]) -> Matrix | None:
    """Rows such as 0,05 as one column, since a column of 05 beside one of 0 makes no sense."""
    column = _parse_decimal_column(rows)
    return column[0] if column and any(re.search(r",0\d", row) for row in rows) else None


def _first_cell(row: str, separator: str | None) -> str:
    return (row.split(separator, 1) or [""])[0].strip()


def _counts_from_zero(values: Sequence[str]) -> bool:
    return all(cell.strip('"') == str(i) for i, cell in enumerate(values))


def _is_consecutive(values: Sequence[str]) -> bool:
    """Whether these are consecutive integers, from any start."""
    return all(map(_INTEGER.fullmatch, values)) and all(
        int(cell) == int(values[0]) + i for i, cell in enumerate(values)
    )


def _are_names(values: Sequence[str]) -> bool:
    return all(_NAME.fullmatch(cell) and not is_number(cell) and cell.lower() not in _NOT_NAMES for cell in values)


def _are_headings(values: Sequence[str]) -> bool:
    return _counts_from_zero(values) or _are_names(values)


def _format_cells(values: Sequence[str]) -> str:
    values = [excerpt(cell)[1:-1] for cell in values if cell]
    return ", ".join(values[:3]) + (", …" if len(values) > 3 else "")
