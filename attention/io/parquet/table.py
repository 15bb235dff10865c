"""The footer of a Parquet file, and its columns."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from attention.errors import FileError
from attention.io.parquet.budget import Budget
from attention.io.parquet.column_chunk import Column, ColumnChunk, Leaf, read_column
from attention.io.parquet.thrift import INTEGER, TEXT, DamagedError, StructReader, read_uint32

_MAGIC = b"PAR1"
_MAX_FOOTER_BYTES, _MAX_FOOTER_VALUES = 2**24, 2**20
_MAX_ELEMENTS = 256  # of a schema
_OPTIONAL, _REPEATED = 1, 2

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
    def open(cls, name: str, content: bytes, leaves: Mapping[str, Leaf]) -> ParquetTable:
        """The table of a file, which has at least some columns.

        Args:
            name: of the file, quoted.
            content: its bytes.
            leaves: these columns, by path.

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
            footer = StructReader(memoryview(content)[: len(content) - 8], start, _MAX_FOOTER_VALUES).read(_FOOTER)
            present = _leaves(footer["schema"])
            metadata = {_text(entry["name"]): entry.get("content", b"") for entry in footer.get("metadata", ())}
            rows = tuple(int(group["rows"]) for group in footer["groups"])
            chunks = tuple(_chunks(group["columns"], start) for group in footer["groups"])
            if sum(rows) != footer["rows"] or min(rows, default=0) < 0:
                raise DamagedError
        except (DamagedError, KeyError):
            raise damaged_error(name) from None
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
