"""The safetensors format: a JSON header with the position of each tensor, followed by the tensors."""

from __future__ import annotations

import json
from functools import partial
from math import prod
from typing import TYPE_CHECKING, Any

from attention.errors import FileError
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
from attention.io.arrays.metadata import parse_about, parse_json_or_text

if TYPE_CHECKING:
    from torch import Tensor

_KIND = ".safetensors file"
_LENGTH_BYTES = 8  # bytes of the length of the header
# For each type name in the file: the torch dtype, its bytes, and the kind to which it is converted.
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
    """The tensors of a .safetensors file, and its metadata.

    Raises:
        FileError: the file is damaged, or exceeds a limit.
    """
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    data_offset = _LENGTH_BYTES + length
    if length > MAX_TEXT_BYTES:
        raise FileError(
            f"{name} claims a header of {length:,} bytes; at most {MAX_TEXT_BYTES:,} are read: save fewer tensors."
        )
    if len(content) < data_offset:
        raise damaged_error(name, _KIND, f"its header of {length:,} bytes is incomplete")
    try:
        header = json.loads(content[_LENGTH_BYTES:data_offset])
        metadata = header.pop("__metadata__", {})
        assert all(isinstance(entry, dict) for entry in (*header.values(), metadata))
    except (ValueError, RecursionError, AttributeError, TypeError, AssertionError):
        raise damaged_error(name, _KIND, "its header is not a list of tensors") from None
    if len(header) > MAX_ARRAYS:
        raise FileError(
            f"{name} has {len(header):,} tensors; at most {MAX_ARRAYS:,} are read: save only those of attention."
        )
    arrays: dict[str, Entry] = {}
    refused: dict[str, str] = {}
    tensors = memoryview(content)[data_offset:]
    for key, entry in header.items():
        result = _read_entry(f"{quote(key)} in {name}", entry, tensors)
        if isinstance(result, str):
            refused[key] = result
        else:
            arrays[key] = result
    return Archive(arrays, _parse_metadata(metadata), refused)


def _read_entry(label: str, entry: dict[str, Any], tensors: memoryview) -> Entry | str:
    """A tensor as the header describes it; a sentence if that is invalid."""
    shape, offsets = natural_numbers(entry.get("shape")), natural_numbers(entry.get("data_offsets"))
    if shape is None or offsets is None or len(offsets) != 2 or not isinstance(entry.get("dtype"), str):
        return str(damaged_error(label, "tensor", "its header has no valid shape and position"))
    if entry["dtype"] not in _KINDS:
        return f"{label} needs numbers of a type such as F32 or BF16; got {quote(entry['dtype'])}: save it again with .float()."
    if len(shape) > MAX_AXES or not prod(shape):
        return shape_problem(label, shape)
    torch_dtype, itemsize, kind = _KINDS[entry["dtype"]]
    start, end = offsets
    if end > len(tensors) or end - start != prod(shape) * itemsize:
        return f"{label} is {format_shape(shape)} by its header, but some of its numbers are missing: use the complete file."
    return Entry(shape, kind, partial(_load, tensors, start, end, torch_dtype, shape, kind))


def _load(tensors: memoryview, start: int, end: int, torch_dtype: str, shape: tuple[int, ...], kind: Kind) -> Tensor:
    import torch

    tensor = torch.frombuffer(bytearray(tensors[start:end]), dtype=getattr(torch, torch_dtype))
    return tensor.to(getattr(torch, kind.dtype)).reshape(shape)


def _parse_metadata(metadata: dict[str, Any]) -> dict[str, Any]:
    """The metadata, whose values are texts: an export's own object under "trace", tokens as JSON, numbers."""
    texts = {key: text for key, text in metadata.items() if isinstance(text, str)}
    about = parse_about(texts.pop("trace", ""))
    return {**{key: parse_json_or_text(text) for key, text in texts.items()}, **about}
