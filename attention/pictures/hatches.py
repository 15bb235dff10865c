"""Slanting lines over rows and columns of a map, and what they lie on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attention.numbers.alignment import ranges

NO_PARTNER, LINE = "#d5d7dc", "#8d919b"  # the ground of what has no partner, and the lines over it
MOST_LINES = 240  # of all hatches of a map: more would make it slow to draw
_ACROSS = 28  # lines of a hatch that is as wide as the map


def hatches(lone_rows: list[int], lone_columns: list[int], rows: int, columns: int) -> list[dict[str, Any]]:
    """Slanting lines over the rows and the columns that are `lone`, on a map of so many; where the two cross they are the same lines."""
    bands = [(-0.5, columns - 0.5, low - 0.5, high - 0.5) for low, high in ranges(lone_rows)]
    bands += [(low - 0.5, high - 0.5, -0.5, rows - 0.5) for low, high in ranges(lone_columns)]
    if not bands:
        return []
    apart = max((rows + columns) / 2 / _ACROSS, sum(x1 - x0 + y1 - y0 for x0, x1, y0, y1 in bands) / MOST_LINES)
    return [line for band in bands for line in _lines(*band, apart)][:MOST_LINES]


def _lines(x0: float, x1: float, y0: float, y1: float, apart: float) -> Iterator[dict[str, Any]]:
    """The lines x + y = a multiple of `apart`, as much of each as lies in a box."""
    first, last = int(np.ceil((x0 + y0) / apart)), int(np.floor((x1 + y1) / apart))
    for total in (number * apart for number in range(first, last + 1)):
        left, right = max(x0, total - y1), min(x1, total - y0)
        if left < right:
            ends = {"x0": left, "y0": total - left, "x1": right, "y1": total - right}
            yield {"type": "line", **ends, "line": {"color": LINE, "width": 1}}
