"""The formats of numpy.savez, numpy.savez_compressed and numpy.save, without pickle."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from functools import partial
from io import BytesIO
from math import prod
from typing import TYPE_CHECKING, Any

from attention.errors import FileError, MatrixError
from attention.io.arrays import (
    BOOL,
    DOUBLE,
    FLOAT,
    HALF,
    MAX_ARRAYS,
    MAX_AXES,
    MAX_TEXT_BYTES,
    Archive,
    Entry,
    Kind,
    damaged_error,
    format_shape,
    natural_numbers,
    quote,
    shape_problem,
)
from attention.io.arrays.metadata import parse_about
from attention.io.text.npy import Header, read_npy_header

if TYPE_CHECKING:
    from torch import Tensor

ReadPrefix = Callable[[int], bytes]
"""Returns the first bytes of a .npy file, up to the given number."""

_MAX_HEADER = 2**14  # bytes
_ENTRY_SIGNATURE = b"PK\x01\x02"  # begins each entry in the directory of a zip archive
_COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # other methods may need gigabytes to unpack a byte


def npy(name: str, content: bytes) -> Archive:
    """The only array of a .npy file, without a name.

    Raises:
        FileError: the file is damaged.
    """
    return _read_archive(name, {"": lambda size: content[:size]})


def npz(name: str, content: bytes) -> Archive:
    """The arrays of a .npz file.

    Raises:
        FileError: the file is damaged.
    """
    # zipfile makes an object of a thousand bytes from each entry of fifty bytes.
    if content.count(_ENTRY_SIGNATURE) > MAX_ARRAYS:
        raise FileError(
            f"{name} lists more than {MAX_ARRAYS:,} arrays, which is the limit: save only those of attention."
        )
    try:
        archive = zipfile.ZipFile(BytesIO(content))
        entries = [entry for entry in archive.infolist() if entry.filename.endswith(".npy")]
    except Exception:  # a damaged list makes zipfile raise nearly anything
        raise damaged_error(name, ".npz file as numpy.savez writes it", "its list of arrays cannot be read") from None

    def read(entry: zipfile.ZipInfo, size: int) -> bytes:
        if entry.compress_type not in _COMPRESSIONS:
            raise FileError(
                f"{name} is compressed in another way than by numpy.savez_compressed: save it with that function."
            )
        try:
            with archive.open(entry) as stream:
                return stream.read(size)
        except Exception:  # a damaged array makes zipfile and its unpackers raise nearly anything
            raise damaged_error(
                name, ".npz file as numpy.savez writes it", "an array in it cannot be unpacked"
            ) from None

    return _read_archive(name, {entry.filename.removesuffix(".npy"): partial(read, entry) for entry in entries})


def _read_archive(name: str, files: dict[str, ReadPrefix]) -> Archive:
    arrays: dict[str, Entry] = {}
    metadata: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for key, read in files.items():
        label = f"{quote(key)} in {name}" if key else name
        try:
            header = read_npy_header(read(_MAX_HEADER), label)
        except MatrixError:
            refused[key] = str(damaged_error(label, ".npy array as numpy.save writes it", "its header cannot be read"))
            continue
        kind, shape = _kind_of(header), natural_numbers(header.shape)
        if shape is None:
            refused[key] = str(
                damaged_error(label, ".npy array as numpy.save writes it", "its header has no valid shape")
            )
            continue
        if header.dtype.kind in "US" and len(shape) <= 1 and prod(shape) * header.dtype.itemsize <= MAX_TEXT_BYTES:
            metadata[key] = _load_texts(label, header, read)
        elif kind is None:
            refused[key] = (
                f"{label} needs numbers of at most 64 bits; got an array of {quote(str(header.dtype))}: "
                "save it again with .astype(float), or a list of texts with numpy.array(tokens, dtype=str)."
            )
        elif len(shape) > MAX_AXES or not prod(shape):
            refused[key] = shape_problem(label, shape)
        else:
            arrays[key] = Entry(shape, kind, partial(_load, label, header, kind, read))
    metadata |= parse_about(metadata.pop("about", ""))
    return Archive(arrays, metadata, refused)


def _kind_of(header: Header) -> Kind | None:
    """The kind of the numbers; None if the array has no numbers."""
    kind, size = header.dtype.kind, header.dtype.itemsize
    return {"f": {2: HALF, 4: FLOAT, 8: DOUBLE}.get(size), "b": BOOL, "i": DOUBLE, "u": DOUBLE}.get(kind)


def _load(label: str, header: Header, kind: Kind, read: ReadPrefix) -> Tensor:
    """The array; reads no more of the file than its header claims.

    Raises:
        FileError: there are fewer numbers than the header claims.
    """
    import torch

    # A writable copy in native byte order.
    return torch.from_numpy(_load_array(label, header, read).astype(kind.dtype, order="C"))


def _load_texts(label: str, header: Header, read: ReadPrefix) -> Any:
    """A list of texts, or a text."""
    texts = _load_array(label, header, read).tolist()
    if header.dtype.kind == "S":
        texts = (
            texts.decode(errors="replace")
            if isinstance(texts, bytes)
            else [text.decode(errors="replace") for text in texts]
        )
    return texts


def _load_array(label: str, header: Header, read: ReadPrefix) -> Any:
    import numpy as np

    count = prod(header.shape)
    content = read(header.data_offset + count * header.dtype.itemsize)
    n_present = (len(content) - header.data_offset) // header.dtype.itemsize
    if n_present < count:
        raise FileError(
            f"{label} is {format_shape(header.shape)} by its header; got only {n_present:,} of {count:,} numbers: use the complete file."
        )
    array = np.frombuffer(content, header.dtype, count, header.data_offset)
    return array.reshape(header.shape, order="F" if header.fortran else "C")
