"""Trace to Plotly figure. Labels come from the trace, colours from the kind of number.

A figure carries in ``layout.meta`` what a page needs beside the picture: ``alt``, a sentence for who
cannot see it, ``step``, and ``panels``, where the matrix of each head lies in the map.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import plotly.graph_objects as go

from attention.tokens import label
from attention.trace import Step, Trace, find_step

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attention.explain import Cell

    Matrix = NDArray[np.float32]

# Explicit, never a theme's: a page in dark mode must not turn the scale round.
PROBABILITY = "Viridis"
SIGNED = [[0.0, "#2166ac"], [0.25, "#8ec1de"], [0.5, "#f5f4f1"], [0.75, "#f0a582"], [1.0, "#b2182b"]]
MASKED_GROUND = "#9a9da6"
CHOSEN = "#ff3ec9"  # in neither scale

CELL_TEXT_UP_TO = 24  # rows or columns; beyond, numbers in the cells are noise
LABELS_UP_TO = 32
LONGEST_LABEL = 12
HEIGHT = 400
MOSAIC_CELLS = 1_000_000  # what a browser paints in about a second

AXIS_TITLES = {"query_pos": "query (attends from)", "key_pos": "key (attends to)"}


@dataclass(frozen=True)
class Panel:
    """Where one head's matrix lies in a map: its corner, its size, and how many numbers a cell's side stands for."""

    head: int
    x: int
    y: int
    rows: int
    columns: int
    block: int = 1


def color_range(trace: Trace, step: str, layer: int = 0, stretch: bool = False) -> tuple[float, float]:
    """The numbers at the two ends of a step's colours, one range for all heads of the layer, so that heads compare.

    A probability lies in 0 … 1 (with `stretch`: 0 … the largest there is); signed numbers lie
    symmetrically about 0.
    """
    tensor = trace.layer(layer)[step]
    finite = tensor[tensor.isfinite()]
    largest = float(finite.abs().max()) if len(finite) else 0.0
    if find_step(step).kind == "probability":
        return (0.0, largest) if stretch and largest else (0.0, 1.0)
    return (-largest, largest) if largest else (-1.0, 1.0)


def heatmap(trace: Trace, step: str, layer: int = 0, head: int = 0, chosen: Cell | None = None, stretch: bool = False) -> go.Figure:
    """One matrix of a step as a heatmap: rows from top to bottom, one cell per number.

    The `chosen` cell is outlined; in a map of another step the row and the column that share its
    query or key are marked. A hidden score is a gap on a neutral ground; a hidden weight is 0 under
    the same ground. With `stretch` the colours of a probability end at the layer's largest.

    Raises:
        MissingError: the trace has no such layer, step or head.
    """
    found = find_step(step)
    matrix = trace.layer(layer).matrix(step, head)
    rows, columns = matrix.shape
    panel = Panel(head, 0, 0, rows, columns)
    figure = _figure(trace, found, layer, matrix.numpy(), [panel], f"L{layer} H{head}" if found.per_head else f"L{layer}", stretch)
    if max(rows, columns) <= CELL_TEXT_UP_TO:
        figure.data[0].update(texttemplate="%{z:.2f}", textfont_size=11)
    figure.layout.xaxis.update(_ticks(trace, found.column_axis, columns))
    figure.layout.yaxis.update(_ticks(trace, found.row_axis, rows))
    if found.kind == "probability" and rows <= CELL_TEXT_UP_TO:
        figure.layout.margin.r = 58
        sums = ["no key" if total == 0 else f"{total:.2f}" for total in matrix.sum(dim=-1).tolist()]
        _note(figure, "Σ row", y=-0.5, yanchor="bottom", **_BESIDE)
        for row, text in enumerate(sums):
            _note(figure, text, y=row, **_BESIDE)
    if chosen is not None:
        _mark(figure, found, panel, chosen)
    return figure


def heads(trace: Trace, step: str, layer: int = 0, chosen: Cell | None = None, stretch: bool = False) -> go.Figure:
    """All heads of a step as small multiples with one colour scale, in one map with gutters.

    One heatmap instead of a subplot per head: 144 heads stay quick. Above `MOSAIC_CELLS` numbers
    each cell shows the one of largest size in a block, and the title says so.

    Raises:
        MissingError: the trace has no such layer or step.
    """
    found = find_step(step)
    stack = trace.layer(layer)[step].numpy().reshape(-1, *trace.layer(layer).matrix(step).shape)
    block = math.ceil(math.sqrt(stack.size / MOSAIC_CELLS)) if stack.size > MOSAIC_CELLS else 1
    n_heads, rows, columns = stack.shape[0], -(-stack.shape[1] // block), -(-stack.shape[2] // block)
    across = _panels_across(n_heads, rows, columns)
    wide, high = columns + max(1, columns // 12), rows + max(1, rows // 8)
    panels = [Panel(head, head % across * wide, head // across * high, rows, columns, block) for head in range(n_heads)]
    mosaic = np.full((panels[-1].y + rows, min(across, n_heads) * wide - (wide - columns)), np.nan, dtype=np.float32)
    for panel, matrix in zip(panels, stack, strict=True):
        mosaic[_place(panel)] = _pooled(matrix, block)

    name = f"L{layer}, {n_heads} heads" if found.per_head else f"L{layer}, the same for all heads"
    figure = _figure(trace, found, layer, mosaic, panels, name, stretch)
    figure.layout.height = min(1800, 100 + max(300, min(480, 14 * rows)) * (panels[-1].y // high + 1))
    figure.layout.xaxis.update(tickvals=[], title_text=_axis_title(found.column_axis))
    labels = trace.labels_of(found.row_axis) if rows <= LABELS_UP_TO else ()
    firsts = [panel for panel in panels if panel.x == 0] if labels else []
    figure.layout.yaxis.update(
        tickvals=[panel.y + row for panel in firsts for row in range(rows)],
        ticktext=[label(token, LONGEST_LABEL) for _ in firsts for token in labels or ()],
        title_text=_axis_title(found.row_axis),
    )
    for panel in panels:
        if found.per_head:
            _note(figure, f"L{layer} H{panel.head}", x=panel.x - 0.5, y=panel.y - 0.5, xanchor="left", yanchor="bottom")
        if chosen is not None and panel.head == chosen.head and found.per_head:
            _outline(figure, panel.x, panel.y, columns, rows, 3)
        if chosen is not None and chosen.step == step:
            _outline(figure, panel.x + chosen.column // block, panel.y + chosen.row // block, 1, 1, 2)
    return figure


def _figure(trace: Trace, step: Step, layer: int, matrix: Matrix, panels: list[Panel], name: str, stretch: bool) -> go.Figure:
    """What every map has: the numbers, the hidden cells' ground, titles, hover, colours and the alt text."""
    low, high = color_range(trace, step.name, layer, stretch)
    shape = " × ".join(str(size) for size in trace.layer(layer).matrix(step.name).shape)
    facts = [step.formula, name, shape]
    if panels[0].block > 1:
        facts.append(f"each cell the largest of {panels[0].block} × {panels[0].block}")
    if step.kind == "probability" and stretch:
        facts.append(f"colours stretched to 0 … {high:.3g}")
    mask = trace.layer(layer).mask if step.name in ("masked_scores", "weights") else None
    blind = 0 if mask is None else int((~mask.any(dim=1)).sum())
    if blind:
        facts.append(f"{blind} {'query sees' if blind == 1 else 'queries see'} no key")

    drawn = np.where(np.isfinite(matrix), matrix, np.nan).astype(np.float32)
    figure = go.Figure()
    figure.add_heatmap(
        z=drawn,
        customdata=_heads_of(panels, drawn.shape),
        zmin=low,
        zmax=high,
        colorscale=PROBABILITY if step.kind == "probability" else SIGNED,
        hovertemplate=(f"{step.name} " + ("L%d H%%{customdata}" % layer if step.per_head else f"L{layer}"))
        + f"<br>{_short(step.row_axis)} %{{y}}<br>{_short(step.column_axis)} %{{x}}<br><b>%{{z:.9g}}</b><extra></extra>",
        hovertemplatefallback="−∞ (hidden by the mask)",
        colorbar={
            "orientation": "h", "thickness": 8, "len": 0.5, "x": 1, "xanchor": "right", "xpad": 0,
            "y": 1, "yanchor": "bottom", "ypad": 4, "nticks": 3, "outlinewidth": 0, "tickfont_size": 10, "ticklabelposition": "outside top",
        },
    )
    if mask is not None and not bool(mask.all()):
        hidden = np.full(drawn.shape, np.nan, dtype=np.float32)
        for panel in panels:
            hidden[_place(panel)] = np.where(_pooled(mask.numpy(), panel.block), np.nan, 1)
        figure.add_heatmap(z=hidden, colorscale=[[0, MASKED_GROUND], [1, MASKED_GROUND]], zmin=0, zmax=1, showscale=False, hoverinfo="skip", name="hidden")
    figure.update_layout(
        title={
            "text": f"<b>{step.symbol}</b>  {step.name}", "x": 0, "xref": "paper", "y": 1, "yref": "container", "yanchor": "top", "pad_t": 4,
            "font_size": 15, "subtitle": {"text": " · ".join(facts), "font": {"size": 11}},
        },
        template="none",
        font_size=11,
        height=HEIGHT,
        margin={"l": 8, "r": 8, "t": 74, "b": 8},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        uirevision=f"{step.name} {drawn.shape}",  # zoom survives a knob, not another shape
        meta={
            "alt": _alt(trace, step, layer, name, shape, blind),
            "step": step.name,
            "panels": [asdict(panel) for panel in panels],
        },
    )
    plain: dict[str, Any] = {"showgrid": False, "zeroline": False, "showline": False, "ticks": "", "tickmode": "array", "automargin": True, "hoverformat": "d"}
    height, width = drawn.shape
    figure.update_xaxes(**plain, range=[-0.5, width - 0.5], labelalias=_aliases(trace, step.column_axis, [(p.x, p.columns, p.block) for p in panels]))
    figure.update_yaxes(**plain, range=[height - 0.5, -0.5], labelalias=_aliases(trace, step.row_axis, [(p.y, p.rows, p.block) for p in panels]))
    return figure


