"""Matrices as nested tuples, which are hashable and fit in a frozen source: their validation, and what a text may mean.

`ParsedText` is the result of reading a text or a file: one matrix, or a question with the matrices to choose from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, product
from math import prod

from attention.base.errors import MatrixError

Matrix = tuple[tuple[float, ...], ...]
Stack = tuple[Matrix, ...]
"""One matrix for each head."""

MAX_SIDE = 1024  # so that no product of two matrices is larger than 1024 × 1024
MAX_NUMBERS = 512 * 1024
_STACKS = ("W_Q", "W_K", "W_V", "W_O", "Q", "K", "V", "S", "bias", "mask", "dropout_mask")
"""The fields that may hold one matrix for each head."""


def validate_matrix(rows: Sequence[Sequence[float]], name: str) -> Matrix:
    """The rows as tuples, if they are a matrix of finite numbers; a bias may also hold −∞.

    Raises:
        MatrixError: no numbers, too many, rows of unequal length, NaN or another infinity.
    """
    width, may_hide = len(rows[0]) if rows else 0, name.startswith(("bias", "mask"))  # with −∞
    _check_size(len(rows), width, name)
    for i, row in enumerate(rows):
        if len(row) != width:
            raise uneven_error(name, i, len(row), width)
        for j, value in enumerate(row):
            if not math.isfinite(value) and not (may_hide and value == -math.inf):
                expected, advice = ("a finite number", "; to hide a key, choose a mask")
                if may_hide:
                    expected, advice = "a finite number or -inf", ""
                raise MatrixError(
                    f"{name} has {value} in row {i}, column {j}, where {expected} is expected: put a number there{advice}."
                )
    return tuple(map(tuple, rows))


def as_stack(matrix: Matrix | Stack) -> Stack:
    """The matrices of a stack; a single matrix as a stack of one."""
    first: object = matrix[0][0] if matrix else 0.0
    return matrix if isinstance(first, tuple) else (matrix,)  # type: ignore[return-value]  # checked above


def _check_size(rows: int, columns: int, name: str) -> None:
    if rows < 1 or columns < 1:
        raise MatrixError(
            f"{name} needs at least one row and one column; got {rows} × {columns}: enter a number, such as 1."
        )
    if max(rows, columns) > MAX_SIDE or rows * columns > MAX_NUMBERS:
        raise too_large_error(name, f"{rows:,} × {columns:,}")


def uneven_error(name: str, row: int, n_numbers: int, width: int) -> MatrixError:
    """The error for a row of another length than the first one."""
    return MatrixError(
        f"{name} needs rows of equal length; row {row} has {n_numbers} number{'' if n_numbers == 1 else 's'}, row 0 has {width}: add the missing numbers, or delete the extra ones."
    )


def too_large_error(name: str, got: str) -> MatrixError:
    """The error for a matrix with too many numbers."""
    return MatrixError(
        f"{name} may have at most 512 × 1024 numbers, and {MAX_SIDE:,} in a row or column; got {got}: use a part of it."
    )


def excerpt(text: str, longest: int = 24) -> str:
    """A quoted excerpt of a text for a sentence: shortened, without invisible characters."""
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")


_SAMPLE_SIZE = 2000  # numbers that are inspected for rounding


@dataclass(frozen=True)
class ParsedText:
    """The matrices that a text may mean.

    Attributes:
        choices: the possible matrices, or stacks of them, by a distinguishing label; a single one if nothing is ambiguous.
        question: the question that selects a choice; "" if nothing is ambiguous.
        notes: sentences on what was recognised, ignored or assumed.
        label: the name in the text, such as W_q; "" without a name.
        names: the names of the rows in a table, and `columns` those of its columns.
        parts: the readings of the single matrices, if the text has several.
        shape: the sizes of all axes as written, rows and columns last; () if several matrices were written.
    """

    choices: Mapping[str, Matrix | Stack]
    question: str = ""
    notes: tuple[str, ...] = ()
    label: str = ""
    shape: tuple[int, ...] = ()
    names: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    parts: tuple[ParsedText, ...] = ()

    @property
    def nbytes(self) -> int:
        """About the bytes that the matrices take."""
        return sum(100 + 32 * len(rows) * len(rows[0]) for each in self.choices.values() for rows in as_stack(each))

    def with_notes(self, *notes: str) -> ParsedText:
        """The reading with further notes."""
        return replace(self, notes=(*self.notes, *notes))

    def choose(self, pick: str | int | None, name: str) -> Matrix | Stack:
        """The only matrix, or the one that `pick` selects by label or index.

        Raises:
            MatrixError: there are several and none is picked, or the choice does not exist.
        """
        names = list(self.choices)
        if isinstance(pick, int) and 0 <= pick < len(names):
            pick = names[pick]
        if isinstance(pick, str) and pick in self.choices:
            return self.choices[pick]
        if pick is None and len(names) == 1:
            return self.choices[names[0]]
        got = "none was chosen" if pick is None else f"got {excerpt(str(pick))}"
        question = self.question or "Which matrix?"
        offered = ", ".join(map(excerpt, names[:4])) + (", …" if len(names) > 4 else "")
        raise MatrixError(f"{name} needs an answer to “{question}”; {got}: choose one of {offered}.")


def batch_reading(rows: Sequence[Sequence[float]], shape: tuple[int, ...], name: str, label: str) -> ParsedText:
    """The rows as one matrix, or as a batch with leading axes, with a question for the matrix that is meant.

    If a field may hold one matrix for each head, the batch itself is a choice, too.

    Raises:
        MatrixError: too many numbers, or a matrix that `validate_matrix` refuses.
    """
    *leading, height, width = shape
    shape_text = " × ".join(map(str, shape))
    if prod(leading) > MAX_SIDE:
        raise too_large_error(name, f"a batch of {prod(leading):,} matrices")
    _check_size(height, width, name)
    if prod(leading) == 1:
        notes = (f"It was written as {shape_text}, a batch of one matrix; that matrix is used.",) if leading else ()
        return ParsedText({label: validate_matrix(rows, name)}, "", notes, label, shape)
    choices: dict[str, Matrix | Stack] = {}
    for i, indices in enumerate(product(*map(range, leading))):
        key = label + "".join(f"[{index}]" for index in indices)
        choices[key] = validate_matrix(rows[i * height : (i + 1) * height], f"{name}{key.removeprefix(label)}")
    if name in _STACKS and prod(leading[:-1]) == 1:
        heads = f"{label}, {len(choices)} heads" if label else f"{len(choices)} heads"
        matrices: Stack = tuple(as_stack(matrix)[0] for matrix in choices.values())
        question = f"Are these {len(choices)} matrices ({shape_text}) the heads, or is one of them meant?"
        return ParsedText({heads: matrices, **choices}, question, (), label, shape)
    return ParsedText(choices, f"Which of the {len(choices)} matrices in this batch ({shape_text})?", (), label, shape)


def combine(readings: Sequence[ParsedText], name: str) -> ParsedText:
    """One reading of all matrices in a text; with a question if there are several."""
    if len(readings) == 1:
        return readings[0]
    choices: dict[str, Matrix | Stack] = {}
    unambiguous = [next(iter(reading.choices.values())) for reading in readings if len(reading.choices) == 1]
    first_matrices = [as_stack(rows)[0] for rows in unambiguous]
    if len(unambiguous) == len(readings) and all(
        len(rows) == 1 and len(rows[0]) == len(first_matrices[0][0]) for rows in first_matrices
    ):
        _check_size(len(first_matrices), len(first_matrices[0][0]), name)
        choices[f"all {len(first_matrices)} as rows"] = tuple(rows[0] for rows in first_matrices)
    for i, reading in enumerate(readings):
        for key, rows in reading.choices.items():
            if not key and rows in choices.values():
                continue
            label = key or f"matrix {i}"
            if choices.get(label, rows) != rows:  # a repeated print of the same matrix is no new choice
                label = f"{label}, matrix {i}"
            choices[label] = rows
    if len(choices) > MAX_SIDE:
        raise too_large_error(name, f"{len(choices):,} matrices")
    notes = dict.fromkeys(note for reading in readings for note in reading.notes)
    question = "Which of these matrices is it?" if len(choices) > 1 else ""
    return ParsedText(choices, question, tuple(notes), parts=tuple(readings))


def _rounded_decimals(matrix: Matrix | Stack) -> int | None:
    """The number of decimals, 3 to 8, to which the numbers appear to be rounded; None if they do not."""
    counts = []
    for number in islice((number for rows in as_stack(matrix) for row in rows for number in row), _SAMPLE_SIZE):
        digits, _, power = repr(number).partition("e")
        fraction = digits.partition(".")[2].rstrip("0")
        counts.append(len(fraction) - int(power or 0) if fraction and not power else len(fraction))
        if counts[-1] > 8:
            return None
    nonzero = [digits for digits in counts if digits]
    longest = max(nonzero, default=0)
    # Nine of ten rounded numbers end in a digit other than 0.
    return longest if longest >= 3 and len(nonzero) >= 3 and 2 * nonzero.count(longest) >= len(nonzero) else None


def rounding_note(matrix: Matrix | Stack) -> str:
    """A note on numbers that appear to be rounded; "" otherwise."""
    if (digits := _rounded_decimals(matrix)) is None:
        return ""
    source = {4: ", as torch prints them", 8: ", as NumPy prints them"}.get(digits, "")
    return f"The numbers have {digits} digits after the point{source}: if they were rounded, the last digits of later steps may differ."
