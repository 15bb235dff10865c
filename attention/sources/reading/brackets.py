"""Matrices that are written in brackets: lists of lists, what NumPy, torch, JAX and TensorFlow print, MATLAB, whole cells of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from attention.errors import MatrixError
from attention.sources.reading.around import after, before
from attention.sources.reading.cells import ENOUGH, numbers, refused, separated, tidied
from attention.sources.reading.matrix import MAX_SIDE, shown, too_large
from attention.sources.reading.reading import Reading, several, stack

Nested = str | list["Nested"]  # a row is a text, everything else a list

_DEEPEST = 6  # axes
_MAX_ROWS = 16 * MAX_SIDE  # of all matrices of a text
_WORDS = re.compile(r"(?:\s*(?:'[^'\n]*'|\"[^\"\n]*\")\s*(?:,|$))+\s*")  # a list of tokens
_LONGEST = 2000
_BRACKET = re.compile(r"[\[\]]")


class _List(NamedTuple):
    """A list of the text, or its end; what stands before it, and how many rows there were."""

    before: str
    nested: Nested | None
    row: int


def bracketed(text: str, name: str) -> Reading:
    """What a text with brackets holds: one matrix, a batch, or several with their names.

    Raises:
        MatrixError: brackets that do not match, too many of them, or something else than numbers within or names around.
    """
    found: list[tuple[str, list[Nested]]] = []
    left_out: list[str] = []
    loose = False  # whether the last of them is rows in brackets of their own, one after the other
    for one in _lists(text, name):
        stood, where = one.before, f"after row {one.row - 1}" if found else "before row 0"
        if found:
            if not stood and one.nested is not None:
                raise _around(name, "[", where)  # an index
            rest, newline, lower = after(stood).partition("\n")
            if rest.strip(" \t\r,;)") and (newline or one.nested is None):
                raise _around(name, one.before, where)
            stood = lower if newline else rest
        named = before(stood + "\n" if one.nested is None else stood)
        if named is None:
            raise _around(name, stood, where)
        left_out += named.left_out
        if one.nested is None:
            break
        if isinstance(one.nested, str) and _WORDS.fullmatch(one.nested[:_LONGEST]):
            left_out.append(f"{named.label} = [{one.nested.strip()}]")
            continue
        if isinstance(one.nested, list):
            found.append((named.label, one.nested))
        elif loose and not named.label:
            found[-1][1].append(one.nested)
        else:
            found.append((named.label, [one.nested]))
        loose = isinstance(one.nested, str)
        if len(found) > MAX_SIDE or (loose and len(found[-1][1]) > MAX_SIDE):
            raise too_large(name, f"more than {MAX_SIDE:,} {'rows' if loose else 'matrices'}")
    if not found:
        raise MatrixError(f"{name} needs at least one number; got only words in brackets: paste rows of numbers.")
    reading = several([_read(nested, name, label) for label, nested in found], name)
    if not left_out:
        return reading
    more = f" and {len(left_out) - 1} more line{'s' * (len(left_out) > 2)}" if len(left_out) > 1 else ""
    return reading.noting(f"Left out is what stands around the numbers: {shown(left_out[0], 40)}{more}.")


def _read(nested: Nested, name: str, label: str) -> Reading:
    """The numbers of a list, at least two levels deep, as a matrix or a batch."""
    shape = _shape(nested, name)
    # A number, its comma, and more.
    rows = [" ".join(row.split(None, 4 * ENOUGH)) for row in tidied(list(_rows(nested)))]
    separator, comma = separated(rows)
    read = numbers(rows, name, separator, comma and separator is not None)
    if len({len(row) for row in read}) == 1 or len(shape) == 1:
        return stack(read, (*shape, len(read[0])), name, label)
    odd = next(i for i, row in enumerate(read) if len(row) != len(read[0]))
    some = f"{len(read[odd])} number{'' if len(read[odd]) == 1 else 's'}"
    raise MatrixError(
        f"{name} needs as many numbers in every row; row {odd} of all has {some}, row 0 has {len(read[0])}: add the missing numbers, or delete the extra ones."
    )


def _shape(nested: Nested, name: str) -> tuple[int, ...]:
    if isinstance(nested, str):
        return ()
    shapes = [_shape(one, name) for one in nested]
    for i, shape in enumerate(shapes):
        if shape != shapes[0]:
            sizes = (" × ".join(map(str, size)) or "a row" for size in (shape, shapes[0]))
            raise MatrixError(
                f"{name} needs lists of one size within a list; list {i} is {next(sizes)}, list 0 is {next(sizes)}: paste one matrix of them."
            )
    return (len(nested), *shapes[0])


def _rows(nested: Nested) -> Iterator[str]:
    if isinstance(nested, str):
        yield nested
    else:
        for one in nested:
            yield from _rows(one)


def _lists(text: str, name: str) -> Iterator[_List]:
    """The lists of a text one after the other, and at last an empty one with what stands behind them."""
    above: list[list[Nested]] = []
    at = row = begun = 0
    stood = ""
    inside = False
    for bracket in _BRACKET.finditer(text):
        between, at = text[at : bracket.start()], bracket.end()
        opens = bracket[0] == "["
        if above and (opens or not inside):
            _check_between(between, row, name, inside)
        if opens:
            if not above:
                stood, begun = between, row
            above.append([])
            if len(above) > _DEEPEST:
                raise MatrixError(
                    f"{name} has two axes, rows and columns, and may be a batch; got more than {_DEEPEST} levels of brackets in row {row}, column 0: paste one matrix."
                )
        elif not above:
            raise _unbalanced(name, "many", row)
        else:
            node: Nested = above.pop()
            if inside:
                several_rows = not above and ";" in between
                node = list(between.rstrip().removesuffix(";").split(";", ENOUGH)) if several_rows else between
                row += len(node) if several_rows else 1
                if row > _MAX_ROWS or (several_rows and len(node) > MAX_SIDE):
                    raise too_large(name, f"more than {_MAX_ROWS if row > _MAX_ROWS else MAX_SIDE:,} rows")
            if above:
                above[-1].append(node)
            else:
                yield _List(stood, node, begun)
        inside = opens
    if above:
        raise _unbalanced(name, "few", row)
    yield _List(text[at:], None, row)


def _check_between(between: str, row: int, name: str, inside: bool) -> None:
    """Nothing, if between two brackets there is no number and no word."""
    stray = between.strip(" \t\r\n,;")
    if stray and (inside or len(between) > 200 or after(between)):
        raise refused(name, stray, row, 0, "a row in brackets")


def _unbalanced(name: str, too: str, row: int) -> MatrixError:
    return MatrixError(
        f"{name} needs a closing bracket for each opening one; got one too {too} at row {row}, column 0: copy the matrix from its first bracket to its last."
    )


def _around(name: str, words: str, where: str) -> MatrixError:
    return MatrixError(
        f"{name} has {shown(words.strip())} {where}, where only a name, tensor(…) or array(…) is expected: paste the brackets and what is in them."
    )
