"""Matrices as nested tuples, which are hashable and fit in a frozen source, and their validation."""

from __future__ import annotations

import math
from collections.abc import Sequence

from attention.errors import MatrixError

Matrix = tuple[tuple[float, ...], ...]
Stack = tuple[Matrix, ...]
"""One matrix for each head."""

MAX_SIDE = 1024  # so that no product of two matrices is larger than 1024 × 1024
MAX_NUMBERS = 512 * 1024


def validate_matrix(rows: Sequence[Sequence[float]], name: str) -> Matrix:
    """The rows as tuples, if they are a matrix of finite numbers; a bias may also hold −∞.

    Raises:
        MatrixError: no numbers, too many, rows of unequal length, NaN or another infinity.
    """
    width, may_hide = len(rows[0]) if rows else 0, allows_minus_inf(name)
    check_size(len(rows), width, name)
    for i, row in enumerate(rows):
        if len(row) != width:
            raise MatrixError(
                f"{name} needs rows of equal length; row {i} has {len(row)} number{'' if len(row) == 1 else 's'}, "
                f"row 0 has {width}: add the missing numbers, or delete the extra ones."
            )
        for j, value in enumerate(row):
            if not math.isfinite(value) and not (may_hide and value == -math.inf):
                expected, advice = (
                    ("a finite number or -inf", "")
                    if may_hide
                    else ("a finite number", "; to hide a key, choose a mask")
                )
                raise MatrixError(
                    f"{name} has {value} in row {i}, column {j}, where {expected} is expected: put a number there{advice}."
                )
    return tuple(map(tuple, rows))


def allows_minus_inf(name: str) -> bool:
    """Whether the matrix of this name may hide keys with −∞, as the bias of the scores."""
    return name.startswith("bias")


def allows_stack(name: str) -> bool:
    """Whether the field of this symbol may hold one matrix for each head."""
    return name in ("W_Q", "W_K", "W_V", "W_O", "Q", "K", "V", "S", "bias", "dropout_mask")


def as_stack(matrix: Matrix | Stack) -> Stack:
    """The matrices of a stack; a single matrix as a stack of one."""
    first: object = matrix[0][0] if matrix else 0.0
    return matrix if isinstance(first, tuple) else (matrix,)  # type: ignore[return-value]  # checked above


def check_size(rows: int, columns: int, name: str) -> None:
    """Checks that a matrix may have this many rows and columns.

    Raises:
        MatrixError: it has no numbers, or too many.
    """
    if rows < 1 or columns < 1:
        raise MatrixError(
            f"{name} needs at least one row and one column; got {rows} × {columns}: enter a number, such as 1."
        )
    if max(rows, columns) > MAX_SIDE or rows * columns > MAX_NUMBERS:
        raise too_large_error(name, f"{rows:,} × {columns:,}")


def too_large_error(name: str, got: str) -> MatrixError:
    """The error for a matrix with too many numbers."""
    return MatrixError(
        f"{name} may have at most 512 × 1024 numbers, and {MAX_SIDE:,} in a row or column; got {got}: use a part of it."
    )


def excerpt(text: str, longest: int = 24) -> str:
    """A quoted excerpt of a text for a sentence: shortened, without invisible characters."""
    return repr(text if len(text) <= longest else text[: longest - 1] + "…")
