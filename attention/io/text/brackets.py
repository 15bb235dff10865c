"""Matrices in brackets: lists of lists, the output of NumPy, torch, JAX and TensorFlow, MATLAB, and complete notebook cells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from attention.errors import MatrixError
from attention.io.text.matrix import MAX_SIDE, excerpt, too_large_error
from attention.io.text.number_cells import MAX_PIECES, cell_error, detect_separator, parse_numbers, strip_rows
from attention.io.text.parsed import ParsedText, batch_reading, combine
from attention.io.text.printed_formats import parse_prefix, strip_suffix

Nested = str | list["Nested"]  # a row is a text, higher levels are lists

_MAX_DEPTH = 6  # axes
_MAX_ROWS = 16 * MAX_SIDE  # in all matrices of a text
_WORDS = re.compile(r"(?:\s*(?:'[^'\n]*'|\"[^\"\n]*\")\s*(?:,|$))+\s*")  # a list of tokens
_MAX_WORDS = 2000
_BRACKET = re.compile(r"[\[\]]")


class _BracketList(NamedTuple):
    """A top-level list of the text, or its end (`nested` is None), with the text before it and the number of rows before it."""

    before: str
    nested: Nested | None
    row: int


def parse_brackets(text: str, name: str) -> ParsedText:
    """The matrices in a text with brackets: one matrix, a batch, or several with their names.

    Raises:
        MatrixError: unbalanced or too many brackets, anything but numbers within them, or anything but names around them.
    """
    matrices: list[tuple[str, list[Nested]]] = []
    ignored: list[str] = []
    is_separate_rows = False  # whether the last matrix consists of separate rows in brackets
    for bracket_list in _iter_lists(text, name):
        text_before, where = bracket_list.before, f"after row {bracket_list.row - 1}" if matrices else "before row 0"
        if matrices:
            if not text_before and bracket_list.nested is not None:
                raise _surroundings_error(name, "[", where)  # an index after a matrix
            same_line, newline, next_lines = strip_suffix(text_before).partition("\n")
            if same_line.strip(" \t\r,;)") and (newline or bracket_list.nested is None):
                raise _surroundings_error(name, bracket_list.before, where)
            text_before = next_lines if newline else same_line
        prefix = parse_prefix(text_before + "\n" if bracket_list.nested is None else text_before)
        if prefix is None:
            raise _surroundings_error(name, text_before, where)
        ignored += prefix.ignored_lines
        if bracket_list.nested is None:
            break
        if isinstance(bracket_list.nested, str) and _WORDS.fullmatch(bracket_list.nested[:_MAX_WORDS]):
            ignored.append(f"{prefix.label} = [{bracket_list.nested.strip()}]")
            continue
        if isinstance(bracket_list.nested, list):
            matrices.append((prefix.label, bracket_list.nested))
        elif is_separate_rows and not prefix.label:
            matrices[-1][1].append(bracket_list.nested)
        else:
            matrices.append((prefix.label, [bracket_list.nested]))
        is_separate_rows = isinstance(bracket_list.nested, str)
        if len(matrices) > MAX_SIDE or (is_separate_rows and len(matrices[-1][1]) > MAX_SIDE):
            raise too_large_error(name, f"more than {MAX_SIDE:,} {'rows' if is_separate_rows else 'matrices'}")
    if not matrices:
        raise MatrixError(f"{name} needs at least one number; got only words in brackets: paste rows of numbers.")
    reading = combine([_read(nested, name, label) for label, nested in matrices], name)
    if not ignored:
        return reading
    more_lines = f" and {len(ignored) - 1} more line{'s' * (len(ignored) > 2)}" if len(ignored) > 1 else ""
    return reading.with_notes(f"The text around the numbers was ignored: {excerpt(ignored[0], 40)}{more_lines}.")


def _read(nested: Nested, name: str, label: str) -> ParsedText:
    """The numbers of a list, at least two levels deep, as a matrix or a batch."""
    shape = _shape(nested, name)
    # At most the pieces that show that a row is too long: a number may be followed by a separate comma.
    rows = [" ".join(row.split(None, 4 * MAX_PIECES)) for row in strip_rows(list(_iter_rows(nested)))]
    separator, comma = detect_separator(rows)
    rows_of_numbers = parse_numbers(rows, name, separator, comma and separator is not None)
    if len({len(row) for row in rows_of_numbers}) == 1 or len(shape) == 1:
        return batch_reading(rows_of_numbers, (*shape, len(rows_of_numbers[0])), name, label)
    odd_row = next(i for i, row in enumerate(rows_of_numbers) if len(row) != len(rows_of_numbers[0]))
    odd_count = f"{len(rows_of_numbers[odd_row])} number{'' if len(rows_of_numbers[odd_row]) == 1 else 's'}"
    raise MatrixError(
        f"{name} needs rows of equal length; row {odd_row} has {odd_count}, row 0 has {len(rows_of_numbers[0])}: add the missing numbers, or delete the extra ones."
    )


def _shape(nested: Nested, name: str) -> tuple[int, ...]:
    if isinstance(nested, str):
        return ()
    shapes = [_shape(child, name) for child in nested]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            sizes = (" × ".join(map(str, size)) or "a row" for size in (shape, shapes[0]))
            raise MatrixError(
                f"{name} needs lists of equal size within a list; list {i} is {next(sizes)}, list 0 is {next(sizes)}: paste one of these matrices."
            )
    return (len(nested), *shapes[0])


def _iter_rows(nested: Nested) -> Iterator[str]:
    if isinstance(nested, str):
        yield nested
    else:
        for child in nested:
            yield from _iter_rows(child)


def _iter_lists(text: str, name: str) -> Iterator[_BracketList]:
    """The top-level lists of a text in order, and finally an empty one with the text after them."""
    open_lists: list[list[Nested]] = []
    position = row = first_row = 0
    text_before = ""
    in_row = False
    for bracket in _BRACKET.finditer(text):
        between, position = text[position : bracket.start()], bracket.end()
        opens = bracket[0] == "["
        if open_lists and (opens or not in_row):
            _check_between(between, row, name, in_row)
        if opens:
            if not open_lists:
                text_before, first_row = between, row
            open_lists.append([])
            if len(open_lists) > _MAX_DEPTH:
                raise MatrixError(
                    f"{name} needs two axes, rows and columns, optionally in a batch; got more than {_MAX_DEPTH} levels of brackets in row {row}, column 0: paste one matrix."
                )
        elif not open_lists:
            raise _unbalanced_error(name, "many", row)
        else:
            node: Nested = open_lists.pop()
            if in_row:
                several_rows = not open_lists and ";" in between
                node = list(between.rstrip().removesuffix(";").split(";", MAX_PIECES)) if several_rows else between
                row += len(node) if several_rows else 1
                if row > _MAX_ROWS or (several_rows and len(node) > MAX_SIDE):
                    raise too_large_error(name, f"more than {_MAX_ROWS if row > _MAX_ROWS else MAX_SIDE:,} rows")
            if open_lists:
                open_lists[-1].append(node)
            else:
                yield _BracketList(text_before, node, first_row)
        in_row = opens
    if open_lists:
        raise _unbalanced_error(name, "few", row)
    yield _BracketList(text[position:], None, row)


def _check_between(between: str, row: int, name: str, inside: bool) -> None:
    """Checks that there are no numbers or words between two brackets."""
    stray = between.strip(" \t\r\n,;")
    if stray and (inside or len(between) > 200 or strip_suffix(between)):
        raise cell_error(name, stray, row, 0, "a row in brackets")


def _unbalanced_error(name: str, too: str, row: int) -> MatrixError:
    return MatrixError(
        f"{name} needs a closing bracket for each opening one; got one too {too} at row {row}, column 0: copy the matrix from its first to its last bracket."
    )


def _surroundings_error(name: str, words: str, where: str) -> MatrixError:
    return MatrixError(
        f"{name} has {excerpt(words.strip())} {where}, where only a name, tensor(…) or array(…) is expected: paste only the brackets and their content."
    )
