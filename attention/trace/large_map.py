"""A query × key matrix that is too large to keep: its rows as they are read, and of each block of cells its number of largest magnitude."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_SIDE = 256
"""The most blocks of rows, and of columns, that are kept of a matrix; as many cells a map on the screen has at most."""


class BlockMaxima(NamedTuple):
    """The number of largest magnitude in each block of a matrix; blocks at the right and lower edge may be smaller.

    Attributes:
        numbers: [block_row block_column]; a block without a finite number has none.
        offsets: where each number stands in its block, counted row by row; of equal numbers, the first.
        down: the rows of a block; `across` its columns.
    """

    numbers: NDArray[Any]
    offsets: NDArray[Any]
    down: int
    across: int

    @classmethod
    def of(cls, matrix: NDArray[Any], down: int, across: int) -> BlockMaxima:
        """Those of a matrix, in a tenth of the time of `pool_blocks` and `block_offsets`."""
        import torch
        from torch.nn.functional import max_pool2d

        magnitudes = torch.from_numpy(np.where(np.isfinite(matrix), np.abs(matrix), -1))
        size = (down, across)
        _, cells = max_pool2d(magnitudes[None], size, size, ceil_mode=True, return_indices=True)
        rows, columns = np.divmod(cells[0].numpy(), matrix.shape[1])
        offsets = rows % down * across + columns % across
        return cls(matrix[rows, columns], offsets.astype(_smallest_type(down * across)), down, across)

    @classmethod
    def stacked(cls, parts: Sequence[BlockMaxima]) -> BlockMaxima:
        """Those of a matrix from those of parts of its rows, of which each but the last has a multiple of `down` rows."""
        numbers, offsets = (np.concatenate([part[i] for part in parts]) for i in (0, 1))
        return cls(numbers, offsets, parts[0].down, parts[0].across)

    @property
    def places(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """The row and the column of each number in the matrix, each [block_row block_column]."""
        rows, columns = np.indices(self.numbers.shape)
        return rows * self.down + self.offsets // self.across, columns * self.across + self.offsets % self.across

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.numbers.nbytes + self.offsets.nbytes

    def joined(self, down: int, across: int) -> BlockMaxima:
        """Those of blocks of `down` × `across` of these blocks."""
        if down == across == 1:
            return self
        largest = BlockMaxima.of(self.numbers, down, across)
        rows, columns = (places[largest.places] for places in self.places)
        down, across = down * self.down, across * self.across
        offsets = rows % down * across + columns % across
        return BlockMaxima(largest.numbers, offsets.astype(_smallest_type(down * across)), down, across)


@dataclass(frozen=True, eq=False)
class RowsOnDemand:
    """A matrix whose rows are computed when they are read: `matrix[rows, columns]` of two slices; `np.asarray` makes the whole of it.

    Attributes:
        shape: its rows and columns.
        dtype: of its numbers.
        rows: computes some of its rows.
        kept: its block maxima, if somebody keeps them.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    rows: Callable[[slice], NDArray[Any]]
    kept: Callable[[], BlockMaxima] | None = None
    ndim = 2

    def __getitem__(self, place: tuple[slice, slice]) -> NDArray[Any]:
        rows, columns = place
        return self.rows(rows)[:, columns]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self.rows(slice(None)).astype(dtype or self.dtype, copy=False)


def maxima_of(matrix: NDArray[Any] | RowsOnDemand, part: tuple[slice, slice], down: int, across: int) -> BlockMaxima:
    """The block maxima of a part of a matrix, of which a few rows at a time are computed."""
    rows, columns = (range(size)[place] for size, place in zip(matrix.shape, part, strict=True))
    if isinstance(matrix, RowsOnDemand) and matrix.kept and (len(rows), len(columns)) == matrix.shape:
        kept = matrix.kept()
        if not (down % kept.down or across % kept.across):
            return kept.joined(down // kept.down, across // kept.across)
    return BlockMaxima.stacked([BlockMaxima.of(band, down, across) for band in bands_of(matrix, part, down)])


def bands_of(matrix: NDArray[Any] | RowsOnDemand, part: tuple[slice, slice], down: int) -> Iterator[NDArray[Any]]:
    """A part of a matrix in bands of about `MAX_SIDE` rows; each but the last has whole blocks of `down` rows."""
    rows, n_rows = range(matrix.shape[0])[part[0]], max(1, MAX_SIDE // down) * down
    for start in range(rows.start, rows.stop, n_rows):
        yield matrix[slice(start, min(start + n_rows, rows.stop)), part[1]]


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
    return offsets.astype(_smallest_type(down * across))


def _smallest_type(n_cells: int) -> np.dtype[Any]:
    return np.min_scalar_type(n_cells - 1)


def _blocks(matrix: NDArray[Any], down: int, across: int) -> NDArray[Any]:
    rows, columns = -(-matrix.shape[0] // down), -(-matrix.shape[1] // across)
    padding = False if matrix.dtype == bool else -np.inf
    padded = np.full((rows * down, columns * across), padding, dtype=matrix.dtype)
    padded[: matrix.shape[0], : matrix.shape[1]] = matrix
    return padded.reshape(rows, down, columns, across).transpose(0, 2, 1, 3).reshape(rows, columns, -1)


def _largest(blocks: NDArray[Any]) -> NDArray[Any]:
    index: NDArray[Any] = np.where(np.isfinite(blocks), np.abs(blocks), -1).argmax(axis=-1)
    return index
