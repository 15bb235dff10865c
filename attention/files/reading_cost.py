"""What reading a file takes, estimated before it is read: by its header, or by counting what stands between its cells."""

from __future__ import annotations

from math import inf
from typing import NamedTuple

_LIGHT_SECONDS, _LIGHT_BYTES = 0.1, 2**24
_OF_NUMBERS = b"0123456789.+-eE"
_CELL_SECONDS, _BYTE_SECONDS = 4e-6, 1e-8
"""Of our slowest reading of text, which cuts a line into cells in Python and looks at each: a matrix with 17 digits a number."""
_CELL_BYTES, _TEXT_BYTES = 100, 4
"""A number as a Python float in a tuple, with its text beside it; and each byte of the file as text, in its lines and cleaned."""


class ReadingCost(NamedTuple):
    """What reading a file takes: seconds of processor, and bytes of memory beside the file."""

    seconds: float
    n_bytes: float

    @property
    def is_light(self) -> bool:
        """Whether a server reads it between two pages; otherwise it is read in a process of its own."""
        return self.seconds <= _LIGHT_SECONDS and self.n_bytes <= _LIGHT_BYTES


UNKNOWN = ReadingCost(inf, inf)
"""Of a file whose header may lie about what has to be decoded."""


def of_text(content: bytes, cell_seconds: float = _CELL_SECONDS, cell_bytes: int = _CELL_BYTES) -> ReadingCost:
    """What reading rows of numbers takes, if each cell takes so much; by what stands between numbers, so that words count as more."""
    n_cells = len(content.translate(None, _OF_NUMBERS)) + 1
    return ReadingCost(
        n_cells * cell_seconds + len(content) * _BYTE_SECONDS, n_cells * cell_bytes + len(content) * _TEXT_BYTES
    )