def _aliases(trace: Trace, axis: str, spans: list[tuple[int, int, int]]) -> dict[str, str]:
    """What the hover says for each place on an axis: position and token, whatever ticks are drawn."""
    tokens = trace.labels_of(axis)
    aliases = {}
    for start, size, block in set(spans):
        for i in range(size):
            position = i * block
            text = f"{position}" if block == 1 else f"{position}…{position + block - 1}"
            aliases[str(start + i)] = text if tokens is None else f"{text}: {label(tokens[position], 40)}"
    return aliases


def _ticks(trace: Trace, axis: str, size: int) -> dict[str, Any]:
    """Ticks on whole numbers with tokens as their texts; where there are many, some, with their positions."""
    stride = math.ceil(size / LABELS_UP_TO)
    tokens = trace.labels_of(axis)
    shown = range(0, size, stride if tokens else max(stride, math.ceil(size / 8)))
    if tokens is None:
        texts = [str(i) for i in shown]
    else:
        texts = [(f"{i} " if stride > 1 else "") + label(tokens[i], LONGEST_LABEL) for i in shown]
    return {"tickvals": list(shown), "ticktext": texts, "title_text": _axis_title(axis), "autotickangles": [0, -90]}


def _heads_of(panels: list[Panel], shape: tuple[int, ...]) -> NDArray[np.uint8]:
    heads_of = np.zeros(shape, dtype=np.uint8)
    for panel in panels:
        heads_of[_place(panel)] = panel.head
    return heads_of


