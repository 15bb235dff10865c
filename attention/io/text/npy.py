"""A .npy file from an untrusted source, as text."""

from __future__ import annotations

from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.errors import MatrixError
from attention.io.text.matrix import MAX_NUMBERS, MAX_SIDE, excerpt, too_large_error

if TYPE_CHECKING:
    import numpy as np

_MOST_AXES = 6


def format_npy(data: bytes, name: str) -> str:
    """The array of a .npy file, as nested lists with all digits of double precision.

    Raises:
        MatrixError: the file is damaged, or its array is neither a matrix nor a batch of matrices.
    """
    import numpy as np

    shape, dtype, data_offset, _ = read_npy_header(data, name)
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise MatrixError(
            f"{name} needs real numbers of at most 64 bits; got an array of {excerpt(str(dtype))}: save it again with .astype(float)."
        )
    if not 1 <= len(shape) <= _MOST_AXES:
        raise MatrixError(
            f"{name} needs two axes, rows and columns, optionally in a batch; got an array of {len(shape)} axes: save one of its matrices."
        )
    # Checked before loading, since np.load trusts the header and allocates the claimed size.
    shape_text = " × ".join(map(str, shape))
    if min(shape) < 1:
        raise MatrixError(
            f"{name} needs at least one number in every axis; got {shape_text}: save an array with numbers."
        )
    if prod(shape) > MAX_NUMBERS or max(shape[-2:]) > MAX_SIDE:
        raise too_large_error(name, shape_text)
    n_present = (len(data) - data_offset) // dtype.itemsize
    if n_present < prod(shape):
        raise MatrixError(
            f"{name} is {shape_text} by the header of its .npy file; got only {n_present} of {prod(shape)} numbers: upload the complete file."
        )
    return repr(np.load(BytesIO(data), allow_pickle=False).astype(np.float64).tolist())


class Header(NamedTuple):
    """The claims of a .npy header: shape, dtype, the byte offset of the numbers, and whether they are in Fortran order."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    data_offset: int
    fortran: bool


def read_npy_header(data: bytes, name: str) -> Header:
    """The header of a .npy file, or of its first bytes. The claims may be false.

    Raises:
        MatrixError: the header cannot be read.
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
