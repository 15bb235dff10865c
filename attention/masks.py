"""Which keys a query may attend to: boolean [query_pos key_pos], True = may attend.

This is the convention of torch's `scaled_dot_product_attention`. `nn.MultiheadAttention` uses the
opposite (True = hidden): convert at the border.
"""

from __future__ import annotations

import torch
from torch import Tensor

from attention.config import AttentionConfig


def causal(n_queries: int, n_keys: int) -> Tensor:
    """A query sees the keys up to its own position: key_pos ≤ query_pos.

    With unequal lengths both sequences are aligned at their first token (top left), as
    `scaled_dot_product_attention(is_causal=True)` does: query i sees keys 0 … i. Two texts here are
    two sequences that both start at 0; the other alignment (bottom right) is for a cache of
    earlier keys of the same sequence, which nothing here has.

    Returns: boolean [query_pos key_pos].
    """
    query_pos, key_pos = _positions(n_queries, n_keys)
    return key_pos <= query_pos


def window(n_queries: int, n_keys: int, size: int) -> Tensor:
    """A query sees the keys at most `size` positions away, on both sides: |query_pos − key_pos| ≤ size.

    Returns: boolean [query_pos key_pos]. With many more queries than keys, late rows see nothing.
    """
    query_pos, key_pos = _positions(n_queries, n_keys)
    return (query_pos - key_pos).abs() <= size


def build(config: AttentionConfig, n_queries: int, n_keys: int) -> Tensor:
    """The mask that `config` asks for, boolean [query_pos key_pos]; all True for "none"."""
    visible = torch.ones(n_queries, n_keys, dtype=torch.bool)
    if "causal" in config.mask:
        visible = visible & causal(n_queries, n_keys)
    if "window" in config.mask:
        visible = visible & window(n_queries, n_keys, config.window)
    return visible


def _positions(n_queries: int, n_keys: int) -> tuple[Tensor, Tensor]:
    return torch.arange(n_queries)[:, None], torch.arange(n_keys)[None, :]
