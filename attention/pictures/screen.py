"""A map as a screen draws it: never more than 256 × 256 cells, and no more numbers than must travel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attention.pictures.contract import Meta
from attention.pictures.pooling import MOST_CELLS, places, pooled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

SENT_NUMBERS = 8_192  # of a map that is drawn pooled: 40 kB with their places


def on_screen(
    figure: dict[str, Any], window: Sequence[int] | None = None, numbers: int = SENT_NUMBERS
) -> dict[str, Any]:
    """A map of one matrix as a screen draws it: beyond `MOST_CELLS` rows or columns as block maxima.

    ``layout.meta["blocks"]`` then says how large the blocks are and where they begin, and ``layout.meta["at"]`` where
    in its block each number stands. Other figures, {"data": …, "layout": …} as JSON, come back as they are.

    Args:
        figure: a map of `heatmap`, as JSON.
        window: the rows and columns to draw, [top, bottom, left, right), after a zoom; all of them by default.
        numbers: how many blocks may be sent of a map that has more than `MOST_CELLS` rows.
    """
    heat, layout = figure["data"][0], figure["layout"]
    matrix = heat.get("z")
    panels = layout["meta"].get("panels", [])
    if matrix is None or len(panels) != 1 or max(matrix.shape) <= MOST_CELLS:
        return figure
    rows, columns = matrix.shape
    top, bottom, left, right = window or (0, rows, 0, columns)
    part = np.s_[max(0, top) : min(rows, bottom), max(0, left) : min(columns, right)]
    top, left, (rows, columns) = part[0].start, part[1].start, matrix[part].shape
    if not rows * columns:
        return on_screen(figure, None, numbers)
    across = -(-columns // MOST_CELLS)
    wide = -(-columns // across)
    down = max(-(-rows // MOST_CELLS), -(-rows * wide // numbers) if rows > MOST_CELLS else 1)
    place = {"x0": left + (across - 1) / 2, "dx": across, "y0": top + (down - 1) / 2, "dy": down}
    data = [{**heat, **place, "z": _gaps(pooled(matrix[part], down, across))}]
    for ground in figure["data"][1:]:
        if ground["type"] != "heatmap":  # what has the colour bar
            data.append(ground)
            continue
        seen = ~pooled(np.isnan(ground["z"][part]), down, across)
        data.append({**ground, **place, "z": np.where(seen, np.float32(1), np.float32(np.nan))})
    meta: Meta = layout["meta"].copy()
    cut = [top, top + rows, left, left + columns]
    meta["blocks"] = {"down": down, "across": across, "top": top, "left": left, "window": cut}
    title = layout["title"]
    if down * across > 1:
        meta["at"] = places(matrix[part], down, across)
        facts = f"{title['subtitle']['text']} · each cell the largest of {down} × {across}"
        title = {**title, "subtitle": {**title["subtitle"], "text": facts}}
    return {"data": data, "layout": {**layout, "meta": meta, "title": title}}


def gaps_alone(figure: dict[str, Any], sent: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """A map of what the second has less what the first has, as its gaps alone: the page takes the difference, to the bit."""
    z, one, other = (drawn["data"][0].get("z") for drawn in (figure, *sent[:2]))
    if any(getattr(part, "dtype", None) != np.float32 or part.shape != z.shape for part in (z, one, other)):
        return figure
    gaps = np.isnan(z)
    with np.errstate(invalid="ignore"):
        if not np.array_equal(np.where(gaps, np.nan, other - one), z, equal_nan=True):
            return figure
    first, *more = figure["data"]
    return {**figure, "data": [{**first, "z": {"gaps": np.packbits(gaps, bitorder="little")}}, *more]}


def _gaps(matrix: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.isfinite(matrix), matrix, np.nan).astype(matrix.dtype)
