"""One row or column of a map, drawn over the picture whose patches are the tokens of the axis."""

from __future__ import annotations

from base64 import b64encode
from html import escape
from io import BytesIO
from typing import Any

import numpy as np

from attention.core.seen_picture import SeenPicture
from attention.core.steps import find_step
from attention.core.trace import Trace
from attention.errors import MissingError, check_index
from attention.pictures import scales
from attention.pictures.drawing import layer_label
from attention.pictures.layout import Spec, axis_title, base_layout, note, outline
from attention.pictures.message_contract import Meta
from attention.pictures.redraw import plotly_variant
from attention.pictures.token_grid import NO_TOKEN, TokenGrid
from attention.tokens import label

OPACITY = 0.6
"""Of the colours over a picture; the rest is the picture."""
MAX_SIDE = 1024
"""The largest height and width in pixels of a picture in a figure."""

_CELL = 26  # pixels of height of a cell
_HEIGHTS = (240, 640)  # pixels, the lowest and the highest grid
_FRAME = 96  # pixels of height of the title and the edge below


def over_picture_json(
    trace: Trace, step: str, layer: int = 0, head: int = 0, query: int | None = None, key: int | None = None, colors: str = "fixed"
) -> Spec:  # fmt: skip
    """Returns the row of one query over the picture of its keys, or the column of one key over the picture of its queries.

    Each patch has the colour of its number, without smoothing between patches; the other tokens of the axis, such as [CLS],
    stand above the picture as boxes. The query or key itself is outlined if it is a token of the drawn axis.

    Args:
        trace: of a model that reads a picture.
        step: a step whose drawn axis has patches.
        layer: the layer.
        head: the head.
        query: the query whose row is drawn; give it or `key`.
        key: the key, or the column of another axis such as d_model, whose column is drawn.
        colors: one of `scales.COLORS`, as for a heatmap.

    Raises:
        MissingError: there is no such layer, step, head, query or key, both or neither of these are given, or the axis has no patches.
        ConfigError: `colors` is not one of `COLORS`.
    """
    declaration, drawn_layer = find_step(step), trace.layer(layer)
    if (query is None) == (key is None):
        raise MissingError(
            "A picture shows the row of one query or the column of one key; "
            f"got {'neither' if query is None else 'both'}: give query= or key=."
        )
    matrix = drawn_layer.matrix(step, head)
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
    low, high = scales.scale_range(declaration, drawn_layer.finite_range(step), colors)
    color_keys, extra_traces = scales.color_keys(declaration, low, high, colors)
    where = f" H{head}" if declaration.per_head else ""
    own_name = f"{axis_title(own_axis).split(' (')[0]} {fixed}" + (f" {label(own_tokens[fixed])}" if own_tokens else "")
    heat = {
        "type": "heatmap",
        "z": grid.fill(np.where(np.isfinite(numbers.numpy()), numbers.numpy(), np.nan)),
        "text": [["" if at == NO_TOKEN else f"{at} {label(tokens[at])}" for at in line] for line in grid.positions],
        **color_keys,
        "opacity": OPACITY,
        "xgap": 1,
        "ygap": 1,
        "hoverongaps": False,
        "hovertemplate": f"{step} L{layer}{where}<br>{own_name}<br>%{{text}}<br><b>%{{z:.9g}}</b><extra></extra>",
    }
    facts = [
        own_name,
        f"{layer_label(drawn_layer, layer)}{where}",
        *_shares(grid, numbers.numpy(), declaration.kind, axis),
    ]
    facts += [f"{grid.n_left_out} more tokens are not drawn"] * bool(grid.n_left_out)
    seen = ", ".join(f"{placed.rows} rows and {placed.columns} columns of patches" for placed in grid.pictures)
    meta: Meta = {
        "alt": f"{step} over the picture, {', '.join(facts)}: {seen}.",
        "step": step, "layer": layer, "panels": [], "file": [step, f"L{layer}{where.replace(' ', '-')}", f"over-picture-{fixed}"],
    }  # fmt: skip
    layout = base_layout(grid.positions.shape, f"<b>{declaration.symbol}</b>  {step} over the picture", facts, meta)
    height = min(_HEIGHTS[1], max(_HEIGHTS[0], _CELL * grid.positions.shape[0]))
    layout |= {"height": height + _FRAME, "margin": {"l": 12, "r": 12, "t": 78, "b": 18}}
    layout["images"] = layout_images(grid, trace)
    layout["xaxis"] |= {"showticklabels": False, "constrain": "domain"}
    layout["yaxis"] |= {"showticklabels": False, "scaleanchor": "x", "constrain": "domain"}  # square cells
    layout["annotations"] = [
        note(escape(token.text, quote=False), x=token.x + (token.columns - 1) / 2, y=token.y, bgcolor="rgba(255,255,255,0.8)", font={"size": 10, "color": "#111111"})
        for token in grid.others
    ]  # fmt: skip
    is_on_axis = own_axis in ("query_pos", "key_pos") and own_tokens == tokens
    layout["shapes"] = [outline(*box, 3) for box in [grid.box(fixed)] if is_on_axis and box is not None]
    return {"data": [heat, *extra_traces], "layout": layout}


over_picture = plotly_variant(over_picture_json)
"""`over_picture_json` as a Plotly figure."""


def layout_images(grid: TokenGrid, trace: Trace) -> list[dict[str, Any]]:
    """Returns what the model saw of each picture of a grid, at the place of its patches, as the ``images`` of a Plotly layout."""
    images = []
    for placed in grid.pictures:
        seen, (height, width) = trace.pictures[placed.picture], placed.patch_size
        # The pixels that fill no whole patch are cut, so that the patches lie on the pixels that they were made of.
        source = image_source(seen, placed.rows * height, placed.columns * width)
        images.append({
            "source": source, "xref": "x", "yref": "y", "x": placed.x - 0.5, "y": placed.y - 0.5, "sizex": placed.columns,
            "sizey": placed.rows, "xanchor": "left", "yanchor": "top", "sizing": "stretch", "layer": "below",
        })  # fmt: skip
    return images


def image_source(seen: SeenPicture, height: int, width: int) -> str:
    """Returns the upper left pixels of what a model saw as a PNG in a data URI, which a figure carries with it; above `MAX_SIDE`, it is reduced."""
    from PIL import Image

    image, file = Image.fromarray(np.ascontiguousarray(seen.rgb[:height, :width])), BytesIO()
    image.thumbnail((MAX_SIDE, MAX_SIDE))
    image.save(file, "PNG")
    return f"data:image/png;base64,{b64encode(file.getvalue()).decode()}"


def _shares(grid: TokenGrid, numbers: np.ndarray[Any, Any], kind: str, axis: str) -> list[str]:
    """Returns how much of a row of weights lies on the pictures and on the other tokens; empty for other numbers."""
    if kind != "probability" or axis != "key_pos":
        return []
    cells = [
        grid.positions[placed.y : placed.y + placed.rows, placed.x : placed.x + placed.columns]
        for placed in grid.pictures
    ]  # some may have no token, such as patches beside a picture in tiles
    on_pictures = sum(float(numbers[positions[positions != NO_TOKEN]].sum()) for positions in cells)
    return [f"{on_pictures:.2f} on the picture, {float(numbers.sum()) - on_pictures:.2f} on other tokens"]
