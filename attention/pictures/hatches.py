"""Hatches: slanting lines over unmatched rows and columns of a map, and the background under them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from attention.analysis.compare.alignment import consecutive_ranges

UNMATCHED_COLOR, HATCH_COLOR = "#d5d7dc", "#8d919b"  # the background of unmatched cells, and the lines over it
MAX_HATCH_LINES = 240  # per map: more would be slow to draw
_LINES_PER_MAP = 28  # of a hatch that covers the whole map


def hatch_lines(
    unmatched_rows: list[int], unmatched_columns: list[int], rows: int, columns: int
) -> list[dict[str, Any]]:
    """Returns the lines of hatches over the unmatched rows and columns of a map [rows columns]; where two hatches cross, their lines coincide."""
    bands = [(-0.5, columns - 0.5, low - 0.5, high - 0.5) for low, high in consecutive_ranges(unmatched_rows)]
    bands += [(low - 0.5, high - 0.5, -0.5, rows - 0.5) for low, high in consecutive_ranges(unmatched_columns)]
    if not bands:
        return []
    spacing = max(
        (rows + columns) / 2 / _LINES_PER_MAP, sum(x1 - x0 + y1 - y0 for x0, x1, y0, y1 in bands) / MAX_HATCH_LINES
    )
    return [line for band in bands for line in _lines(*band, spacing)][:MAX_HATCH_LINES]


def _lines(x0: float, x1: float, y0: float, y1: float, apart: float) -> Iterator[dict[str, Any]]:
    """The lines x + y = a multiple of `apart`, as much of each as lies in a box."""
    first, last = int(np.ceil((x0 + y0) / apart)), int(np.floor((x1 + y1) / apart))
    for total in (number * apart for number in range(first, last + 1)):
        left, right = max(x0, total - y1), min(x1, total - y0)
        if left < right:
            ends = {"x0": left, "y0": total - left, "x1": right, "y1": total - right}
            yield {"type": "line", **ends, "line": {"color": HATCH_COLOR, "width": 1}}
