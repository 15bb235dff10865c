"""Large matrices as smaller ones: each block of cells as the one number in it that stands out most."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


def pooled(matrix: NDArray[Any], down: int, across: int) -> NDArray[Any]:
    """The number of largest size in each block of `down` rows and `across` columns; for booleans, whether any is True.

    A block without any finite number has none afterwards either. Blocks at the right and lower edge may be smaller.
    """
    if down == across == 1:
        return matrix
    rows, columns = -(-matrix.shape[0] // down), -(-matrix.shape[1] // across)
    nothing = False if matrix.dtype == bool else -np.inf
    padded = np.full((rows * down, columns * across), nothing, dtype=matrix.dtype)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    blocks = padded.reshape(rows, down, columns, across).transpose(0, 2, 1, 3).reshape(rows, columns, -1)
    largest = np.where(np.isfinite(blocks), np.abs(blocks), -1).argmax(axis=-1)
    return np.take_along_axis(blocks, largest[..., None], axis=-1)[..., 0]
