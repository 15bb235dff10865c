"""One row or column of a map, drawn over the picture whose patches are the tokens of the axis."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.core.names import KEY, QUERY
from attention.core.seen_picture import SeenPicture
from attention.core.steps import Step, find_step
from attention.core.trace import Trace
from attention.errors import MissingError, check_index
from attention.pictures import scales
from attention.pictures.drawing import hidden_cells, layer_label, make_hidden_trace
from attention.pictures.layout import (
    AXIS_TITLES,
    Spec,
    axis_noun,
    base_layout,
    note,
    outline,
    position_name,
    short_axis_name,
)
from attention.pictures.message_contract import Meta
from attention.pictures.redraw import plotly_variant
from attention.pictures.token_grid import NO_TOKEN, TokenGrid
from attention.tokens import place_label, shows_several_pictures

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

OPACITY = 0.6
"""Of the colours over a picture; the rest is the picture."""
FITTED = "fitted"
"""The colour range that reaches up to the largest number on the pictures of one figure."""
MAX_SIDE = 1024
"""The largest height and width in pixels of a picture in a figure."""

EDGE = {"color": "rgba(128,128,128,0.55)", "width": 1}  # visible on dark and on bright pictures
"""The line between patches and around other tokens."""
_SMALL_SIDE = 256  # pixels; smaller pictures are enlarged without smoothing, so that their pixels are seen as they are
_CELL = 26  # pixels of height of a cell
_HEIGHTS = (240, 640)  # pixels, the lowest and the highest grid
_FRAME = 96  # pixels of height of the title and the edge below


def over_picture_json(
    trace: Trace,
    step: str,
    layer: int = 0,
    head: int = 0,
    query: int | None = None,
    key: int | None = None,
    colors: str = "fixed",
    opacity: float = OPACITY,
    chosen: int | None = None,
    exact: bool = True,
) -> Spec:
    """Returns the row of one query over the picture of its keys, or the column of one key over the picture of its queries.

    Each patch has the colour of its number, without smoothing between patches; the other tokens of the axis, such as [CLS],
    stand above the picture as boxes. The query or key itself is outlined with dots if it is a token of the drawn axis.

    Args:
        trace: of a model that reads a picture.
        step: a step whose drawn axis has patches.
        layer: the layer.
        head: the head.
        query: the query whose row is drawn; give it or `key`.
        key: the key, or the column of another axis such as d_model, whose column is drawn.
        colors: one of `scales.COLORS`, as for a heatmap; or `FITTED`, as a single row of many patches has small numbers.
        opacity: of the colours, from 0 (only the picture) to 1 (only the colours).
        chosen: the position of the chosen token of the drawn axis, which is outlined.
        exact: whether the pixels of the picture are exact; otherwise a large picture is compressed, for pages that send it often.

    Raises:
        MissingError: there is no such layer, step, head, query or key, both or neither of these are given, or the axis has no patches.
        ConfigError: `colors` is not one of `COLORS`.
    """
    drawn_layer = trace.layer(layer)
    matrix, span = drawn_layer.matrix(step, head), drawn_layer.finite_range(step)
    return matrix_over_picture_json(
        trace, find_step(step), matrix, span, layer=layer, head=head, query=query, key=key,
        colors=colors, opacity=opacity, chosen=chosen, exact=exact,
    )  # fmt: skip


def matrix_over_picture_json(
    trace: Trace, declaration: Step, matrix: Tensor, span: tuple[float, float] | None, layer: int = 0, head: int = 0,
    query: int | None = None, key: int | None = None, colors: str = "fixed", opacity: float = OPACITY, chosen: int | None = None, exact: bool = True,
) -> Spec:  # fmt: skip
    """`over_picture_json` of a matrix that is no step of the layer, such as a derived map: `declaration` names it, `span` is the range of its numbers.

    Raises:
        MissingError, ConfigError: as `over_picture_json`.
    """
    step, drawn_layer = declaration.name, trace.layer(layer)
    if (query is None) == (key is None):
        raise MissingError(
            "A picture shows the row of one query or the column of one key; "
            f"got {'neither' if query is None else 'both'}: give query= or key=."
        )
    if query is not None:
        check_index("queries", query, matrix.shape[0])
        fixed, numbers, axis, own_axis = query, matrix[query], declaration.column_axis, declaration.row_axis
    else:
        assert key is not None  # one of the two is given
        check_index("keys", key, matrix.shape[1])
        fixed, numbers, axis, own_axis = key, matrix[:, key], declaration.row_axis, declaration.column_axis
    tokens, own_tokens = drawn_layer.labels_of(axis) or (), drawn_layer.labels_of(own_axis)
    grid = TokenGrid.of(tokens)
    if grid is None:
        raise MissingError(
            f"The tokens along {axis} of {step} in layer {layer} are no patches of a picture: choose a layer and a step whose tokens are."
        )
    hidden = _hidden(trace, declaration, layer, head, query, fixed)
    shown = np.where(np.isfinite(numbers.numpy()) & ~hidden, numbers.numpy(), np.nan)
    color_keys, extra_traces = _colors(declaration, colors, span, grid, shown)
    where = f" H{head}" if declaration.per_head else ""
    own_name = position_name(own_axis, fixed, own_tokens)
    hover = f"{step} L{layer}{where}<br>{own_name}<br>{axis_noun(axis)} %{{text}}<br>"
    several = shows_several_pictures(tokens)
    texts = [
        ["" if at == NO_TOKEN else f"{at} {place_label(tokens[at], several)}" for at in line] for line in grid.positions
    ]
    heat = {
        "type": "heatmap",
        "z": grid.fill(shown),
        "text": texts,
        **color_keys,
        "opacity": opacity,
        "hoverongaps": False,
        "hovertemplate": hover + "<b>%{z:.9g}</b><extra></extra>",
    }
    facts = [
        own_name,
        f"{layer_label(drawn_layer, layer)}{where}",
        *_shares(grid, numbers.numpy(), declaration.kind, axis),
    ]
    facts += [f"{grid.n_left_out} more tokens are not drawn"] * bool(grid.n_left_out)
    seen = ", ".join(f"{placed.rows} rows and {placed.columns} columns of patches" for placed in grid.pictures)
    names = [short_axis_name(declaration.row_axis), short_axis_name(declaration.column_axis)]
    is_same = own_axis in AXIS_TITLES and own_tokens == tokens
    meta: Meta = {
        "alt": f"{step} over the picture, {', '.join(facts)}: {seen}.",
        "step": step, "layer": layer, "panels": [], "axes": names,
        "file": [step, f"L{layer}{where.replace(' ', '-')}", f"over-picture-{fixed}"],
        "hidden_trace": make_hidden_trace(hover, "0" if declaration.kind == "probability" else "−∞") | {"opacity": opacity},
        "grid": {
            "positions": grid.positions.astype(np.int32), "top": grid.pictures[0].y, "reads": KEY if query is None else QUERY,
            "at": fixed, "same": is_same,
        },
    }  # fmt: skip
    layout = base_layout(grid.positions.shape, f"<b>{declaration.symbol}</b>  {step} over the picture", facts, meta)
    height = min(_HEIGHTS[1], max(_HEIGHTS[0], _CELL * grid.positions.shape[0]))
    layout |= {
        "height": height + _FRAME,
        "margin": {"l": 12, "r": 22, "t": 78, "b": 18},
    }  # right: half of a number of the bar
    layout["images"] = layout_images(grid, trace, exact)
    layout["xaxis"] |= {"showticklabels": False, "constrain": "domain"}
    layout["yaxis"] |= {"showticklabels": False, "scaleanchor": "x", "constrain": "domain"}  # square cells
    layout["annotations"] = [
        note(escape(token.text, quote=False), x=token.x + (token.columns - 1) / 2, y=token.y, bgcolor="rgba(255,255,255,0.8)", font={"size": 10, "color": "#111111"})
        for token in grid.others
    ]  # fmt: skip
    own_box, chosen_box = grid.box(fixed) if is_same else None, None if chosen is None else grid.box(chosen)
    meta["chosen"] = None if chosen_box is None else [chosen_box[1], chosen_box[0]]
    layout["shapes"] = _edges(grid)
    if own_box is not None:
        dotted = outline(*own_box, 3)
        layout["shapes"].append(dotted | {"line": dotted["line"] | {"dash": "dot"}})
    if chosen_box is not None:
        layout["shapes"].append(outline(*chosen_box, 3))
    gray = grid.fill(np.where(hidden, np.float32(1), np.float32(np.nan)))
    hidden_traces = [meta["hidden_trace"] | {"z": gray, "text": texts}] if hidden.any() else []
    return {"data": [heat, *hidden_traces, *extra_traces], "layout": layout}


over_picture = plotly_variant(over_picture_json)
"""`over_picture_json` as a Plotly figure."""


def layout_images(grid: TokenGrid, trace: Trace, exact: bool = True, max_side: int = MAX_SIDE) -> list[dict[str, Any]]:
    """Returns what the model saw of each picture of a grid, at the place of its patches, as the ``images`` of a Plotly layout."""
    images = []
    for placed in grid.pictures:
        if placed.picture >= len(trace.pictures):  # a layer alone has its tokens, and not the pixels
            continue
        seen, (height, width) = trace.pictures[placed.picture], placed.patch_size
        # The pixels that fill no whole patch are cut, so that the patches lie on the pixels that they were made of.
        source = image_source(seen, placed.rows * height, placed.columns * width, exact, max_side)
        images.append({
            "source": source, "xref": "x", "yref": "y", "x": placed.x - 0.5, "y": placed.y - 0.5, "sizex": placed.columns,
            "sizey": placed.rows, "xanchor": "left", "yanchor": "top", "sizing": "stretch", "layer": "below",
        })  # fmt: skip
    return images


def image_source(seen: SeenPicture, height: int, width: int, exact: bool = True, max_side: int = MAX_SIDE) -> str:
    """Returns the upper left pixels of what a model saw as a PNG in a data URI, which a figure carries with it; above `max_side`, it is reduced.

    A small picture is enlarged by a whole number. Unless it is `exact`, a picture that is not small is a JPEG, with a tenth of the bytes.
    """
    from PIL import Image

    image, file = Image.fromarray(np.ascontiguousarray(seen.rgb[:height, :width])), BytesIO()
    image.thumbnail((max_side, max_side))
    if (factor := min(_SMALL_SIDE, max_side) // max(image.size)) > 1:
        image = image.resize((image.width * factor, image.height * factor), Image.Resampling.NEAREST)
    kind = "PNG" if exact or factor > 1 else "JPEG"
    image.save(file, kind, quality=80)
    return f"data:image/{kind.lower()};base64,{b64encode(file.getvalue()).decode()}"


def _colors(
    step: Step, colors: str, span: tuple[float, float] | None, grid: TokenGrid, numbers: NDArray[np.floating]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Returns the keys of the heatmap for its colours, and the trace of a colour bar that needs one."""
    if colors != FITTED:
        return scales.color_keys(step, *scales.scale_range(step, span, colors), colors)
    finite = numbers[grid.patches][np.isfinite(numbers[grid.patches])]
    span = (float(finite.min()), float(finite.max())) if finite.size else None
    keys, extra_traces = scales.color_keys(step, *scales.scale_range(step, span, "stretched"), "stretched")
    return keys | {"meta": {"colors": FITTED}}, extra_traces


