"""The heatmaps of a figure as coloured boxes: which cells are seen, where they lie, and in which colour."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.export.paper.markup import color
from attention.pictures.pooling import pooled

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from numpy.typing import NDArray

MOST_CELLS = 256  # along a side of one matrix
MOST_IN_ALL = 4 * MOST_CELLS**2  # in the whole picture: what a PDF reader still opens at once


@dataclass(frozen=True)
class Cells:
    """The visible cells of one heatmap: their boxes [cell 4] (x0 y0 x1 y1, in numbers of the axes), numbers and colours.

    Attributes:
        gap: pixels left free between two cells, across and down.
        number: how a cell's number is written, such as ".2f"; empty where none is.
    """

    boxes: NDArray[np.float64]
    numbers: NDArray[np.float64]
    colors: NDArray[np.str_]
    gap: tuple[float, float]
    number: str
    number_size: float


def visible(figure: go.Figure) -> tuple[list[Cells], tuple[int, int]]:
    """The cells of each heatmap that no later one covers, and how many numbers a cell stands for, down and across.

    A matrix of more than `MOST_CELLS` rows or columns is shown as block maxima. A block is a gap, or covered, only
    where all of it is.
    """
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    if not maps:
        return [], (1, 1)
    layers = [np.asarray(trace.z, dtype=np.float64) for trace in maps]
    panels = _panels(figure, layers[0].shape)
    down, across = block(max(p[2] for p in panels), max(p[3] for p in panels), len(panels))
    boxes: list[list[NDArray[np.float64]]] = [[] for _ in maps]
    numbers: list[list[NDArray[np.float64]]] = [[] for _ in maps]
    for x, y, rows, columns in panels:
        place = np.s_[y : y + rows, x : x + columns]
        right = _edges(x, columns, across)
        lower = _edges(y, rows, down)
        free = np.ones((len(lower) - 1, len(right) - 1), dtype=bool)
        for i in reversed(range(len(maps))):
            matrix = layers[i][place]
            small = pooled(matrix, down, across)
            seen = free & (np.isfinite(small) if i == 0 else ~pooled(~np.isfinite(matrix), down, across))
            free &= ~seen
            row, column = np.nonzero(seen)
            boxes[i].append(np.stack([right[column], lower[row], right[column + 1], lower[row + 1]], axis=1))
            numbers[i].append(small[row, column])
    cells = [
        _cells(trace, np.concatenate(own_boxes), np.concatenate(own_numbers))
        for trace, own_boxes, own_numbers in zip(maps, boxes, numbers, strict=True)
    ]
    return cells, (down, across)


def block(rows: int, columns: int, panels: int) -> tuple[int, int]:
    """How many rows and columns of a matrix one drawn cell stands for, so that no picture has too many."""
    down, across = -(-rows // MOST_CELLS), -(-columns // MOST_CELLS)
    excess = math.sqrt(panels * -(-rows // down) * -(-columns // across) / MOST_IN_ALL)
    if excess > 1:
        down, across = min(rows, math.ceil(down * excess)), min(columns, math.ceil(across * excess))
    return down, across


def colors_of(numbers: NDArray[np.float64], scale: Any, low: float, high: float) -> NDArray[np.str_]:
    """The colour of each number as #rrggbb, as Plotly interpolates its scale between `low` and `high`."""
    at = np.clip((numbers - low) / (high - low or 1), 0, 1)
    stops = [stop for stop, _ in scale]
    rgb = np.array([[int(_hex(css)[i : i + 2], 16) for i in (1, 3, 5)] for _, css in scale], dtype=float)
    mixed = np.stack([np.floor(np.interp(at, stops, part) + 0.5) for part in rgb.T], axis=-1).astype(int)
    return np.array([f"#{r:02x}{g:02x}{b:02x}" for r, g, b in mixed.reshape(-1, 3)], dtype="<U7")


def ink_on(ground: str) -> str:
    """White or near-black, whichever stands out more on this ground."""
    return max("#ffffff", "#111111", key=lambda ink: contrast(ink, ground))


def contrast(one: str, other: str) -> float:
    """How much two colours stand out from each other, 1 … 21, by WCAG."""
    dark, light = sorted(_luminance(color) for color in (one, other))
    return (light + 0.05) / (dark + 0.05)


def _luminance(css: str) -> float:
    parts = (int(css[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _cells(trace: Any, boxes: NDArray[np.float64], numbers: NDArray[np.float64]) -> Cells:
    low, high = trace.zmin, trace.zmax
    if low is None or high is None:
        low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
    written = (trace.texttemplate or "").partition("%{z:")[2].partition("}")[0]
    return Cells(
        boxes,
        numbers,
        colors_of(numbers, trace.colorscale, low, high),
        (trace.xgap or 0, trace.ygap or 0),
        written,
        trace.textfont.size or 10,
    )


def _panels(figure: go.Figure, shape: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """Where the matrices lie in a map, as x, y, rows and columns; a map that does not say is one matrix."""
    given = (figure.layout.meta or {}).get("panels") or [{"x": 0, "y": 0, "rows": shape[0], "columns": shape[1]}]
    return [(panel["x"], panel["y"], panel["rows"], panel["columns"]) for panel in given]


def _edges(start: int, size: int, step: int) -> NDArray[np.float64]:
    return np.append(np.arange(0, size, step), size) + (start - 0.5)


def _hex(css: str) -> str:
    """A colour of a scale, which Plotly lets be written as #abc, #aabbcc or rgb(…), as #aabbcc."""
    found = color(css)[0]
    return "#" + "".join(2 * digit for digit in found[1:]) if len(found) == 4 else found
