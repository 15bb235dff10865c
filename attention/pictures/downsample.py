"""Large matrices for the screen: each block of cells becomes its number of largest magnitude, so that a map has at most 256 × 256 cells and a message few bytes."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np

from attention.pictures.message_contract import Meta
from attention.trace.large_map import MAX_SIDE, bands_of, maxima_of, pool_blocks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray


_OVERVIEW = 64  # rows or columns of the overview beside a part of a map
MAX_SENT_BLOCKS = 8_192  # per pooled map: 40 kB with their offsets


def pool_for_screen(
    figure: dict[str, Any], window: Sequence[int] | None = None, max_blocks: int = MAX_SENT_BLOCKS
) -> dict[str, Any]:
    """Returns a map of one matrix pooled to block maxima where it has more than `MAX_SIDE` rows or columns.

    ``layout.meta["blocks"]`` then has the size of the blocks and where they begin; ``layout.meta["offsets"]`` has the offset of
    each number in its block, and beside a part ``layout.meta["overview"]`` the largest numbers of the whole map. Other figures, {"data": …, "layout": …} as JSON, are returned unchanged.

    Args:
        figure: a map of `heatmap`, as JSON.
        window: the rows and columns to draw after a zoom, [top, bottom, left, right); all of them by default.
        max_blocks: how many blocks a map of more than `MAX_SIDE` rows may send.
    """
    heat, layout = figure["data"][0], figure["layout"]
    matrix = heat.get("z")
    panels = layout["meta"].get("panels", [])
    if matrix is None or len(panels) != 1 or max(matrix.shape) <= MAX_SIDE:
        return figure
    rows, columns = matrix.shape
    top, bottom, left, right = window or (0, rows, 0, columns)
    part = np.s_[max(0, top) : min(rows, bottom), max(0, left) : min(columns, right)]
    top, left, (rows, columns) = (
        part[0].start,
        part[1].start,
        (len(range(n)[s]) for n, s in zip(matrix.shape, part, strict=True)),
    )
    if not rows * columns:
        return pool_for_screen(figure, None, max_blocks)
    down, across = (-(-side // MAX_SIDE) for side in (rows, columns))
    if rows > MAX_SIDE:
        joined = next(by for by in count(1) if -(-rows // (by * down)) * -(-columns // (by * across)) <= max_blocks)
        down, across = joined * down, joined * across
    maxima = maxima_of(matrix, part, down, across)
    position = {"x0": left + (across - 1) / 2, "dx": across, "y0": top + (down - 1) / 2, "dy": down}
    data = [{**heat, **position, "z": _gaps(maxima.numbers)}]
    for trace in figure["data"][1:]:
        if trace["type"] != "heatmap":  # the trace of the colour bar
            data.append(trace)
            continue
        visible = [pool_blocks(np.isnan(band), down, across) for band in bands_of(trace["z"], part, down)]
        data.append({**trace, **position, "z": np.where(np.concatenate(visible), np.float32(np.nan), np.float32(1))})
    meta: Meta = layout["meta"].copy()
    sent_window = [top, top + rows, left, left + columns]
    meta["blocks"] = {"down": down, "across": across, "top": top, "left": left, "window": sent_window}
    if (rows, columns) != matrix.shape:
        whole = maxima_of(
            matrix, np.s_[0 : matrix.shape[0], 0 : matrix.shape[1]], *(-(-n // _OVERVIEW) for n in matrix.shape)
        )
        meta["overview"] = _gaps(whole.numbers)
    title = layout["title"]
    if down * across > 1:
        meta["offsets"] = maxima.offsets
        facts = f"{title['subtitle']['text']} · each cell the largest of {down} × {across}"
        title = {**title, "subtitle": {**title["subtitle"], "text": facts}}
    return {"data": data, "layout": {**layout, "meta": meta, "title": title}}


def keep_only_gaps(figure: dict[str, Any], sent: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Returns the map of second − first with only its gaps as data, if the page can compute exactly the same difference from `sent`."""
    z, first, second = (spec["data"][0].get("z") for spec in (figure, *sent[:2]))
    if any(getattr(matrix, "dtype", None) != np.float32 or matrix.shape != z.shape for matrix in (z, first, second)):
        return figure
    gaps = np.isnan(z)
    with np.errstate(invalid="ignore"):
        if not np.array_equal(np.where(gaps, np.nan, second - first), z, equal_nan=True):
            return figure
    heatmap, *others = figure["data"]
    return {**figure, "data": [{**heatmap, "z": {"gaps": np.packbits(gaps, bitorder="little")}}, *others]}


def _gaps(matrix: NDArray[Any]) -> NDArray[Any]:
    return np.where(np.isfinite(matrix), matrix, np.nan).astype(matrix.dtype)