def _hidden(trace: Trace, step: Step, layer: int, head: int, query: int | None, fixed: int) -> NDArray[np.bool_]:
    """Returns which tokens of the drawn axis the mask hides."""
    hidden = hidden_cells(trace, step, layer, head)
    if hidden is None:
        return np.zeros(trace.layer(layer).shape(step.name)[-1 if query is not None else -2], bool)
    return hidden[fixed] if query is not None else hidden[:, fixed]


def _edges(grid: TokenGrid) -> list[dict[str, Any]]:
    """Returns the edges between patches as lines, and those of the boxes of other tokens, which lines do not cross."""
    lines = []
    for placed in grid.pictures:
        left, top = placed.x - 0.5, placed.y - 0.5
        right, bottom = left + placed.columns, top + placed.rows
        lines += [(left + i, top, left + i, bottom) for i in range(placed.columns + 1)]
        lines += [(left, top + i, right, top + i) for i in range(placed.rows + 1)]
    drawn = [{"type": "line", "x0": x0, "y0": y0, "x1": x1, "y1": y1, "line": EDGE} for x0, y0, x1, y1 in lines]
    return drawn + [outline(token.x, token.y, token.columns, 1, 1) | {"line": EDGE} for token in grid.others]


def _shares(grid: TokenGrid, numbers: np.ndarray[Any, Any], kind: str, axis: str) -> list[str]:
    """Returns how much of a row of weights lies on the pictures and on the other tokens; empty for other numbers."""
    if kind != "probability" or axis != "key_pos":
        return []
    on_pictures = float(numbers[grid.patches].sum())
    if not (
        grid.others or grid.n_left_out
    ):  # hidden special tokens may have weight too, which is none of these numbers
        return [f"{on_pictures:.2f} on the picture"]
    return [f"{on_pictures:.2f} on the picture, {float(numbers.sum()) - on_pictures:.2f} on other tokens"]
