"""Matrices in lines of text, with names, scales and column headers as in the output of MATLAB, Julia, R and old torch."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from attention.errors import MatrixError
from attention.io.text.headed_table import decimal_column, parse_table
from attention.io.text.matrix import MAX_SIDE, excerpt, too_large_error, validate_matrix
from attention.io.text.number_cells import MAX_PIECES, detect_separator, parse_numbers, strip_rows
from attention.io.text.parsed import ParsedText, combine
from attention.io.text.printed_formats import label_in

_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")  # a lazy str.splitlines
_DASHES = "-=─━═"
_RULE = re.compile(r"[\s|+:=\-─━┼│├┤┌┐└┘┬┴╞╡╪═┃╔╗╚╝╠╣╦╩╬╤╧╟╢]+")
_SLICE = re.compile(r"\s*\(\s*((?:\d+\s*,\s*)+)\.\s*,\s*\.\s*\)\s*=\s*")  # (0 ,.,.) = of torch before 0.4
_LABEL = re.compile(r"\s*(?=.*[^\W\d])(?:[\w\"'`*$(×].*)?[:=]\s*")
_LABELLED = re.compile(r"\s*(?!Unnamed: )([^\W\d][\w ]{0,40}?)\s*[:=]\s*(?=[-+.\d])(.*)")
_COLUMNS = re.compile(r"\s*Columns? \d+(?: (?:to|through|and) \d+)?:?\s*|\s*\\\s*", re.IGNORECASE)
_IGNORED = re.compile(
    r"\s*(?:(?:print|display) ?\(.*\)|[a-z]\w*\.[\w.]+\([a-zA-Z_][\w., ]*\)|import .*|from .* import .*|<.*>|\(\d+, ?\d*\)|.*\b(?:shape|dtype)\b.*)"
)
_MAX_LABEL_LINE = 300
_MOST_LINES = 16 * MAX_SIDE


@dataclass
class _Block:
    """The lines of one matrix, in sections that are placed side by side."""

    label: str = ""
    sections: list[list[str]] = field(default_factory=lambda: [[]])
    rules: list[int] = field(default_factory=list)  # the number of rows above each horizontal rule


def parse_lines(text: str, name: str) -> ParsedText:
    """The matrices in the lines of a text: rows of one matrix, or several with their names.

    Raises:
        MatrixError: too many lines, or anything but numbers in them.
    """
    if re.search(r"\\[ \t]*[\r\n]", text):  # pandas splits a wide table into parts separated by blank lines
        text = re.sub(r"\n[ \t]*\r?\n", "\n\\\\\n", text)
    lines = [
        line[0] for line in islice((line for line in _LINE.finditer(text) if not line[0].isspace()), _MOST_LINES + 1)
    ]
    if len(lines) > _MOST_LINES:
        raise too_large_error(name, f"more than {MAX_SIDE:,} rows")
    if not lines:
        raise MatrixError(
            f"{name} needs at least one number; got {'only blanks' if text else 'nothing'}: paste rows of numbers, such as 1, 0; 0, 1."
        )
    readings = [_parse_block(block, name) for block in _iter_blocks(lines) if any(block.sections)]
    if not readings:
        raise MatrixError(
            f"{name} needs at least one number; got only words, such as {excerpt(lines[0].strip())}: paste rows of numbers, such as 1, 0; 0, 1."
        )
    return combine(readings, name)


def _iter_blocks(lines: list[str]) -> Iterator[_Block]:
    block = _Block()
    for line in lines:
        labelled = _LABELLED.match(line)
        if len(line) > _MAX_LABEL_LINE and not labelled and not _is_rule(line):
            block.sections[-1].append(line)  # a label is short
            continue
        slice_header = _SLICE.fullmatch(line)
        if slice_header or labelled or _LABEL.fullmatch(line):
            yield block
            index = (
                "".join(f"[{axis_index.strip()}]" for axis_index in slice_header[1].split(",")[:-1])
                if slice_header
                else ""
            )
            block = _Block(index or label_in(line if not labelled else labelled[1]) or "")
            if labelled:
                block.sections[0].append(labelled[2])
        elif _is_rule(line):
            block.rules.append(len(block.sections[-1]))
        elif _COLUMNS.fullmatch(line):
            block.sections.append([])
        elif _IGNORED.fullmatch(line):
            yield block
            block = _Block()
        else:
            block.sections[-1].append(line.rstrip().removesuffix("\\") if "\\" in line else line)
    yield block


def _is_rule(line: str) -> bool:
    """Whether the line is a horizontal rule of a table."""
    return _RULE.fullmatch(line) is not None and any(dash in line for dash in _DASHES)


def _parse_block(block: _Block, name: str) -> ParsedText:
    sections = [section for section in block.sections if section]
    if len(sections) > 1:
        readings = [parse_table(section, name, block.label) for section in sections]
        parts = [next(iter(reading.choices.values())) for reading in readings]
        for i, part in enumerate(parts):
            if len(part) != len(parts[0]) or readings[i].question:
                raise MatrixError(
                    f"{name} needs the same number of rows in all parts of a table; part {i} has {len(part)}, part 0 has {len(parts[0])}: paste the complete table."
                )
        rows = validate_matrix([sum(pieces, ()) for pieces in zip(*parts, strict=True)], name)
        return ParsedText({block.label: rows}, "", readings[0].notes, block.label, (len(rows), len(rows[0])))
    lines = sections[0]
    if len(lines) > 1:
        return parse_table(lines, name, block.label, [rule for rule in block.rules if 0 < rule < len(lines)] == [1])
    # In a single line `;` ends a row, as in `format_matrix` and MATLAB.
    lines = lines[0].rstrip().removesuffix(";").split(";", MAX_PIECES)
    return _parse_single_line(lines, name, block.label)


def _parse_single_line(rows: list[str], name: str, label: str) -> ParsedText:
    if len(rows) > MAX_SIDE:
        raise too_large_error(name, f"more than {MAX_SIDE:,} rows")
    rows = strip_rows(rows)
    separator, comma = detect_separator(rows)
    rows_of_numbers = parse_numbers(rows, name, separator, comma)
    matrix = validate_matrix(rows_of_numbers, name)
    shape = len(matrix), len(matrix[0])
    if (column := decimal_column(rows)) is not None:
        choices = {"one column, with decimal commas": column, "two columns": matrix}
        return ParsedText(choices, "Are its commas decimal commas?", (), label, shape)
    notes: tuple[str, ...] = ()
    if len(rows) > 1 and shape[1] == 2 and all(row.lstrip("+-").startswith("0,") for row in rows):
        notes = ("Its commas are read as column separators; write decimals with a point.",)
    return ParsedText({label: matrix}, "", notes, label, shape)
