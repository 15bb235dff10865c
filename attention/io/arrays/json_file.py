"""Arrays as nested lists in JSON."""

from __future__ import annotations

import json as standard
from functools import partial
from typing import TYPE_CHECKING, Any

from attention.errors import FileError
from attention.io.arrays import (
    BOOL,
    DOUBLE,
    MAX_AXES,
    Archive,
    Entry,
    damaged_error,
    format_shape,
    quote,
    shape_problem,
)

if TYPE_CHECKING:
    from torch import Tensor

MAX_NUMBERS = 2**21  # a Python list takes ten times the bytes of the file
MAX_LISTS = 2**18


def json(name: str, content: bytes) -> Archive:
    """The nested lists of a JSON object, by name; or one without a name if the file is a list.

    Raises:
        FileError: the file is not valid JSON, or has too many numbers or lists.
    """
    numbers, lists = content.count(b",") + 1, content.count(b"[") + content.count(b"{")
    if numbers > MAX_NUMBERS or lists > MAX_LISTS:
        raise FileError(
            f"{name} has {numbers:,} numbers and texts in {lists:,} lists; a .json file may have {MAX_NUMBERS:,} in {MAX_LISTS:,} lists: "
            "save it as .npz or .safetensors."
        )
    try:
        document = standard.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise damaged_error(name, "JSON file", "it cannot be parsed") from None
    arrays: dict[str, Entry] = {}
    metadata: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for key, value in (document if isinstance(document, dict) else {"": document}).items():
        label = f"{quote(key)} in {name}" if key else name
        shape, first = _shape(value)
        if not isinstance(value, list) or isinstance(first, str):
            metadata[key] = value
        elif 0 in shape or len(shape) > MAX_AXES or not isinstance(first, int | float):
            refused[key] = shape_problem(label, shape, "save numbers")
        else:
            kind = BOOL if isinstance(first, bool) else DOUBLE
            arrays[key] = Entry(shape, kind, partial(_load, label, value, kind.dtype, shape))
    return Archive(arrays, metadata, refused)


def _shape(value: Any) -> tuple[tuple[int, ...], Any]:
    """The length of a list, of its first element if that is a list, and so on; and the first element that is not a list."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape), value


def _load(label: str, value: Any, dtype: str, shape: tuple[int, ...]) -> Tensor:
    import torch

    try:
        tensor = torch.tensor(value, dtype=torch.float64)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        raise FileError(
            f"{label} needs only numbers, in lists of equal length on each level; got something else below {format_shape(shape)}: "
            "write a number, true or false in each place."
        ) from None
    return tensor.to(getattr(torch, dtype))
