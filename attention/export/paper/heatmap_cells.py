"""The heatmaps of a figure as coloured boxes: which cells are visible, their positions and their colours."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.export.paper.markup import color
from attention.pictures.downsample import pool_blocks

if TYPE_CHECKING:
    import plotly.graph_objects as go
    from numpy.typing import NDArray

MAX_CELLS_PER_SIDE = 256  # along one side of a matrix
MAX_CELLS = 4 * MAX_CELLS_PER_SIDE**2  # in one picture: a PDF reader still opens this many at once


@dataclass(frozen=True)
class Cells:
    """The visible cells of one heatmap: their boxes [cell 4] (x0 y0 x1 y1, in axis units), numbers and colours.

    Attributes:
        gap: the gap between two cells in pixels, across and down.
        opacity: of the colours, over a picture below them.
        number: the format of a cell's number, such as ".2f"; empty if cells show no numbers.
    """

    boxes: NDArray[np.float64]
    numbers: NDArray[np.float64]
    colors: NDArray[np.str_]
    gap: tuple[float, float]
    opacity: float
    number: str
    number_size: float


def visible_cells(figure: go.Figure) -> tuple[list[Cells], tuple[int, int]]:
    """The cells of each heatmap that no later heatmap covers, and the number of rows and columns per drawn cell.

    A matrix of more than `MAX_CELLS_PER_SIDE` rows or columns is drawn as block maxima. A block is a gap, or covered, only
    if all of it is.
    """
    maps = [trace for trace in figure.data if trace.type == "heatmap"]
    if not maps:
        return [], (1, 1)
    layers = [np.asarray(trace.z, dtype=np.float64) for trace in maps]
    panels = _panels(figure, layers[0].shape)
    down, across = block_size(max(p[2] for p in panels), max(p[3] for p in panels), len(panels))
    boxes: list[list[NDArray[np.float64]]] = [[] for _ in maps]
    numbers: list[list[NDArray[np.float64]]] = [[] for _ in maps]
    for x, y, rows, columns in panels:
        region = np.s_[y : y + rows, x : x + columns]
        right = _edges(x, columns, across)
        lower = _edges(y, rows, down)
        uncovered = np.ones((len(lower) - 1, len(right) - 1), dtype=bool)
        for i in reversed(range(len(maps))):
            matrix = layers[i][region]
            block_maxima = pool_blocks(matrix, down, across)
            is_visible = uncovered & (
                np.isfinite(block_maxima) if i == 0 else ~pool_blocks(~np.isfinite(matrix), down, across)
            )
            uncovered &= ~is_visible
            row, column = np.nonzero(is_visible)
            boxes[i].append(np.stack([right[column], lower[row], right[column + 1], lower[row + 1]], axis=1))
            numbers[i].append(block_maxima[row, column])
    cells = [
        _cells(trace, np.concatenate(map_boxes), np.concatenate(map_numbers))
        for trace, map_boxes, map_numbers in zip(maps, boxes, numbers, strict=True)
    ]
    return cells, (down, across)


def block_size(rows: int, columns: int, panels: int) -> tuple[int, int]:
    """The number of rows and columns per drawn cell that keeps the picture within its limits."""
    down, across = -(-rows // MAX_CELLS_PER_SIDE), -(-columns // MAX_CELLS_PER_SIDE)
    excess = math.sqrt(panels * -(-rows // down) * -(-columns // across) / MAX_CELLS)
    if excess > 1:
        down, across = min(rows, math.ceil(down * excess)), min(columns, math.ceil(across * excess))
    return down, across


def colors_of(numbers: NDArray[np.float64], scale: Any, low: float, high: float) -> NDArray[np.str_]:
    """The colour of each number as #rrggbb, interpolated like Plotly's scale between `low` and `high`."""
    position = np.clip((numbers - low) / (high - low or 1), 0, 1)
    stops = [stop for stop, _ in scale]
    rgb = np.array([[int(_hex(css)[i : i + 2], 16) for i in (1, 3, 5)] for _, css in scale], dtype=float)
    mixed = np.stack([np.floor(np.interp(position, stops, part) + 0.5) for part in rgb.T], axis=-1).astype(int)
    return np.array([f"#{r:02x}{g:02x}{b:02x}" for r, g, b in mixed.reshape(-1, 3)], dtype="<U7")


def text_color_on(background: str) -> str:
    """White or near-black, whichever has more contrast with the background."""
    return max("#ffffff", "#111111", key=lambda ink: contrast(ink, background))


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours, 1 … 21, by WCAG."""
    dark, light = sorted(_luminance(color) for color in (first, second))
    return (light + 0.05) / (dark + 0.05)


def _luminance(css: str) -> float:
    parts = (int(css[i : i + 2], 16) / 255 for i in (1, 3, 5))
    linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))


def _cells(trace: Any, boxes: NDArray[np.float64], numbers: NDArray[np.float64]) -> Cells:
    low, high = trace.zmin, trace.zmax
    if low is None or high is None:
        low, high = (float(numbers.min()), float(numbers.max())) if len(numbers) else (0.0, 1.0)
    number_format = (trace.texttemplate or "").partition("%{z:")[2].partition("}")[0]
    return Cells(
        boxes,
        numbers,
        colors_of(numbers, trace.colorscale, low, high),
        (trace.xgap or 0, trace.ygap or 0),
        1.0 if trace.opacity is None else trace.opacity,
        number_format,
        trace.textfont.size or 10,
    )


def _panels(figure: go.Figure, shape: tuple[int, ...]) -> list[tuple[int, int, int, int]]:
    """The position and size of each matrix in a map, as x, y, rows and columns; by default the map is one matrix."""
    panels = (figure.layout.meta or {}).get("panels") or [{"x": 0, "y": 0, "rows": shape[0], "columns": shape[1]}]
    return [(panel["x"], panel["y"], panel["rows"], panel["columns"]) for panel in panels]


def _edges(start: int, size: int, step: int) -> NDArray[np.float64]:
    return np.append(np.arange(0, size, step), size) + (start - 0.5)


def _hex(css: str) -> str:
    """A colour of a scale as #aabbcc; Plotly also allows #abc and rgb(…)."""
    hex_color = color(css)[0]
    return "#" + "".join(2 * digit for digit in hex_color[1:]) if len(hex_color) == 4 else hex_color
