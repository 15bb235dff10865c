"""A file of named arrays from an untrusted source: its headers are read first, and an array only on access.

Nothing is unpickled, and nothing is unpacked before its size is known.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.errors import FileError

if TYPE_CHECKING:
    from torch import Tensor

EXTENSIONS = (".npz", ".npy", ".safetensors", ".json")
MAX_AXES = 6
MAX_ARRAYS = 2**13  # a model of 200 layers has fewer
MAX_TEXT_BYTES = 2**20  # bytes of the tokens, and of a header


class Kind(NamedTuple):
    """The kind of numbers of an array.

    Attributes:
        dtype: the type to which they are converted.
        itemsize: bytes of a converted number.
        low_precision: whether the stored numbers have 16 bits or fewer.
    """

    dtype: str
    itemsize: int
    low_precision: bool = False


# A half is read as a float, which holds the same numbers, so that later steps are computed with enough digits.
HALF, FLOAT, DOUBLE, BOOL = Kind("float32", 4, True), Kind("float32", 4), Kind("float64", 8), Kind("bool", 1)


class Entry(NamedTuple):
    """One array of a file: its shape, the kind of its numbers, and a function that loads it."""

    shape: tuple[int, ...]
    kind: Kind
    load: Callable[[], Tensor]

    @property
    def nbytes(self) -> int:
        """The bytes of the array in memory, without loading it."""
        return prod(self.shape) * self.kind.itemsize


@dataclass(frozen=True)
class Archive:
    """The contents of a file.

    Attributes:
        arrays: its arrays of numbers, by name.
        metadata: everything else, by name: lists of texts, numbers, and the description of the layers in an export.
        refused: the reason why an entry cannot be read, by name.
    """

    arrays: Mapping[str, Entry]
    metadata: Mapping[str, Any] = field(default_factory=dict)
    refused: Mapping[str, str] = field(default_factory=dict)


def open_archive(name: str, content: bytes) -> Archive:
    """The contents of a file, as claimed by its headers; the extension of `name` selects the reader.

    Raises:
        FileError: another extension, or a damaged file.
    """
    from attention.io.arrays import json_file, numpy_file, safetensors_file

    ending = PurePath(name).suffix.lower()
    readers = (numpy_file.npz, numpy_file.npy, safetensors_file.safetensors, json_file.json)
    if ending not in EXTENSIONS:
        raise FileError(
            f"A file with attention ends in {', '.join(EXTENSIONS[:-1])} or {EXTENSIONS[-1]}; got {quote(name)}: save it as one of these."
        )
    return readers[EXTENSIONS.index(ending)](quote(name), content)


def damaged_error(name: str, kind: str, why: str) -> FileError:
    """The error for a file whose content does not match its name."""
    return FileError(f"{name} is not a valid {kind}: {why}; save it again, and use the complete file.")


def quote(text: str, longest: int = 60) -> str:
    """A name in quotation marks for a sentence: shortened, without invisible characters."""
    text = "".join(character if character.isprintable() else "�" for character in text)
    return f"“{text if len(text) <= longest else text[: longest - 1] + '…'}”"


def shape_problem(label: str, shape: tuple[int, ...], advice: str = "save a part of it") -> str:
    """The sentence about an array with too many axes, or without a number."""
    return f"{label} needs 2 to {MAX_AXES} axes and a number in each; got {format_shape(shape) or 'none'}: {advice}."


def format_shape(shape: tuple[int, ...]) -> str:
    """A shape as readable text."""
    return " × ".join(f"{size:,}" for size in shape[:MAX_AXES]) + (" × …" if len(shape) > MAX_AXES else "")


def natural_numbers(numbers: Any) -> tuple[int, ...] | None:
    """The integers from zero of a list, such as a shape in a header; None for anything else."""
    is_valid = isinstance(numbers, list | tuple) and all(type(number) is int and number >= 0 for number in numbers)
    return tuple(numbers) if is_valid else None
