"""A file of arrays by name, which is not believed: what it claims is read first, and an array only when somebody asks for it.

Nothing is unpickled, and nothing is unpacked before its size is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.errors import FileError
from attention.formula.name_aliases import with_current_names
from attention.formula.steps import DECLARED

if TYPE_CHECKING:
    from torch import Tensor

ENDINGS = (".npz", ".npy", ".safetensors", ".json")
MOST_AXES = 6
MOST_ARRAYS = 2**13  # a model of 200 layers has fewer
MOST_TEXT = 2**20  # bytes of tokens, and of a header


class Kind(NamedTuple):
    """What the numbers of an array are: as what they are read, in how many bytes each, and whether they had 16 bits or fewer."""

    read_as: str
    itemsize: int
    short: bool = False


# A half is read as a float: it holds the same numbers, and everything after it is made in enough digits.
HALF, FLOAT, DOUBLE, BOOL = Kind("float32", 4, True), Kind("float32", 4), Kind("float64", 8), Kind("bool", 1)


class Entry(NamedTuple):
    """One array of a file: its shape, what its numbers are, and what reads it."""

    shape: tuple[int, ...]
    kind: Kind
    load: Callable[[], Tensor]

    @property
    def nbytes(self) -> int:
        """What it takes in memory, counted before it is there."""
        return prod(self.shape) * self.kind.itemsize


@dataclass(frozen=True)
class Archive:
    """What a file holds.

    Attributes:
        arrays: its arrays of numbers by name.
        said: what else it says by name: lists of texts, numbers, and what an export says of its layers.
        refused: what cannot be read of it, by name, and why.
    """

    arrays: Mapping[str, Entry]
    said: Mapping[str, Any] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def opened(name: str, content: bytes) -> Archive:
    """What a file claims to hold, by the ending of its `name`.

    Raises:
        FileError: another ending, or no such file.
    """
    from attention.sources.archive import json_file, numpy_file, safetensors_file

    ending = PurePath(name).suffix.lower()
    readers = (numpy_file.npz, numpy_file.npy, safetensors_file.safetensors, json_file.json)
    if ending not in ENDINGS:
        raise FileError(
            f"A file of attention ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}; got {quoted(name)}: save it as one of these."
        )
    found = readers[ENDINGS.index(ending)](quoted(name), content)
    return replace(
        found, arrays=with_current_names(found.arrays, DECLARED), refused=with_current_names(found.refused, DECLARED)
    )


def damaged(name: str, kind: str, why: str) -> FileError:
    """The error for a file that is not what its name says."""
    return FileError(f"{name} is no {kind}, or only a part of one: {why}; save it again, and take the whole file.")


def quoted(text: str, longest: int = 60) -> str:
    """A name as a sentence can have it: cut, and with nothing invisible in it."""
    text = "".join(character if character.isprintable() else "�" for character in text)
    return f"“{text if len(text) <= longest else text[: longest - 1] + '…'}”"


def misshapen(called: str, shape: tuple[int, ...], todo: str = "save a part of it") -> str:
    """The sentence on an array of more axes than are read, or without a number."""
    return f"{called} needs 2 to {MOST_AXES} axes and a number in each; got {sized(shape) or 'none'}: {todo}."


def sized(shape: tuple[int, ...]) -> str:
    """A shape as a person reads it."""
    return " × ".join(f"{size:,}" for size in shape[:MOST_AXES]) + (" × …" if len(shape) > MOST_AXES else "")
