"""Texts, numbers and masks as Python writes them: exact, ASCII only, inert whatever stands in them."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable, Sequence

import numpy as np

WIDTH = 100  # characters in a line, where it can be broken
LONGEST_PICTURE = 64  # rows and columns of a mask that is drawn with points and ones


def text(value: str) -> str:
    """The text as a Python literal on one line, in double quotes where that needs no more escapes."""
    written = ascii(value)  # also a lone surrogate, a newline and what no font shows are escaped
    return f'"{written[1:-1]}"' if written[0] == "'" and '"' not in written else written


def texts(name: str, values: Sequence[str]) -> list[str]:
    """Lines that assign the texts as a list to `name`: `"the cat".split()` where that is the same, and fits."""
    joined = " ".join(values)
    short = f"{name} = {text(joined)}.split()"
    if joined.split() == list(values) and len(short) <= WIDTH:
        return [short]
    return filled(f"{name} = [", map(text, values), "]")


def number(value: float) -> str:
    """The number as Python writes it, to its last digit; a whole number without its point. −∞ needs `math`."""
    if value == -math.inf:
        return "-math.inf"
    written = repr(float(value))
    whole = written.endswith(".0") and written != "-0.0"  # the whole number -0 has no sign
    return written.removesuffix(".0") if whole else written


def matrix(name: str, rows: Sequence[Sequence[float]], suffix: str = "") -> list[str]:
    """Lines that assign the rows as a tensor of float64 to `name`, a row a line where one line is too short."""
    start, end = f"{name} = torch.tensor([", f"], dtype=torch.float64){suffix}"
    written = [list(map(number, row)) for row in rows]
    short = start + ", ".join(f"[{', '.join(row)}]" for row in written) + end
    if len(short) <= WIDTH:
        return [short]
    return [start, *(f"    {line}" for row in written for line in filled("[", row, "],", WIDTH - 4)), end]


def mask(visible: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> list[str]:
    """Lines that assign this very mask [query_pos key_pos] to `mask`: a picture of it, or its bits where that is too large."""
    if max(visible.shape) <= LONGEST_PICTURE:
        return [
            "picture = [  # a row for every query: 1 = may attend, . = hidden",
            *('    "' + "".join("1" if cell else "." for cell in row) + '",' for row in visible),
            "]",
            'mask = torch.tensor([[cell == "1" for cell in row] for row in picture])',
        ]
    packed = base64.b64encode(zlib.compress(np.packbits(visible).tobytes(), 9)).decode()
    step = WIDTH - 6
    return [
        "packed = (  # the mask [query_pos key_pos], a bit for every cell: 1 = may attend",
        *(f'    "{packed[i : i + step]}"' for i in range(0, len(packed), step)),
        ")",
        "bits = np.frombuffer(zlib.decompress(base64.b64decode(packed)), np.uint8)",
        f"bits = np.unpackbits(bits, count={visible.size}).astype(bool)",
        f"mask = torch.from_numpy(bits).reshape({visible.shape[0]}, {visible.shape[1]})",
    ]


def filled(start: str, items: Iterable[str], end: str, width: int = WIDTH) -> list[str]:
    """The items with commas between them on one line, or on as many lines as they need, indented.

    No item is ever broken: one that is longer than a line stands on a line of its own.
    """
    items = list(items)
    short = f"{start}{', '.join(items)}{end}"
    if len(short) <= width:
        return [short]
    lines, line = [start], ""
    for item in items:
        longer = f"{line} {item}," if line else f"    {item},"
        if line and len(longer) > width:
            lines.append(line)
            longer = f"    {item},"
        line = longer
    return [*lines, line, end]