def _place(panel: Panel) -> tuple[slice, slice]:
    return np.s_[panel.y : panel.y + panel.rows, panel.x : panel.x + panel.columns]


def _pooled(matrix: NDArray[Any], block: int) -> NDArray[Any]:
    """The number of largest size in each block × block square; for a mask, whether any is True."""
    if block == 1:
        return matrix
    rows, columns = (-(-size // block) for size in matrix.shape)
    padded = np.zeros((rows * block, columns * block), dtype=matrix.dtype)
    padded[: matrix.shape[0], : matrix.shape[1]] = np.where(np.isfinite(matrix), matrix, 0)
    squares = padded.reshape(rows, block, columns, block).transpose(0, 2, 1, 3).reshape(rows, columns, -1)
    largest = np.abs(squares).argmax(axis=-1) if matrix.dtype != bool else squares.argmax(axis=-1)
    return np.take_along_axis(squares, largest[..., None], axis=-1)[..., 0]


def _panels_across(n_heads: int, rows: int, columns: int) -> int:
    """As many panels in a row as make the whole about 1.8 times as wide as high."""
    return max(1, min(n_heads, round(math.sqrt(1.8 * n_heads * rows / columns))))


def _mark(figure: go.Figure, step: Step, panel: Panel, chosen: Cell) -> None:
    """Outline the chosen cell, or the row and column of this map that share its query or key."""
    if chosen.step == step.name:
        row, column = chosen.row, chosen.column
    else:
        origin = find_step(chosen.step)
        at = {axis: i for axis, i in ((origin.row_axis, chosen.row), (origin.column_axis, chosen.column)) if axis in AXIS_TITLES}
        row, column = at.get(step.row_axis, -1), at.get(step.column_axis, -1)
    if 0 <= row < panel.rows:
        _outline(figure, 0, row, panel.columns, 1, 1)
    if 0 <= column < panel.columns:
        _outline(figure, column, 0, 1, panel.rows, 1)
    if 0 <= row < panel.rows and 0 <= column < panel.columns:
        _outline(figure, column, row, 1, 1, 3)


def _outline(figure: go.Figure, x: int, y: int, columns: int, rows: int, width: int) -> None:
    figure.add_shape(type="rect", x0=x - 0.5, x1=x + columns - 0.5, y0=y - 0.5, y1=y + rows - 0.5, line={"color": CHOSEN, "width": width})


_BESIDE = {"x": 1, "xref": "paper", "xanchor": "left", "xshift": 6}


def _note(figure: go.Figure, text: str, **place: Any) -> None:
    figure.add_annotation(text=text, showarrow=False, font_size=11, **place)


def _axis_title(axis: str) -> str:
    return AXIS_TITLES.get(axis, f"column of {axis}")


def _short(axis: str) -> str:
    return {"query_pos": "query", "key_pos": "key"}.get(axis, axis)


def _alt(trace: Trace, step: Step, layer: int, name: str, shape: str, blind: int) -> str:
    """A sentence that says what the map shows, for who cannot see it."""
    tensor = trace.layer(layer)[step.name]
    finite = tensor[tensor.isfinite()]
    numbers = f"numbers from {float(finite.min()):.4g} to {float(finite.max()):.4g}" if len(finite) else "every number hidden"
    sums = ", every row sums to 1" if step.kind == "probability" and not blind else f", {blind} rows see no key" if blind else ""
    return f"Heatmap of {step.name} ({step.symbol} = {step.formula}), {name}, {shape}: {_axis_title(step.row_axis)} by {_axis_title(step.column_axis)}, {numbers}{sums}. The table below has the numbers."
