"""The pages of a column in a group of rows: its levels and its values.

Source: Melnik et al. 2010, "Dremel", for the levels; Apache Parquet, "Data Pages".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from attention.io.parquet.run_lengths import unpack
from attention.io.parquet.thrift import INTEGER, DamagedError, StructReader, read_uint32

if TYPE_CHECKING:
    from attention.io.parquet.budget import Budget

INT32, INT64, FLOAT, DOUBLE, BYTES = 1, 2, 4, 5, 6
"""Physical types."""
_PLAIN, _PLAIN_DICTIONARY, _RUNS, _RUNS_DICTIONARY = 0, 2, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_UNCOMPRESSED, _ZSTD = 0, 6
_HEADER_VALUES = 64
_MAX_PAGE_BYTES = 2**26
_PAGE = {
    1: ("type", INTEGER),
    2: ("size", INTEGER),
    3: ("packed", INTEGER),
    5: (
        "data",
        {1: ("values", INTEGER), 2: ("encoding", INTEGER), 3: ("definition", INTEGER), 4: ("repetition", INTEGER)},
    ),
    7: ("dictionary", {1: ("values", INTEGER), 2: ("encoding", INTEGER)}),
}
_DTYPES: dict[int, np.dtype[Any]] = {
    INT32: np.dtype("<i4"),
    INT64: np.dtype("<i8"),
    FLOAT: np.dtype("<f4"),
    DOUBLE: np.dtype("<f8"),
}


class Leaf(NamedTuple):
    """A column of values: its physical type, and the largest levels of its repetition and definition."""

    type: int
    repetition: int
    definition: int


class ColumnChunk(NamedTuple):
    """Where a column of a group is: the first byte, the byte after the last, the number of its values, and how they are compressed."""

    start: int
    stop: int
    n_values: int
    codec: int


class _Levels(NamedTuple):
    """The levels of some values, [value] each; empty where all are 0."""

    repetition: NDArray[np.uint8]
    definition: NDArray[np.uint8]


class _Texts(NamedTuple):
    """Some texts of a column: bytes with a length before each, and the index of each text, or None if each is there once."""

    content: memoryview
    n_texts: int
    indices: NDArray[Any] | None


@dataclass(frozen=True)
class Column:
    """A column in a group of rows.

    Attributes:
        repetition: 0 for the first value of a row, [value]; empty in a column without lists.
        definition: how much of its path each value has, [value].
        numbers: those that are there, one after the other; empty in a column of texts.
    """

    repetition: NDArray[np.uint8]
    definition: NDArray[np.uint8]
    numbers: NDArray[Any]
    _texts: tuple[_Texts, ...] = field(repr=False)

    def memory_bytes(self) -> int:
        """The bytes that it keeps."""
        indices = sum(part.indices.nbytes for part in self._texts if part.indices is not None)
        contents = {id(part.content): len(part.content) for part in self._texts}  # pages share their dictionary
        arrays = self.repetition.nbytes + self.definition.nbytes + self.numbers.nbytes
        return arrays + indices + sum(contents.values())

    def texts(self, start: int, stop: int, budget: Budget) -> list[str]:
        """The texts that are there, from one to before another.

        Raises:
            DamagedError: there are fewer, or they are not UTF-8.
            FileError: they take more than the budget.
        """
        result: list[str] = []
        first = 0
        for part in self._texts:
            size = part.n_texts if part.indices is None else len(part.indices)
            low, high = max(start - first, 0), min(stop - first, size)
            if low < high:
                result += _decoded(part, low, high, budget)
            first += size
        if len(result) != stop - start:
            raise DamagedError
        return result


def read_column(content: bytes, chunk: ColumnChunk, leaf: Leaf, budget: Budget) -> Column:
    """A column of a group.

    Raises:
        DamagedError: it is damaged, or packed in another way.
        FileError: it takes more than the budget.
    """
    budget.spend(n_values=chunk.n_values)
    levels, numbers, texts = list[_Levels](), list[Any](), list[_Texts]()
    dictionary: Any = None
    missing = chunk.n_values
    for kind, header, body in _pages(content, chunk, budget):
        if kind == _DICTIONARY_PAGE:
            if dictionary is not None or levels:
                raise DamagedError
            dictionary = _plain(body, header["values"], leaf)
            continue
        if not 0 < header["values"] <= missing:
            raise DamagedError
        missing -= header["values"]
        of_page, rest = _levels(body, header, leaf, budget)
        n_present = int((of_page.definition == leaf.definition).sum()) if leaf.definition else header["values"]
        values = _values(rest, header["encoding"], n_present, leaf, dictionary, budget)
        levels.append(of_page)
        (numbers if leaf.type in _DTYPES else texts).append(values)
    if missing:
        raise DamagedError
    empty = np.zeros(0, np.uint8)
    repetition, definition = (np.concatenate([empty, *(each[side] for each in levels)]) for side in (0, 1))
    return Column(repetition, definition, np.concatenate(numbers) if numbers else empty, tuple(texts))


def _levels(body: memoryview, header: Mapping[str, int], leaf: Leaf, budget: Budget) -> tuple[_Levels, memoryview]:
    """The levels at the beginning of a page, and the bytes after them."""
    if (header["definition"], header["repetition"]) != (_RUNS, _RUNS):
        raise DamagedError
    levels, rest = list[NDArray[Any]](), body
    for largest in (leaf.repetition, leaf.definition):
        level = np.zeros(0, np.uint8)
        if largest:
            stop = 4 + read_uint32(rest, 0)
            if stop > len(rest):
                raise DamagedError
            level = unpack(rest[4:stop], header["values"], largest.bit_length(), budget)
            rest = rest[stop:]
        levels.append(level)
    return _Levels(*levels), rest


def _values(body: memoryview, encoding: int, count: int, leaf: Leaf, dictionary: Any, budget: Budget) -> Any:
    """The values of a page that are there: numbers [value], or texts."""
    if encoding == _PLAIN:
        return _plain(body, count, leaf)
    if encoding not in (_PLAIN_DICTIONARY, _RUNS_DICTIONARY) or dictionary is None or not len(body):
        raise DamagedError
    indices = unpack(body[1:], count, body[0], budget)
    n_entries = len(dictionary) if leaf.type in _DTYPES else dictionary.n_texts
    if count and int(indices.max()) >= n_entries:
        raise DamagedError
    return dictionary[indices] if leaf.type in _DTYPES else dictionary._replace(indices=indices)


def _pages(content: bytes, chunk: ColumnChunk, budget: Budget) -> Iterator[tuple[int, dict[str, int], memoryview]]:
    """The kind of each page, its header, and its unpacked bytes."""
    view, position = memoryview(content), chunk.start
    while position < chunk.stop:
        reader = StructReader(view[: chunk.stop], position, _HEADER_VALUES)
        page = reader.read(_PAGE)
        budget.spend(n_runs=_HEADER_VALUES)
        try:
            size, packed, kind = page["size"], page["packed"], page["type"]
            header = page[{_DATA_PAGE: "data", _DICTIONARY_PAGE: "dictionary"}[kind]]
        except KeyError:
            raise DamagedError from None
        position = reader.position + packed
        if size < 0 or packed < 0 or position > chunk.stop or len(header) < (4 if kind == _DATA_PAGE else 2):
            raise DamagedError
        if size > _MAX_PAGE_BYTES:
            budget.refuse()
        budget.spend(n_bytes=size)
        yield kind, header, _unpacked(view[reader.position : position], size, chunk.codec)


def _unpacked(body: memoryview, size: int, codec: int) -> memoryview:
    """The bytes of a page; no more than `size` are made."""
    import pyarrow as pa

    if codec == _UNCOMPRESSED and len(body) == size:
        return body
    if codec != _ZSTD:
        raise DamagedError
    try:
        result = memoryview(pa.decompress(body, decompressed_size=size, codec="zstd", asbytes=True))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise DamagedError from error
    if len(result) != size:
        raise DamagedError
    return result


def _plain(body: memoryview, count: int, leaf: Leaf) -> Any:
    """The values as they are: numbers [value], or texts."""
    if leaf.type not in _DTYPES:
        if not 0 <= count <= len(body) // 4:
            raise DamagedError
        return _Texts(body, count, None)
    dtype = _DTYPES[leaf.type]
    if count * dtype.itemsize != len(body):  # a view of some values would keep the whole page
        raise DamagedError
    return np.frombuffer(body, dtype, count)


def _decoded(part: _Texts, low: int, high: int, budget: Budget) -> list[str]:
    """Some texts of a part; equal ones of a dictionary are one object."""
    indices = np.arange(low, high) if part.indices is None else part.indices[low:high]
    used = np.unique(indices)
    starts = [0]
    budget.spend(n_runs=int(used[-1]) + 1, n_values=len(indices))
    for _ in range(int(used[-1]) + 1):
        starts.append(starts[-1] + 4 + read_uint32(part.content, starts[-1]))
    if starts[-1] > len(part.content):
        raise DamagedError
    spans = list(pairwise(starts))
    try:
        texts = {int(index): str(part.content[spans[index][0] + 4 : spans[index][1]], "utf-8") for index in used}
    except UnicodeDecodeError:
        raise DamagedError from None
    budget.spend(n_bytes=sum(map(len, texts.values())))
    return [texts[int(index)] for index in indices]
