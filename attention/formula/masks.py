"""Which keys a query may attend to: boolean [query_pos key_pos], True = may attend.

This is the convention of torch's `scaled_dot_product_attention`. `nn.MultiheadAttention` uses the
opposite (True = hidden): convert at the border.
"""

from __future__ import annotations

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attention.errors import ConfigError
from attention.formula.mask import Mask

if TYPE_CHECKING:
    from attention.formula.axes import Visible

MOST_POSITIONS = 4096  # rows or columns of a custom mask


def causal(n_queries: int, n_keys: int) -> Visible:
    """A query sees the keys up to its own position: key_pos ≤ query_pos.

    With unequal lengths both sequences are aligned at their first token (top left), as
    `scaled_dot_product_attention(is_causal=True)` does: query i sees keys 0 … i. Two texts here are
    two sequences that both start at 0; the other alignment (bottom right) is for a cache of
    earlier keys of the same sequence, which nothing here has.
    """
    query_pos, key_pos = _positions(n_queries, n_keys)
    return key_pos <= query_pos


def window(n_queries: int, n_keys: int, size: int) -> Visible:
    """A query sees the keys at most `size` positions away, on both sides: |query_pos − key_pos| ≤ size.

    With many more queries than keys, late rows see nothing.
    """
    query_pos, key_pos = _positions(n_queries, n_keys)
    # Not by their difference, which would be a number of 8 bytes for every cell.
    return (key_pos >= query_pos - size) & (key_pos <= query_pos + size)


def prefix(n_queries: int, n_keys: int, size: int) -> Visible:
    """Causal, and the first `size` keys are visible to every query: a prefix that is read both ways.

    Source: Raffel et al. 2020, "T5", figure 4.
    """
    _, key_pos = _positions(n_queries, n_keys)
    return causal(n_queries, n_keys) | (key_pos < size)


def padding(n_queries: int, real: Tensor) -> Visible:
    """Every query sees the `real` keys (boolean [key_pos]) and none that is padding."""
    return real.expand(n_queries, -1)


def custom(n_queries: int, n_keys: int, cells: str) -> Visible:
    """The person's own mask: all visible but the cells that `encode` wrote down.

    Where the written mask is smaller than the map, the cells outside are visible.

    Raises:
        ConfigError: `cells` is not what `encode` writes.
    """
    visible = torch.ones(n_queries, n_keys, dtype=torch.bool)
    if cells:
        written = torch.from_numpy(_decode(cells))[:n_queries, :n_keys]
        visible[: written.shape[0], : written.shape[1]] = ~written
    return visible


def encode(visible: Visible) -> str:
    """A mask as a short text for a link: its size, and the hidden cells, packed.

    Nothing hidden is the empty text.
    """
    hidden = np.logical_not(visible.numpy())
    if not hidden.any():
        return ""
    packed = urlsafe_b64encode(zlib.compress(np.packbits(hidden).tobytes(), 9)).decode().rstrip("=")
    return f"{hidden.shape[0]}x{hidden.shape[1]}.{packed}"


def build(mask: Mask, n_queries: int, n_keys: int) -> Visible:
    """The mask in numbers; what is padding is hidden under every mask.

    Raises:
        ConfigError: the cells of a custom mask are not what `encode` writes.
    """
    match mask.kind:
        case "causal":
            visible = causal(n_queries, n_keys)
        case "window":
            visible = window(n_queries, n_keys, mask.window)
        case "causal window":
            visible = causal(n_queries, n_keys) & window(n_queries, n_keys, mask.window)
        case "prefix":
            visible = prefix(n_queries, n_keys, mask.prefix)
        case "first":
            visible = _positions(n_queries, n_keys)[1].expand(n_queries, -1) == 0
        case "custom":
            visible = custom(n_queries, n_keys, mask.cells)
        case _:
            visible = torch.ones(n_queries, n_keys, dtype=torch.bool)
    if mask.real is None:
        return visible
    return visible & padding(n_queries, torch.tensor(mask.real))


def notes(mask: Mask, n_queries: int, n_keys: int) -> tuple[str, ...]:
    """What a page must say about the mask: that a custom one was made for another size."""
    if mask.kind != "custom" or not mask.cells:
        return ()
    rows, columns = _decode(mask.cells).shape
    if (rows, columns) == (n_queries, n_keys):
        return ()
    return (
        f"The custom mask was made for {rows} × {columns} cells, the map is {n_queries} × {n_keys}: cells outside it are visible.",
    )


def _decode(cells: str) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """The hidden cells, boolean [query_pos key_pos], from what `encode` wrote."""
    try:
        size, _, packed = cells.partition(".")
        rows, columns = (int(n) for n in size.split("x"))
        if not (1 <= rows <= MOST_POSITIONS and 1 <= columns <= MOST_POSITIONS):
            raise ValueError(size)
        whole = -(-rows * columns // 8)
        # No more than the size needs is ever unpacked, whatever the text claims.
        raw = zlib.decompressobj().decompress(urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), whole)
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), count=rows * columns)
        if len(raw) != whole:
            raise ValueError(len(raw))
    except (ValueError, binascii.Error, zlib.error):
        shown = cells if len(cells) <= 24 else cells[:24] + "…"
        raise ConfigError(
            f"cells holds a custom mask as the Masks page writes it, such as 2x2.eNpzAAAAQQBB; got {shown!r}: choose the mask anew there."
        ) from None
    return bits.reshape(rows, columns).astype(bool)


def _positions(n_queries: int, n_keys: int) -> tuple[Tensor, Tensor]:
    return torch.arange(n_queries)[:, None], torch.arange(n_keys)[None, :]
