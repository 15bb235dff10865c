"""Pool large matrices: each block of cells becomes its number of largest magnitude."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray


MAX_SIDE = 256  # rows or columns of a map on the screen


def pool_blocks(matrix: NDArray[Any], down: int, across: int) -> NDArray[Any]:
    """Returns the number of largest magnitude in each block of `down` rows and `across` columns; for booleans, whether any is True.

    A block without a finite number has none in the result. Blocks at the right and lower edge may be smaller.
    """
    if down == across == 1:
        return matrix
    blocks = _blocks(matrix, down, across)
    if matrix.dtype == bool:
        return np.asarray(blocks.any(axis=-1))
    return np.take_along_axis(blocks, _largest(blocks)[..., None], axis=-1)[..., 0]


def block_offsets(matrix: NDArray[Any], down: int, across: int) -> NDArray[Any]:
    """Returns the offset in its block, counted row by row, of each number that `pool_blocks` returns."""
    offsets = _largest(_blocks(matrix, down, across))
    return offsets.astype(np.min_scalar_type(down * across - 1))


def _blocks(matrix: NDArray[Any], down: int, across: int) -> NDArray[Any]:
    rows, columns = -(-matrix.shape[0] // down), -(-matrix.shape[1] // across)
    padding = False if matrix.dtype == bool else -np.inf
    padded = np.full((rows * down, columns * across), padding, dtype=matrix.dtype)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded.reshape(rows, down, columns, across).transpose(0, 2, 1, 3).reshape(rows, columns, -1)


def _largest(blocks: NDArray[Any]) -> NDArray[Any]:
    index: NDArray[Any] = np.where(np.isfinite(blocks), np.abs(blocks), -1).argmax(axis=-1)
    return index
