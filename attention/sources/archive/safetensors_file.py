"""What safetensors writes: a header of JSON that says where each tensor lies, and the tensors."""

from __future__ import annotations

import json
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from attention.errors import FileError
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
from attention.sources.archive.about import about, listed

if TYPE_CHECKING:
    from torch import Tensor

_KIND = ".safetensors file"
_LENGTH = 8  # bytes of the header's own length
# The name of each kind in the file: as torch calls it, in how many bytes it lies there, and as what it is read.
_KINDS: dict[str, tuple[str, int, Kind]] = {
    "F64": ("float64", 8, DOUBLE),
    "F32": ("float32", 4, FLOAT),
    "F16": ("float16", 2, HALF),
    "BF16": ("bfloat16", 2, HALF),
    "F8_E4M3": ("float8_e4m3fn", 1, HALF),
    "F8_E5M2": ("float8_e5m2", 1, HALF),
    "I64": ("int64", 8, DOUBLE),
    "I32": ("int32", 4, DOUBLE),
    "I16": ("int16", 2, DOUBLE),
    "I8": ("int8", 1, DOUBLE),
    "U8": ("uint8", 1, DOUBLE),
    "BOOL": ("bool", 1, BOOL),
}


def safetensors(name: str, content: bytes) -> Archive:
    """The tensors of a .safetensors file, and what its metadata say.

    Raises:
        FileError: no such file.
    """
    length = int.from_bytes(content[:_LENGTH], "little")
    begins = _LENGTH + length
    if length > MOST_TEXT:
        raise FileError(
            f"{name} claims a header of {length:,} bytes; one of at most {MOST_TEXT:,} is read: save fewer tensors."
        )
    if len(content) < begins:
        raise damaged(name, _KIND, f"its header of {length:,} bytes is not all there")
    try:
        header = json.loads(content[_LENGTH:begins])
        metadata = header.pop("__metadata__", {})
        assert all(isinstance(one, dict) for one in (*header.values(), metadata))
    except (ValueError, RecursionError, AttributeError, TypeError, AssertionError):
        raise damaged(name, _KIND, "its header is no list of tensors") from None
    if len(header) > MOST_ARRAYS:
        raise FileError(
            f"{name} has {len(header):,} tensors; at most {MOST_ARRAYS:,} are read: save those of attention alone."
        )
    arrays: dict[str, Entry] = {}
    refused: dict[str, str] = {}
    tensors = memoryview(content)[begins:]
    for key, one in header.items():
        found = _entry(f"{quoted(key)} in {name}", one, tensors)
        if isinstance(found, str):
            refused[key] = found
        else:
            arrays[key] = found
    return Archive(arrays, _said(metadata), refused)


def _entry(called: str, one: dict[str, Any], tensors: memoryview) -> Entry | str:
    """A tensor as the header has it; a sentence where that cannot be."""
    shape, places = _whole(one.get("shape")), _whole(one.get("data_offsets"))
    if shape is None or places is None or len(places) != 2 or not isinstance(one.get("dtype"), str):
        return str(damaged(called, "tensor", "its header says no shape and place"))
    if one["dtype"] not in _KINDS:
        return f"{called} needs numbers of a kind such as F32 or BF16; got {quoted(one['dtype'])}: save it again with .float()."
    if len(shape) > MOST_AXES or not prod(shape):
        return misshapen(called, shape)
    torchs, size, kind = _KINDS[one["dtype"]]
    first, last = places
    if last > len(tensors) or last - first != prod(shape) * size:
        return f"{called} is {sized(shape)} by its header, and its numbers are not all there: take the whole file."
    return Entry(shape, kind, partial(_load, tensors, first, last, torchs, shape, kind))


def _load(tensors: memoryview, first: int, last: int, torchs: str, shape: tuple[int, ...], kind: Kind) -> Tensor:
    import torch

    found = torch.frombuffer(bytearray(tensors[first:last]), dtype=getattr(torch, torchs))
    return found.to(getattr(torch, kind.read_as)).reshape(shape)


def _whole(numbers: Any) -> tuple[int, ...] | None:
    """A list of whole numbers from zero; None where it is something else."""
    good = isinstance(numbers, list) and all(type(one) is int and one >= 0 for one in numbers)
    return tuple(numbers) if good else None


def _said(metadata: dict[str, Any]) -> dict[str, Any]:
    """What the metadata say, which are all texts: an export's own under "trace", tokens as JSON, numbers."""
    texts = {key: one for key, one in metadata.items() if isinstance(one, str)}
    said = about(texts.pop("trace", ""))
    return {**{key: listed(one) for key, one in texts.items()}, **said}
