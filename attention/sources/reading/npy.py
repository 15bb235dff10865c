"""A .npy file, whose header is not believed, as text."""

from __future__ import annotations

from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.errors import MatrixError
from attention.sources.reading.matrix import MAX_NUMBERS, MAX_SIDE, shown, too_large

if TYPE_CHECKING:
    import numpy as np

_MOST_AXES = 6


def npy_text(data: bytes, name: str) -> str:
    """The array that numpy.save wrote, as nested lists of all its digits in double precision.

    Raises:
        MatrixError: no such file, a damaged one, or an array that is neither a matrix nor a batch of them.
    """
    import numpy as np

    shape, dtype, begins, _ = npy_header(data, name)
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise MatrixError(
            f"{name} needs real numbers of at most 64 bits; got an array of {shown(str(dtype))}: save it again with .astype(float)."
        )
    if not 1 <= len(shape) <= _MOST_AXES:
        raise MatrixError(
            f"{name} has two axes, rows and columns, and may be a batch; got an array of {len(shape)} axes: save one matrix of it."
        )
    # Before a byte of it is loaded: np.load believes the header and makes room for what it claims.
    said = " × ".join(map(str, shape))
    if min(shape) < 1:
        raise MatrixError(f"{name} needs at least one number in every axis; got {said}: save an array with numbers.")
    if prod(shape) > MAX_NUMBERS or max(shape[-2:]) > MAX_SIDE:
        raise too_large(name, said)
    there = (len(data) - begins) // dtype.itemsize
    if there < prod(shape):
        raise MatrixError(
            f"{name} is {said} by the header of its .npy file; got only {there} of {prod(shape)} numbers: upload the whole file."
        )
    return repr(np.load(BytesIO(data), allow_pickle=False).astype(np.float64).tolist())


class Header(NamedTuple):
    """What a .npy file claims to hold: its shape, the kind of its numbers, the byte where they begin, and their order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    begins: int
    fortran: bool


def npy_header(data: bytes, name: str) -> Header:
    """The header of a .npy file, or of its first bytes. It says what is claimed, not what is there.

    Raises:
        MatrixError: there is none.
    """
    from numpy.lib import format as npy

    stream = BytesIO(data)
    try:
        version = npy.read_magic(stream)
        header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, fortran, dtype = header(stream)
    except Exception:  # a damaged header makes NumPy raise nearly anything
        raise MatrixError(
            f"{name} needs a .npy file as numpy.save writes it; got {len(data):,} bytes with a header that cannot be read: save it again, or as .csv."
        ) from None
    return Header(shape, dtype, stream.tell(), fortran)
