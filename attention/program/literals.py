"""Texts, numbers and masks as Python literals: exact, ASCII only, safe for any content; and a program's beginning."""

from __future__ import annotations

import base64
import math
import zlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from attention.formula.names import INPUT, MEMORY

if TYPE_CHECKING:
    import numpy as np

VARIABLES = {INPUT: "x", MEMORY: "x2"}
"""The variables of the steps whose variable has another name."""
WIDTH = 100  # characters in a line, where it can be broken
_MAX_PICTURE_SIDE = 64  # rows and columns of a mask that is written as a picture


def file_lines(noun: str, name: str, unnamed: str, is_folder: str = "") -> list[str]:
    """The lines that assign the name of a file of a medium to `file`, and end the program if it is not there; the program reads no other folder.

    Args:
        noun: of the medium, such as "sound".
        name: of the file; a link may have any, and empty: save it under `unnamed`.
        unnamed: the name for what was given in memory.
        is_folder: what the folder of this name holds; empty: it is a file.
    """
    own = text(name.replace("\\", "/").rpartition("/")[2] or unnamed)
    what = is_folder or (f"the {noun}" if name else f"save the {noun} under this name,")
    return [
        f"file = {own}  # {what} in the folder of this program",
        f"if not Path(file).{'is_dir' if is_folder else 'is_file'}():",
        f'    raise SystemExit(f"This program reads a {noun} from {{file!r}}, and there is none: save the {noun} there.")',
    ]


def text(value: str) -> str:
    """The text as a Python literal on one line, in double quotes unless that needs more escapes."""
    literal = ascii(value)  # escapes lone surrogates, newlines and invisible characters, too
    return f'"{literal[1:-1]}"' if literal[0] == "'" and '"' not in literal else literal


def assign_texts(name: str, values: Sequence[str]) -> list[str]:
    """Lines that assign the texts as a list to `name`, as `"the cat".split()` if that is equal and fits."""
    joined = " ".join(values)
    short = f"{name} = {text(joined)}.split()"
    if joined.split() == list(values) and len(short) <= WIDTH:
        return [short]
    return wrap_items(f"{name} = [", map(text, values), "]")


def _number(value: float) -> str:
    """The shortest exact literal of the number; whole numbers have no point. −∞ needs `math`."""
    if value == -math.inf:
        return "-math.inf"
    literal = repr(float(value))
    is_whole = literal.endswith(".0") and literal != "-0.0"  # the integer -0 loses its sign
    return literal.removesuffix(".0") if is_whole else literal


def assign_matrix(name: str, rows: Sequence[Sequence[float]], suffix: str = "") -> list[str]:
    """Lines that assign the rows as a float64 tensor to `name`; one line per row if one line is too short."""
    start, end = f"{name} = torch.tensor([", f"], dtype=torch.float64){suffix}"
    cells = [list(map(_number, row)) for row in rows]
    short = start + ", ".join(f"[{', '.join(row)}]" for row in cells) + end
    if len(short) <= WIDTH:
        return [short]
    return [start, *(f"    {line}" for row in cells for line in wrap_items("[", row, "],", WIDTH - 4)), end]


def assign_mask(visible: np.ndarray[tuple[int, ...], np.dtype[np.bool_]]) -> list[str]:
    """Lines that assign the mask [query_pos key_pos] to `mask`: as a picture, or as packed bits if it is large."""
    if max(visible.shape) <= _MAX_PICTURE_SIDE:
        return [
            "picture = [  # a row for every query: 1 = may attend, . = hidden",
            *('    "' + "".join("1" if cell else "." for cell in row) + '",' for row in visible),
            "]",
            'mask = torch.tensor([[cell == "1" for cell in row] for row in picture])',
        ]
    import numpy as np

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


def wrap_items(start: str, items: Iterable[str], end: str, width: int = WIDTH) -> list[str]:
    """The items, separated by commas, on one line or on as many indented lines as necessary.

    An item is never broken: one that is longer than a line has a line of its own.
    """
    items = list(items)
    short = f"{start}{', '.join(items)}{end}"
    if len(short) <= width:
        return [short]
    lines, line = [start], ""
    for item in items:
        extended = f"{line} {item}," if line else f"    {item},"
        if line and len(extended) > width:
            lines.append(line)
            extended = f"    {item},"
        line = extended
    return [*lines, line, end]


class Snippet(NamedTuple):
    """The beginning of a copied program; `attention.export.program` writes `tokens` before it and the formula after it.

    Variables have the names of the steps and parameters, with `x` for `input` and `x2` for `memory`.

    Attributes:
        about: the origin of the numbers, ASCII, a few words that follow "from".
        lines: the lines that compute the steps on which the others depend: `x` and the projections; `query`, `key` and `value` without
            projections; `value` and `scores` without queries; and so on. A layer with random steps also needs a function `generator`.
        omitted: the steps and parameters that the lines do not compute; the program omits them.
        patched_layers: the indices of the layers that are patched while the lines run. The program defines a function such as `layer_5` for each,
            which computes the patched head outputs from query, key and value.
    """

    about: str
    lines: tuple[str, ...]
    omitted: tuple[str, ...] = ()
    patched_layers: tuple[int, ...] = ()
