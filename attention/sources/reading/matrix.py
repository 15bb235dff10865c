"""A matrix of numbers as tuples, which can be hashed and kept in a frozen source; and what it must be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attention.errors import MatrixError

Matrix = tuple[tuple[float, ...], ...]
Stack = tuple[Matrix, ...]
"""A matrix for each head."""

MAX_SIDE = 1024  # so that no product of two matrices is larger than 1024 × 1024
MAX_NUMBERS = 512 * 1024


def checked(rows: Sequence[Sequence[float]], name: str) -> Matrix:
    """The rows as tuples, if they are a matrix of finite numbers; where it `hides` keys, −∞ is a number too.

    Raises:
        MatrixError: no numbers, too many, rows of unequal length, NaN or an infinity.
    """
    width, hidden = len(rows[0]) if rows else 0, hides(name)
    check_size(len(rows), width, name)
    for i, row in enumerate(rows):
        if len(row) != width:
            raise MatrixError(
                f"{name} needs as many numbers in every row; row {i} has {len(row)} number{'' if len(row) == 1 else 's'}, "
                f"row 0 has {width}: add the missing numbers, or delete the extra ones."
            )
        for j, value in enumerate(row):
            if not math.isfinite(value) and not (hidden and value == -math.inf):
                expected, advice = (
                    ("a finite number or -inf", "") if hidden else ("a finite number", "; to hide a key, choose a mask")
                )
                raise MatrixError(
                    f"{name} has {value} in row {i}, column {j}, where {expected} is expected: put a number there{advice}."
                )
    return tuple(map(tuple, rows))


def hides(name: str) -> bool:
    """Whether the matrix of this name may hide keys with −∞: the one that is added to the scores."""
    return name.startswith("bias")


def stacks(name: str) -> bool:
    """Whether there may be a matrix of this name for each head."""
    return name in ("W_Q", "W_K", "W_V", "W_O", "Q", "K", "V", "S", "bias", "dropout_mask")


def of_heads(given: Matrix | Stack) -> Stack:
    """The matrices of a stack; of what is one matrix, that one."""
    first: object = given[0][0] if given else 0.0
    return given if isinstance(first, tuple) else (given,)  # type: ignore[return-value]  # it has looked


def check_size(rows: int, columns: int, name: str) -> None:
    """Nothing, if a matrix may have this many rows and columns.

    Raises:
        MatrixError: it has no numbers, or too many.
    """
    if rows < 1 or columns < 1:
        raise MatrixError(
            f"{name} needs at least one row and one column; got {rows} × {columns}: give it a number, such as 1."
        )
    if max(rows, columns) > MAX_SIDE or rows * columns > MAX_NUMBERS:
        raise too_large(name, f"{rows:,} × {columns:,}")


def too_large(name: str, got: str) -> MatrixError:
    """The error for a matrix of more numbers than are shown here."""
    return MatrixError(
        f"{name} may have at most 512 × 1024 numbers, and {MAX_SIDE:,} in a row or column; got {got}: give a part of it."
    )


def shown(text: str, longest: int = 24) -> str:
    """A piece of someone's text as a sentence can quote it: cut, and with nothing invisible in it."""
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")
