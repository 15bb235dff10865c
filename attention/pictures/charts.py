"""Charts of heads as Plotly JSON: their metrics as points, and maps [layer head] of any number."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attention.base.knobs import ChoiceAmong, Knob
from attention.base.printed import format_number
from attention.metrics import MetricsTable, all_metrics, find
from attention.pictures import scales
from attention.pictures.marks import (
    POINT,
    POINT_COLOR,
    Panel,
    Spec,
    axis,
    cells,
    dotted,
    draw,
    frame,
    outline,
    points,
    ring,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray


LAYER = "layer"
"""The x-axis of a metric drawn against the layer."""

UNSORTED = "layer and head"
SORT = Knob(
    "heads_sort", UNSORTED, ChoiceAmong(lambda: (UNSORTED, *all_metrics())), "Sort heads by",
    "The head with the largest value comes first.", inline=True)  # fmt: skip
X_AXIS = Knob(
    "heads_x", LAYER, ChoiceAmong(lambda: (LAYER, *all_metrics())), "Horizontal axis",
    "The quantity on the horizontal axis of the chart.")  # fmt: skip
Y_AXIS = Knob(
    "heads_y", "entropy", ChoiceAmong(lambda: tuple(all_metrics())), "Vertical axis",
    "The metric on the vertical axis of the chart.")  # fmt: skip
_SPREAD = 0.6  # the fraction of a layer's width over which its heads are spread
_ROW_HEIGHT = 13  # pixels of a layer
_MIN_HEIGHT, _MAX_HEIGHT = 300, 560  # pixels of a map


def head_scatter_json(table: MetricsTable, across: str, up: str, chosen: tuple[int, int] | None = None) -> Spec:
    """Returns a chart with a point for every head: the metric `up` against another metric or the layer `across`; undefined values are left out.

    Against the layer, a line shows uniform attention. The `chosen` head is marked.

    Raises:
        MissingError: there is no such metric.
    """
    ys = table.column(find(up).name)
    layers, heads = (np.array([layer_head[i] for layer_head in table.heads]) for i in range(2))
    if across == LAYER:  # the heads of one layer are spread
        xs = layers + _SPREAD * ((heads + 0.5) / np.array([table.n_heads[layer] for layer in layers]) - 0.5)
    else:
        xs = table.column(find(across).name)
    defined = ~(np.isnan(xs) | np.isnan(ys))
    names = [f"L{layer} H{head}" for layer, head in table.heads]
    many = len(table.n_heads) > 1 and across != LAYER
    colors, colorbar = _layer_colors(layers[defined], len(table.n_heads)) if many else (POINT_COLOR, None)
    hover = f"%{{text}}<br>{up} <b>%{{y:.4g}}</b>" + (f"<br>{across} <b>%{{x:.4g}}</b>" if across != LAYER else "")
    texts = [name for name, is_defined in zip(names, defined, strict=True) if is_defined]
    heads_drawn = points(xs[defined], ys[defined], hover, {**POINT, "color": colors}, text=texts)
    at = [i for i, head in enumerate(table.heads) if head == chosen and defined[i]]
    n_undefined = int((~defined).sum())
    subtitle = f"{find(up).scope}: a point for each of {int(defined.sum())} heads"
    subtitle += f", {n_undefined} without a number" if n_undefined else ""
    drawn_ys = ys[defined]
    if across == LAYER:
        uniform = table.under_uniform_attention(up)
        subtitle += "" if np.isnan(uniform).all() else "; the line is uniform attention"
        drawn_ys = np.append(drawn_ys, uniform)
    alt = f"Scatter chart of the heads, {up} against {across}, {subtitle}. {_extremes(names, ys, defined, up)}".rstrip()
    x = _layer_axis(len(table.n_heads)) if across == LAYER else axis(across, _padded_range(xs[defined]))
    return draw(
        frame(f"{up} and {across}", subtitle, alt, x, axis(up, _padded_range(drawn_ys)), 360),
        colorbar,
        _uniform(table, up) if across == LAYER else None,
        heads_drawn,
        ring(xs[at], ys[at]) if at else None,
    )


def _layer_axis(count: int) -> dict[str, Any]:
    ticks = {i: f"L{i}" for i in range(0, count, max(1, math.ceil(count / 16)))}
    return axis(LAYER, (-0.5, count - 0.5), ticks, grid=False)


def _layer_colors(layers: Any, n_layers: int) -> tuple[list[str], dict[str, Any]]:
    """Returns the colour of each point by its layer, and a trace without points for the colour bar."""
    colors = scales.interpolate_colors(scales.LEAST_SHARE + (1 - scales.LEAST_SHARE) * layers / (n_layers - 1))
    ticks = {i: f"L{i}" for i in sorted({0, (n_layers - 1) // 2, n_layers - 1})}
    scale = [*enumerate(scales.interpolate_colors([scales.LEAST_SHARE, 1]))]
    return colors, scales.bar_trace(0, n_layers - 1, scale, scales.color_bar(ticks, 0.3))


def _uniform(table: MetricsTable, up: str) -> dict[str, Any]:
    """Returns a short line for each layer at the value of uniform attention."""
    numbers = table.under_uniform_attention(up)
    xs, ys = [], []
    for layer, number in enumerate(numbers):
        if not math.isnan(number):
            xs += [layer - 0.45, layer + 0.45, None]
            ys += [float(number), float(number), None]
    return dotted(xs or [None], ys or [None], "uniform attention<br><b>%{y:.4g}</b>")


def _extremes(names: list[str], ys: Any, defined: Any, up: str) -> str:
    if not defined.any():
        return ""
    highest, lowest = int(np.where(defined, ys, -math.inf).argmax()), int(np.where(defined, ys, math.inf).argmin())
    return f"Highest {up}: {names[highest]} with {ys[highest]:.4g}; lowest: {names[lowest]} with {ys[lowest]:.4g}."


def _padded_range(numbers: NDArray[Any]) -> list[float]:
    """Returns the range of an axis that contains 0 and these numbers with some space, so that no point is cut."""
    smallest, largest = float(np.nanmin(numbers, initial=0)), float(np.nanmax(numbers, initial=0))
    top, bottom = (1.0 if 0.5 < size <= 1 else size for size in (largest, -smallest))
    top = top or (0.0 if bottom else 1.0)
    return [-(1.06 * bottom or 0.04 * top), 1.06 * top or 0.04 * bottom]


class HeadQuantity(NamedTuple):
    """A quantity of every head in words.

    Attributes:
        title: of its map.
        noun: it in one or two words.
        description: it in a few words, for the subtitle and the alt text.
        file: the beginning of the name of the file.
        spread: what the uncertainty of each number is.
    """

    title: str
    noun: str
    description: str
    file: str = "heads-that-matter"
    spread: str = "standard deviation"


def head_map_json(
    numbers: NDArray[np.float64],
    quantity: HeadQuantity,
    chosen: tuple[int, int],
    spread: NDArray[np.float64] | None = None,
    is_signed: bool = True,
) -> Spec:
    """Returns a map [layer head] of numbers; the range of numbers with a sign is symmetric.

    Args:
        numbers: [layer head]; NaN where there is none.
        quantity: what they are.
        chosen: the outlined head, as (layer, head).
        spread: the uncertainty of each number, shown with it under the pointer.
        is_signed: whether numbers may be negative.
    """
    title, noun, description, file, of_spread = quantity
    layers, heads = numbers.shape
    limit = float(np.nanmax(np.abs(numbers), initial=0.0)) or 1.0
    largest_head, low = _largest(numbers), f"−{format_number(limit)}" if is_signed else "0"
    alt = f"Heatmap of {description}, layer by head, from {low} to {format_number(limit)}; largest: L{largest_head[0]} H{largest_head[1]} with {format_number(float(numbers[largest_head]))}."
    more = "" if spread is None else f"<br>{of_spread} <b>%{{customdata:.4g}}</b>"
    hover = f"L%{{y}} H%{{x}}<br>{noun} <b>%{{z:.4g}}</b>{more}"
    errors = {} if spread is None else {"customdata": spread}
    meta = {"step": "matters", "panels": [asdict(Panel(0, 0, 0, layers, heads))], "axes": ["layer", "head"], "file": [file, noun.split(maxsplit=1)[0]]}  # fmt: skip
    return draw(
        frame(
            title, description, alt,
            axis("head", (-0.5, heads - 0.5), grid=False, dtick=1 if heads <= 16 else 4),
            axis("layer", (layers - 0.5, -0.5), grid=False, dtick=1 if layers <= 16 else 5),
            min(_MAX_HEIGHT, max(_MIN_HEIGHT, 130 + _ROW_HEIGHT * layers)), meta=meta, uirevision=f"{file} {noun}",
        ),
        cells(numbers, hover, scales.up_to(limit, is_signed), 1, **errors),
        outline(chosen[1], chosen[0], 1, 1, 3),
    )  # fmt: skip


def _largest(numbers: Any) -> tuple[int, int]:
    index = int(np.nanargmax(np.abs(numbers))) if not np.isnan(numbers).all() else 0
    return index // numbers.shape[1], index % numbers.shape[1]
