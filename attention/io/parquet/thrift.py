"""Structs of Thrift's compact protocol, which Parquet's headers are.

Source: Apache Thrift, "Thrift Compact protocol"; Apache Parquet, parquet.thrift.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

_TRUE, _FALSE, _BYTE, _INTEGERS, _DOUBLE, _BINARY, _LISTS, _MAP, _STRUCT = 1, 2, 3, (4, 5, 6), 7, 8, (9, 10), 11, 12
_MAX_DEPTH = 8
_MAX_INTEGER_BYTES = 10
INTEGER, TEXT = "integer", "text"

Fields = Mapping[int, tuple[str, Any]]
"""The fields that are read, by number: the name, and `INTEGER`, `TEXT` (bytes), `Fields`, or a list with one of these."""


class DamagedError(ValueError):
    """The bytes are no such struct."""


class StructReader:
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
