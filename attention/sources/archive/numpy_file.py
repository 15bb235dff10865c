"""What numpy.savez, numpy.savez_compressed and numpy.save write, without pickle."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import partial
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any

from attention.errors import FileError, MatrixError
from attention.sources.archive import (
    BOOL,
    DOUBLE,
    FLOAT,
    HALF,
    MOST_ARRAYS,
    MOST_AXES,
    MOST_TEXT,
    Archive,
    Entry,
    Kind,
    damaged,
    misshapen,
    quoted,
    sized,
)
from attention.sources.archive.about import about
from attention.sources.reading.npy import Header, npy_header

if TYPE_CHECKING:
    from torch import Tensor

Read = Callable[[int], bytes]
"""What reads so many bytes from the beginning of a .npy file."""

_HEADER = 2**14  # bytes in which a header must end
_LISTED = b"PK\x01\x02"  # stands before each entry of a zip archive's list
_PACKED = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # another may ask for gigabytes to unpack a byte


def npy(name: str, content: bytes) -> Archive:
    """The one array of a .npy file, without a name.

    Raises:
        FileError: no such file.
    """
    return _archive(name, {"": lambda size: content[:size]})


def npz(name: str, content: bytes) -> Archive:
    """The arrays of a .npz file.

    Raises:
        FileError: no such file.
    """
    # Each entry becomes an object of Python, a thousand bytes for the fifty that it takes in the file.
    if content.count(_LISTED) > MOST_ARRAYS:
        raise FileError(
            f"{name} lists more than {MOST_ARRAYS:,} arrays, the most that are read: save those of attention alone."
        )
    try:
        zipped = zipfile.ZipFile(BytesIO(content))
        found = [one for one in zipped.infolist() if one.filename.endswith(".npy")]
    except Exception:  # a damaged list makes zipfile raise nearly anything
        raise damaged(name, ".npz file as numpy.savez writes it", "its list of arrays cannot be read") from None

    def read(one: zipfile.ZipInfo, size: int) -> bytes:
        if one.compress_type not in _PACKED:
            raise FileError(f"{name} packs its arrays in another way than numpy.savez_compressed: save it with that.")
        try:
            with zipped.open(one) as stream:
                return stream.read(size)
        except Exception:  # a damaged array makes zipfile and its unpackers raise nearly anything
            raise damaged(name, ".npz file as numpy.savez writes it", "an array in it cannot be unpacked") from None

    return _archive(name, {one.filename.removesuffix(".npy"): partial(read, one) for one in found})


def _archive(name: str, files: dict[str, Read]) -> Archive:
    arrays: dict[str, Entry] = {}
    said: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for key, read in files.items():
        called = f"{quoted(key)} in {name}" if key else name
        try:
            header = npy_header(read(_HEADER), called)
        except MatrixError:
            refused[key] = str(damaged(called, ".npy array as numpy.save writes it", "its header cannot be read"))
            continue
        kind, shape = _kind(header), header.shape
        if not all(type(size) is int and size >= 0 for size in shape):
            refused[key] = str(damaged(called, ".npy array as numpy.save writes it", "its header says no shape"))
            continue
        if header.dtype.kind in "US" and len(shape) <= 1 and prod(shape) * header.dtype.itemsize <= MOST_TEXT:
            said[key] = _texts(called, header, read)
        elif kind is None:
            refused[key] = (
                f"{called} needs numbers of at most 64 bits; got an array of {quoted(str(header.dtype))}: "
                "save it again with .astype(float), or a list of texts with numpy.array(tokens, dtype=str)."
            )
        elif len(shape) > MOST_AXES or not prod(shape):
            refused[key] = misshapen(called, shape)
        else:
            arrays[key] = Entry(shape, kind, partial(_load, called, header, kind, read))
    said |= about(said.pop("about", ""))
    return Archive(arrays, said, refused)


def _kind(header: Header) -> Kind | None:
    """As what the numbers are read; None where they are none."""
    kind, size = header.dtype.kind, header.dtype.itemsize
    return {"f": {2: HALF, 4: FLOAT, 8: DOUBLE}.get(size), "b": BOOL, "i": DOUBLE, "u": DOUBLE}.get(kind)


def _load(called: str, header: Header, kind: Kind, read: Read) -> Tensor:
    """The array, no more of the file than it claims to take.

    Raises:
        FileError: there are fewer numbers.
    """
    import torch

    # A copy that may be written to, whatever its bytes' order was.
    return torch.from_numpy(_array(called, header, read).astype(kind.read_as, order="C"))


def _texts(called: str, header: Header, read: Read) -> Any:
    """A list of texts, or a text."""
    found = _array(called, header, read).tolist()
    if header.dtype.kind == "S":
        found = (
            found.decode(errors="replace")
            if isinstance(found, bytes)
            else [one.decode(errors="replace") for one in found]
        )
    return found


def _array(called: str, header: Header, read: Read) -> Any:
    import numpy as np

    count = prod(header.shape)
    content = read(header.begins + count * header.dtype.itemsize)
    there = (len(content) - header.begins) // header.dtype.itemsize
    if there < count:
        raise FileError(
            f"{called} is {sized(header.shape)} by its header; got only {there:,} of {count:,} numbers: take the whole file."
        )
    array = np.frombuffer(content, header.dtype, count, header.begins)
    return array.reshape(header.shape, order="F" if header.fortran else "C")
