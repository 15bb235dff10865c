"""Arrays as nested lists in JSON."""

from __future__ import annotations

import json as standard
from functools import partial
from typing import TYPE_CHECKING, Any

from attention.errors import FileError
from attention.sources.archive import BOOL, DOUBLE, MOST_AXES, Archive, Entry, damaged, misshapen, quoted, sized

if TYPE_CHECKING:
    from torch import Tensor

MOST_NUMBERS = 2**21  # a list of Python takes ten times the bytes of a file
MOST_LISTS = 2**18


def json(name: str, content: bytes) -> Archive:
    """The nested lists of a JSON object, by name; or one without a name where the file is a list itself.

    Raises:
        FileError: no such file, or one of more numbers or lists than are read.
    """
    numbers, lists = content.count(b",") + 1, content.count(b"[") + content.count(b"{")
    if numbers > MOST_NUMBERS or lists > MOST_LISTS:
        raise FileError(
            f"{name} has {numbers:,} numbers and texts in {lists:,} lists; of a .json file at most {MOST_NUMBERS:,} in {MOST_LISTS:,} are read: "
            "save it as .npz or .safetensors."
        )
    try:
        found = standard.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise damaged(name, "JSON", "it cannot be read as such") from None
    arrays: dict[str, Entry] = {}
    said: dict[str, Any] = {}
    refused: dict[str, str] = {}
    for key, value in (found if isinstance(found, dict) else {"": found}).items():
        called = f"{quoted(key)} in {name}" if key else name
        shape, first = _shape(value)
        if not isinstance(value, list) or isinstance(first, str):
            said[key] = value
        elif 0 in shape or len(shape) > MOST_AXES or not isinstance(first, int | float):
            refused[key] = misshapen(called, shape, "save numbers")
        else:
            kind = BOOL if isinstance(first, bool) else DOUBLE
            arrays[key] = Entry(shape, kind, partial(_load, called, value, kind.read_as, shape))
    return Archive(arrays, said, refused)


def _shape(value: Any) -> tuple[tuple[int, ...], Any]:
    """The length of a list, of the first list in it, and so on; and the first thing that is none."""
    shape = []
    while isinstance(value, list):
        shape.append(len(value))
        value = value[0] if value else None
    return tuple(shape), value


def _load(called: str, value: Any, read_as: str, shape: tuple[int, ...]) -> Tensor:
    import torch

    try:
        tensor = torch.tensor(value, dtype=torch.float64)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        raise FileError(
            f"{called} needs numbers alone, and lists of one length on each level; got something else below {sized(shape)}: "
            "write a number, true or false in each place."
        ) from None
    return tensor.to(getattr(torch, read_as))
