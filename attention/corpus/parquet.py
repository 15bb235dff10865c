"""Parquet from an untrusted source: a reader of the few encodings that `attention.corpus` writes, with a budget for everything it unpacks.

    table = ParquetTable.open(name, content, leaves, budget)
    table.column("mean", group, budget).numbers

pyarrow allocates what the headers of pages claim, so a file of some kB can take all memory: a page of zeros, a list of billions, a long text
repeated by its number in the dictionary. Here each of these is counted before it is made. From top to bottom: the table and its footer, the
pages of a column, small integers, and the structs of Thrift, which all headers are.

Source: Apache Parquet, parquet.thrift, "Data Pages" and "Run Length Encoding / Bit-Packing Hybrid"; Melnik et al. 2010, "Dremel", for the levels;
Apache Thrift, "Thrift Compact protocol".
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from attention.base.errors import FileError

INT32, INT64, FLOAT, DOUBLE, BYTES = 1, 2, 4, 5, 6
"""Physical types."""

INTEGER, TEXT = "integer", "text"

Fields = Mapping[int, tuple[str, Any]]
"""The fields that are read, by number: the name, and `INTEGER`, `TEXT` (bytes), `Fields`, or a list with one of these."""

_SCHEMA = {1: ("type", INTEGER), 3: ("repetition", INTEGER), 4: ("name", TEXT), 5: ("children", INTEGER)}
_COLUMN = {
    1: ("type", INTEGER),
    3: ("path", [TEXT]),
    4: ("codec", INTEGER),
    5: ("values", INTEGER),
    7: ("size", INTEGER),
    9: ("data", INTEGER),
    11: ("dictionary", INTEGER),
}
_GROUP = {1: ("columns", [{3: ("meta", _COLUMN)}]), 3: ("rows", INTEGER)}
_FOOTER = {
    2: ("schema", [_SCHEMA]),
    3: ("rows", INTEGER),
    4: ("groups", [_GROUP]),
    5: ("metadata", [{1: ("name", TEXT), 2: ("content", TEXT)}]),
}

_MAGIC = b"PAR1"
_MAX_FOOTER_BYTES, _MAX_FOOTER_VALUES = 2**24, 2**20
_MAX_ELEMENTS = 256  # of a schema
_OPTIONAL, _REPEATED = 1, 2

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
_PLAIN, _PLAIN_DICTIONARY, _RUNS, _RUNS_DICTIONARY = 0, 2, 3, 8
_DATA_PAGE, _DICTIONARY_PAGE = 0, 2
_UNCOMPRESSED, _ZSTD = 0, 6
_HEADER_VALUES = 64
_MAX_PAGE_BYTES = 2**26
_DTYPES: dict[int, np.dtype[Any]] = {
    INT32: np.dtype("<i4"),
    INT64: np.dtype("<i8"),
    FLOAT: np.dtype("<f4"),
    DOUBLE: np.dtype("<f8"),
}

_MAX_BITS = 31
_BLOCK = 2**12  # values; a multiple of 8, so that each block begins with a byte

_TRUE, _FALSE, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, (9, 10), 11, 12
_MAX_DEPTH = 8
_MAX_INTEGER_BYTES = 10


class DamagedError(ValueError):
    """The bytes are no such struct."""


@dataclass
class Budget:
    """What is left of memory and time for one question to a file.

    Attributes:
        name: of the file, quoted.
        n_bytes: of unpacked pages, and of texts.
        n_values: of columns, with those that are missing.
        n_runs: of equal or packed numbers, and of texts: steps in Python.
    """

    name: str
    n_bytes: int = 2**27
    n_values: int = 2**24
    n_runs: int = 2**21

    def spend(self, n_bytes: int = 0, n_values: int = 0, n_runs: int = 0) -> None:
        """Take some of it.

        Raises:
            FileError: there is not enough left.
        """
        self.n_bytes -= n_bytes
        self.n_values -= n_values
        self.n_runs -= n_runs
        if min(self.n_bytes, self.n_values, self.n_runs) < 0:
            self.refuse()

    def refuse(self) -> NoReturn:
        """Raises FileError."""
        raise FileError(
            f"{self.name} would unpack to more memory or work than is allowed here: use the file that the run wrote, with fewer examples (--top)."
        )


class Leaf(NamedTuple):
    """A column of values: its physical type, and the largest levels of its repetition and definition."""

    type: int
    repetition: int
    definition: int


@dataclass(frozen=True)
class ParquetTable:
    """A Parquet file whose footer was read.

    Attributes:
        name: of the file, quoted.
        content: its bytes.
        metadata: its texts, by key.
        group_rows: the number of rows of each group.
        chunks: of each group, by path.
        leaves: the columns that may be read, by path.
    """

    name: str
    content: bytes = field(repr=False)
    metadata: Mapping[str, bytes]
    group_rows: tuple[int, ...]
    chunks: tuple[Mapping[str, ColumnChunk], ...]
    leaves: Mapping[str, Leaf]

    @classmethod
    def open(cls, name: str, content: bytes, leaves: Mapping[str, Leaf], later: Collection[str] = ()) -> ParquetTable:
        """The table of a file, which has at least some columns.

        Args:
            name: of the file, quoted.
            content: its bytes.
            leaves: these columns, by path.
            later: the columns that files of an earlier version lack.

        Raises:
            FileError: it is no Parquet file, or has not all these columns.
        """
        if len(content) < 12 or content[:4] != _MAGIC or content[-4:] != _MAGIC:
            raise FileError(
                f"{name} should be a Parquet file, which begins and ends with PAR1; it does not: use the complete file that the run wrote."
            )
        try:
            start = len(content) - 8 - read_uint32(content, len(content) - 8)
            if start < 4 or len(content) - start > _MAX_FOOTER_BYTES:
                raise DamagedError
            footer = _StructReader(memoryview(content)[: len(content) - 8], start, _MAX_FOOTER_VALUES).read(_FOOTER)
            present = _leaves(footer["schema"])
            metadata = {_text(entry["name"]): entry.get("content", b"") for entry in footer.get("metadata", ())}
            rows = tuple(int(group["rows"]) for group in footer["groups"])
            chunks = tuple(_chunks(group["columns"], start) for group in footer["groups"])
            if sum(rows) != footer["rows"] or min(rows, default=0) < 0:
                raise DamagedError
        except (DamagedError, KeyError):
            raise damaged_error(name) from None
        leaves = {path: leaf for path, leaf in leaves.items() if path in present or path not in later}
        for path, leaf in leaves.items():
            if present.get(path) != leaf:
                what = "has another type" if path in present else "is missing"
                raise FileError(
                    f"{name} should have the column {path} of the table of a run; it {what}: use the file that the run wrote."
                )
        if any(path not in group for group in chunks for path in leaves):
            raise damaged_error(name)
        return cls(name, content, metadata, rows, chunks, leaves)

    @cached_property
    def first_rows(self) -> Sequence[int]:
        """The first row of each group, and the number of rows."""
        starts = [0]
        for rows in self.group_rows:
            starts.append(starts[-1] + rows)
        return starts

    def group_of(self, row: int) -> int:
        """The group that has a row."""
        return bisect_right(self.first_rows, row) - 1

    def column(self, path: str, group: int, budget: Budget) -> Column:
        """A column of a group.

        Raises:
            FileError: it is damaged, is packed in another way, or takes more than the budget.
        """
        try:
            return read_column(self.content, self.chunks[group][path], self.leaves[path], budget)
        except DamagedError:
            raise damaged_error(self.name) from None


def damaged_error(name: str) -> FileError:
    """The error for a file that contradicts itself."""
    return FileError(
        f"{name} is damaged, or was not written by a run of attention.corpus: use the complete file that the run wrote."
    )


def _leaves(schema: Sequence[Mapping[str, Any]]) -> dict[str, Leaf]:
    """The columns of a schema, which lists a tree depth first."""
    if not 1 <= len(schema) <= _MAX_ELEMENTS:
        raise DamagedError
    leaves: dict[str, Leaf] = {}
    open_groups = [(schema[0].get("children", 0), "", 0, 0)]  # children to come, path, levels
    for element in schema[1:]:
        while open_groups and not open_groups[-1][0]:
            open_groups.pop()
        if not open_groups:
            raise DamagedError
        to_come, path, repetition, definition = open_groups[-1]
        open_groups[-1] = (to_come - 1, path, repetition, definition)
        path = f"{path}.{_text(element['name'])}".lstrip(".")
        kind = element.get("repetition", 0)
        repetition, definition = repetition + (kind == _REPEATED), definition + (kind in (_OPTIONAL, _REPEATED))
        if "type" in element:
            leaves[path] = Leaf(element["type"], repetition, definition)
        else:
            open_groups.append((element.get("children", 0), path, repetition, definition))
    return leaves


def _chunks(columns: Sequence[Mapping[str, Any]], end: int) -> dict[str, ColumnChunk]:
    """The places of the columns of a group; `end` is where the footer begins."""
    chunks: dict[str, ColumnChunk] = {}
    for column in columns:
        meta = column["meta"]
        start = min(meta["data"], meta.get("dictionary") or meta["data"])
        if not 4 <= start <= start + meta["size"] <= end or meta["values"] < 0:
            raise DamagedError
        path = ".".join(map(_text, meta["path"]))
        chunks[path] = ColumnChunk(start, start + meta["size"], meta["values"], meta["codec"])
    return chunks


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


class ColumnChunk(NamedTuple):
    """Where a column of a group is: the first byte, the byte after the last, the number of its values, and how they are compressed."""

    start: int
    stop: int
    n_values: int
    codec: int


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


class _Levels(NamedTuple):
    """The levels of some values, [value] each; empty where all are 0."""

    repetition: NDArray[np.uint8]
    definition: NDArray[np.uint8]


class _Texts(NamedTuple):
    """Some texts of a column: bytes with a length before each, and the index of each text, or None if each is there once."""

    content: memoryview
    n_texts: int
    indices: NDArray[Any] | None


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
        reader = _StructReader(view[: chunk.stop], position, _HEADER_VALUES)
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


def unpack(content: bytes | memoryview, n_values: int, n_bits: int, budget: Budget) -> NDArray[Any]:
    """The first `n_values` integers, [value].

    Raises:
        DamagedError: there are fewer, or this is no such packing.
        FileError: there are more runs than the budget has.
    """
    result = np.zeros(n_values, np.int32 if n_bits > 8 else np.uint8)
    if not 0 <= n_bits <= _MAX_BITS:
        raise DamagedError
    position, done, size, width = 0, 0, len(content), (n_bits + 7) // 8
    packed = list[tuple[int, int, int, int]]()  # the first value and its successor, the first byte and its successor
    while done < n_values:
        header, shift = 0, 0
        while True:
            if position >= size or shift > 28:
                raise DamagedError
            byte = content[position]
            position += 1
            header |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
        budget.spend(n_runs=1)
        count = header >> 1
        if not count:
            raise DamagedError  # no progress
        if header & 1:
            groups = min(count, (n_values - done + 7) // 8)
            end = min(position + groups * n_bits, size)  # the last run may end early
            count = min(groups * 8, n_values - done, (end - position) * 8 // n_bits if n_bits else n_values)
            if not count:
                raise DamagedError
            packed.append((done, done + count, position, end))
            position = end
        else:
            count = min(count, n_values - done)
            if position + width > size:
                raise DamagedError
            result[done : done + count] = (
                int.from_bytes(content[position : position + width], "little") & (1 << n_bits) - 1
            )
            position += width
        done += count
    if n_bits and packed:  # all at once: many runs have only eight values
        values = _bits(b"".join([content[begin:end] for _, _, begin, end in packed]), n_bits)
        place = 0
        for first, last, begin, end in packed:
            result[first:last] = values[place : place + last - first]
            place += (end - begin) * 8 // n_bits
    return result


def _bits(content: bytes, n_bits: int) -> NDArray[Any]:
    """The numbers of `n_bits` each."""
    count = len(content) * 8 // n_bits
    result, powers = np.empty(count, np.int32), 1 << np.arange(n_bits, dtype=np.int32)
    for start in range(0, count, _BLOCK):  # a bit takes four bytes meanwhile
        n = min(_BLOCK, count - start)
        packed = np.frombuffer(content[start * n_bits // 8 : (start + n) * n_bits // 8 + 1], np.uint8)
        bits = np.unpackbits(packed, bitorder="little")[: n * n_bits]
        result[start : start + n] = bits.reshape(n, n_bits).astype(np.int32) @ powers
    return result


class _StructReader:
    """Reads structs from bytes.

    Attributes:
        position: of the next byte.
        n_values: the number of values that may still be read or skipped.
    """

    def __init__(self, content: bytes | memoryview, position: int, n_values: int) -> None:
        self.position, self.n_values = position, n_values
        self._content = content

    def read(self, fields: Fields, depth: int = 0) -> dict[str, Any]:
        """The next struct: its fields by name, without those that are missing.

        Raises:
            DamagedError: there is none, or it has too many values.
        """
        result: dict[str, Any] = {}
        number = 0
        while header := self._byte():
            kind = header & 15
            number = number + (header >> 4) if header >> 4 else self._signed()
            name, wanted = fields.get(number, ("", None))
            if wanted is None:
                self._skip(kind, depth, in_list=False)
            else:
                result[name] = self._value(kind, wanted, depth)
        return result

    def _value(self, kind: int, wanted: Any, depth: int) -> Any:
        self._count(depth)
        if wanted is INTEGER and kind in _INTEGERS:
            return self._signed()
        if wanted is TEXT and kind == _BINARY:
            return bytes(self._take(self._unsigned()))
        if isinstance(wanted, list) and kind in _LISTS:
            element, size = self._list_header()
            return [self._value(element, wanted[0], depth + 1) for _ in range(size)]
        if isinstance(wanted, Mapping) and kind == _STRUCT:
            return self.read(wanted, depth + 1)
        raise DamagedError

    def _skip(self, kind: int, depth: int, in_list: bool) -> None:
        self._count(depth)
        if kind in (_TRUE, _FALSE) or kind == _BYTE:
            self._take(1 if in_list or kind == _BYTE else 0)  # a field has its truth in its header
        elif kind in _INTEGERS:
            self._unsigned()
        elif kind == _DOUBLE:
            self._take(8)
        elif kind == _BINARY:
            self._take(self._unsigned())
        elif kind in _LISTS:
            element, size = self._list_header()
            for _ in range(size):
                self._skip(element, depth + 1, in_list=True)
        elif kind == _MAP:
            size = self._unsigned()
            kinds = self._byte() if size else 0
            for _ in range(size):
                self._skip(kinds >> 4, depth + 1, in_list=True)
                self._skip(kinds & 15, depth + 1, in_list=True)
        elif kind == _STRUCT:
            while header := self._byte():
                if not header >> 4:
                    self._signed()
                self._skip(header & 15, depth + 1, in_list=False)
        else:
            raise DamagedError

    def _list_header(self) -> tuple[int, int]:
        header = self._byte()
        return header & 15, self._unsigned() if header >> 4 == 15 else header >> 4

    def _count(self, depth: int) -> None:
        self.n_values -= 1
        if self.n_values < 0 or depth > _MAX_DEPTH:
            raise DamagedError

    def _byte(self) -> int:
        (byte,) = self._take(1)
        return int(byte)

    def _take(self, size: int) -> Any:
        start = self.position
        self.position += size
        if self.position > len(self._content):
            raise DamagedError
        return self._content[start : self.position]

    def _unsigned(self) -> int:
        result = 0
        for place in range(_MAX_INTEGER_BYTES):
            byte = self._byte()
            result |= (byte & 127) << 7 * place
            if byte < 128:
                return result
        raise DamagedError

    def _signed(self) -> int:
        """An integer whose sign is its last bit."""
        number = self._unsigned()
        return number >> 1 ^ -(number & 1)


def read_uint32(content: bytes | memoryview, position: int) -> int:
    """The four bytes at a position, the least significant first.

    Raises:
        DamagedError: there are fewer.
    """
    try:
        (number,) = struct.unpack_from("<I", content, position)
    except struct.error:
        raise DamagedError from None
    return int(number)
