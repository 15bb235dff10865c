"""Matrices that are written line by line, with names, scales and columns above them as MATLAB, Julia, R and old torch print."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice

from attention.errors import MatrixError
from attention.sources.reading.around import called
from attention.sources.reading.cells import ENOUGH, numbers, separated, tidied
from attention.sources.reading.matrix import MAX_SIDE, checked, shown, too_large
from attention.sources.reading.reading import Reading, several
from attention.sources.reading.table import decimal_column, tabled

_LINE = re.compile(r"[^\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")  # what str.splitlines gives, one after the other
_DASHES = "-=─━═"
_RULE = re.compile(r"[\s|+:=\-─━┼│├┤┌┐└┘┬┴╞╡╪═┃╔╗╚╝╠╣╦╩╬╤╧╟╢]+")
_SLICE = re.compile(r"\s*\(\s*((?:\d+\s*,\s*)+)\.\s*,\s*\.\s*\)\s*=\s*")  # (0 ,.,.) = of torch before 0.4
_LABEL = re.compile(r"\s*(?=.*[^\W\d])(?:[\w\"'`*$(×].*)?[:=]\s*")
_LABELLED = re.compile(r"\s*(?!Unnamed: )([^\W\d][\w ]{0,40}?)\s*[:=]\s*(?=[-+.\d])(.*)")
_COLUMNS = re.compile(r"\s*Columns? \d+(?: (?:to|through|and) \d+)?:?\s*|\s*\\\s*", re.IGNORECASE)
_SAYS_NOTHING = re.compile(
    r"\s*(?:(?:print|display) ?\(.*\)|[a-z]\w*\.[\w.]+\([a-zA-Z_][\w., ]*\)|import .*|from .* import .*|<.*>|\(\d+, ?\d*\)|.*\b(?:shape|dtype)\b.*)"
)
_LONGEST = 300
_MOST_LINES = 16 * MAX_SIDE


@dataclass
class _Block:
    """The lines of one matrix, in sections that stand beside each other."""

    label: str = ""
    sections: list[list[str]] = field(default_factory=lambda: [[]])
    rules: list[int] = field(default_factory=list)  # below how many rows a line is drawn


def lined(text: str, name: str) -> Reading:
    """What the lines of a text hold: rows of one matrix, or several with their names.

    Raises:
        MatrixError: too many lines, or something else than numbers in them.
    """
    if re.search(r"\\[ \t]*[\r\n]", text):  # a table that pandas prints in several parts, with blank lines between them
        text = re.sub(r"\n[ \t]*\r?\n", "\n\\\\\n", text)
    lines = [
        line[0] for line in islice((line for line in _LINE.finditer(text) if not line[0].isspace()), _MOST_LINES + 1)
    ]
    if len(lines) > _MOST_LINES:
        raise too_large(name, f"more than {MAX_SIDE:,} rows")
    if not lines:
        raise MatrixError(
            f"{name} needs at least one number; got {'only blanks' if text else 'nothing'}: paste rows of numbers, such as 1, 0; 0, 1."
        )
    found = [_read(block, name) for block in _blocks(lines) if any(block.sections)]
    if not found:
        raise MatrixError(
            f"{name} needs at least one number; got only words, such as {shown(lines[0].strip())}: paste rows of numbers, such as 1, 0; 0, 1."
        )
    return several(found, name)


def _blocks(lines: list[str]) -> Iterator[_Block]:
    block = _Block()
    for line in lines:
        begins = _LABELLED.match(line)
        if len(line) > _LONGEST and not begins and not _is_rule(line):
            block.sections[-1].append(line)  # words that say something are short
            continue
        slice_ = _SLICE.fullmatch(line)
        if slice_ or begins or _LABEL.fullmatch(line):
            yield block
            index = "".join(f"[{one.strip()}]" for one in slice_[1].split(",")[:-1]) if slice_ else ""
            block = _Block(index or called(line if not begins else begins[1]) or "")
            if begins:
                block.sections[0].append(begins[2])
        elif _is_rule(line):
            block.rules.append(len(block.sections[-1]))
        elif _COLUMNS.fullmatch(line):
            block.sections.append([])
        elif _SAYS_NOTHING.fullmatch(line):
            yield block
            block = _Block()
        else:
            block.sections[-1].append(line.rstrip().removesuffix("\\") if "\\" in line else line)
    yield block


def _is_rule(line: str) -> bool:
    """Whether the line is drawn between two rows of a table."""
    return _RULE.fullmatch(line) is not None and any(dash in line for dash in _DASHES)


def _read(block: _Block, name: str) -> Reading:
    sections = [section for section in block.sections if section]
    if len(sections) > 1:
        read = [tabled(section, name, block.label) for section in sections]
        parts = [next(iter(one.choices.values())) for one in read]
        for i, part in enumerate(parts):
            if len(part) != len(parts[0]) or read[i].question:
                raise MatrixError(
                    f"{name} needs as many rows in all parts of a table; part {i} has {len(part)}, part 0 has {len(parts[0])}: paste the whole table."
                )
        rows = checked([sum(pieces, ()) for pieces in zip(*parts, strict=True)], name)
        return Reading({block.label: rows}, "", read[0].notes, block.label, (len(rows), len(rows[0])))
    rows_ = sections[0]
    if len(rows_) > 1:
        return tabled(rows_, name, block.label, [rule for rule in block.rules if 0 < rule < len(rows_)] == [1])
    # A single line: `;` ends a row, as `write` and MATLAB have it.
    rows_ = rows_[0].rstrip().removesuffix(";").split(";", ENOUGH)
    return _in_a_line(rows_, name, block.label)


def _in_a_line(rows: list[str], name: str, label: str) -> Reading:
    if len(rows) > MAX_SIDE:
        raise too_large(name, f"more than {MAX_SIDE:,} rows")
    rows = tidied(rows)
    separator, comma = separated(rows)
    read = numbers(rows, name, separator, comma)
    kept = checked(read, name)
    shape = len(kept), len(kept[0])
    if (column := decimal_column(rows)) is not None:
        choices = {"one column, with decimal commas": column, "two columns": kept}
        return Reading(choices, "Are its commas decimal commas?", (), label, shape)
    notes: tuple[str, ...] = ()
    if len(rows) > 1 and shape[1] == 2 and all(row.lstrip("+-").startswith("0,") for row in rows):
        notes = ("Its commas are read as standing between two columns; write decimals with a point.",)
    return Reading({label: kept}, "", notes, label, shape)
