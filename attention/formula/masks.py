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
from attention.formula import mask_rules

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
    return mask_rules.causal(*positions(n_queries, n_keys))


def window(n_queries: int, n_keys: int, size: int) -> Visible:
    """A query sees the keys at most `size` positions away, on both sides: |query_pos − key_pos| ≤ size.

    With many more queries than keys, late rows see nothing.
    """
    return mask_rules.window(*positions(n_queries, n_keys), size)


def prefix(n_queries: int, n_keys: int, size: int) -> Visible:
    """Causal, and the first `size` keys are visible to every query: a prefix that is read both ways.

    Source: Raffel et al. 2020, "T5", figure 4.
    """
    return mask_rules.prefix(*positions(n_queries, n_keys), size)


def padding(n_queries: int, real: Tensor) -> Visible:
    """Every query sees the `real` keys (boolean [key_pos]) and none that is padding."""
    return real.expand(n_queries, -1)


def custom(n_queries: int, n_keys: int, cells: str) -> Visible:
    """The person's own mask: all visible but the cells that `encode` wrote down.

    Where the written mask is smaller than the map, the cells outside are visible.

    Raises:
        ConfigError: `cells` is not what `encode` writes.
    """
    visible = all_visible(n_queries, n_keys)
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


def first(n_queries: int, n_keys: int) -> Visible:
    """Every query sees the first key alone."""
    return mask_rules.first(*positions(n_queries, n_keys))


def all_visible(n_queries: int, n_keys: int) -> Visible:
    """Every query sees every key."""
    return torch.ones(n_queries, n_keys, dtype=torch.bool)


def size(cells: str) -> tuple[int, int]:
    """For how many queries and keys `encode` wrote a mask.

    Raises:
        ConfigError: as for `custom`.
    """
    rows, columns = _decode(cells).shape
    return rows, columns


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


def positions(n_queries: int, n_keys: int) -> tuple[Tensor, Tensor]:
    """The positions of queries as a column, and those of keys as a row."""
    return torch.arange(n_queries)[:, None], torch.arange(n_keys)[None, :]
