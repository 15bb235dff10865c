"""Small integers as Parquet packs them: runs of one number, and numbers of a few bits each.

Source: Apache Parquet, "Run Length Encoding / Bit-Packing Hybrid".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from attention.io.parquet.thrift import DamagedError

if TYPE_CHECKING:
    from attention.io.parquet.budget import Budget

_MAX_BITS = 31
_BLOCK = 2**12  # values; a multiple of 8, so that each block begins with a byte


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
