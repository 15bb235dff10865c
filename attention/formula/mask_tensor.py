"""Masks as tensors: boolean [query_pos key_pos], True = may attend.

This is the convention of torch's `scaled_dot_product_attention`. `nn.MultiheadAttention` uses the
opposite (True = hidden): convert such masks when they are read.
"""

from __future__ import annotations

import binascii
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from attention.base.errors import ConfigError

if TYPE_CHECKING:
    from attention.formula.tensor_types import Visible

_MAX_POSITIONS = 4096  # rows or columns of a custom mask


def causal(n_queries: int, n_keys: int) -> Visible:
    """The causal mask: a query sees the keys up to its own position, key_pos ≤ query_pos.

    Sequences of unequal lengths are aligned at their first token (top left), as in
    `scaled_dot_product_attention(is_causal=True)`: query i sees keys 0 … i. Two texts are two
    sequences that both start at 0. The other alignment (bottom right) is for a cache of earlier
    keys of the same sequence: `Mask.query_offset`.
    """
    query_pos, key_pos = positions(n_queries, n_keys)
    return key_pos <= query_pos


def custom(n_queries: int, n_keys: int, cells: str) -> Visible:
    """A custom mask: all cells are visible except those encoded in `cells`.

    If the encoded mask is smaller than the map, the cells outside it are visible.

    Raises:
        ConfigError: `cells` is not in the format of `encode`.
    """
    visible = torch.ones(n_queries, n_keys, dtype=torch.bool)
    if cells:
        hidden = torch.from_numpy(_decode(cells))[:n_queries, :n_keys]
        visible[: hidden.shape[0], : hidden.shape[1]] = ~hidden
    return visible


def encode(visible: Visible) -> str:
    """A mask as a short text for a link: its size and the packed hidden cells; empty if no cell is hidden."""
    hidden = np.logical_not(visible.numpy())
    if not hidden.any():
        return ""
    packed = urlsafe_b64encode(zlib.compress(np.packbits(hidden).tobytes(), 9)).decode().rstrip("=")
    return f"{hidden.shape[0]}x{hidden.shape[1]}.{packed}"


def toggle(visible: Visible, query_pos: int, key_pos: int) -> str:
    """The mask with one cell hidden that was visible, or visible that was hidden, in the encoding of `encode`."""
    changed = visible.clone()
    changed[query_pos, key_pos] = ~visible[query_pos, key_pos]
    return encode(changed)


def encoded_size(cells: str) -> tuple[int, int]:
    """The numbers of queries and keys of an encoded mask.

    Raises:
        ConfigError: as for `custom`.
    """
    rows, columns = _decode(cells).shape
    return rows, columns


def _decode(cells: str) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """The hidden cells of an encoded mask, boolean [query_pos key_pos]."""
    try:
        size, _, packed = cells.partition(".")
        rows, columns = (int(n) for n in size.split("x"))
        if not (1 <= rows <= _MAX_POSITIONS and 1 <= columns <= _MAX_POSITIONS):
            raise ValueError(size)
        n_bytes = -(-rows * columns // 8)
        # Decompresses at most these bytes, against decompression bombs.
        raw = zlib.decompressobj().decompress(urlsafe_b64decode(packed + "=" * (-len(packed) % 4)), n_bytes)
        bits = np.unpackbits(np.frombuffer(raw, np.uint8), count=rows * columns)
        if len(raw) != n_bytes:
            raise ValueError(len(raw))
    except (ValueError, binascii.Error, zlib.error):
        shortened = cells if len(cells) <= 24 else cells[:24] + "…"
        raise ConfigError(
            f"cells holds a custom mask in the format of a clicked mask, such as 2x2.eNpzAAAAQQBB; got {shortened!r}: "
            "choose the mask again, with “Click the mask” on Explore."
        ) from None
    return bits.reshape(rows, columns).astype(bool)


def positions(n_queries: int, n_keys: int) -> tuple[Tensor, Tensor]:
    """Positions of queries as a column, and of keys as a row."""
    return torch.arange(n_queries)[:, None], torch.arange(n_keys)[None, :]
