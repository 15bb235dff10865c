"""A matrix from a .npy file, whose header is not believed."""

from __future__ import annotations

from io import BytesIO

from attention.errors import MatrixError
from attention.sources.reading.matrix import Matrix, check_size, checked, shown


def read_npy(data: bytes, name: str) -> Matrix:
    """The rows of an array that numpy.save wrote, in double precision; a 1-D array is one row.

    Raises:
        MatrixError: no such file, a damaged one, or an array that is no matrix of finite numbers.
    """
    import numpy as np
    from numpy.lib import format as npy

    stream = BytesIO(data)
    try:
        version = npy.read_magic(stream)
        header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}[version]
        shape, _, dtype = header(stream)
    except Exception:  # a damaged header makes NumPy raise nearly anything
        raise MatrixError(
            f"{name} needs a .npy file as numpy.save writes it; got {len(data):,} bytes with a header that cannot be read: save it again, or as .csv."
        ) from None
    if dtype.kind not in "fiu" or dtype.itemsize > 8:
        raise MatrixError(
            f"{name} needs real numbers of at most 64 bits; got an array of {shown(str(dtype))}: save it again with .astype(float)."
        )
    if len(shape) not in (1, 2):
        raise MatrixError(
            f"{name} has two axes, rows and columns; got an array of {len(shape)} axes: save one matrix of it, such as {name}[0]."
        )
    rows, columns = shape if len(shape) == 2 else (1, *shape)
    # Before a byte of it is loaded: np.load believes the header and makes room for what it claims.
    check_size(rows, columns, name)
    there = (len(data) - stream.tell()) // dtype.itemsize
    if there < rows * columns:
        raise MatrixError(
            f"{name} is {rows} × {columns} by the header of its .npy file; got only {there} of {rows * columns} numbers: upload the whole file."
        )
    array = np.load(BytesIO(data), allow_pickle=False).astype(np.float64).reshape(rows, columns)
    return checked(array.tolist(), name)
