"""The weights of a layer in blocks of heads and queries, so that no array of size T² exists for all heads at once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from attention.core.layer import Layer
from attention.core.names import MASKED_SCORES, MEMORY, WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

BLOCK_CELLS = 2**20  # weights per block; temporary copies of this size stay in the processor's cache

CELLS_PER_SECOND = 20_000_000  # weights computed and measured per second; measured on one thread


@dataclass(frozen=True, eq=False)
class Pattern:
    """The weights of some heads in some rows, with visibility and positions.

    Attributes:
        weights: [head query_pos key_pos]; rows need not sum to 1.
        visible: the keys that each query may look at, [head query_pos key_pos] or [1 query_pos key_pos].
        queries: the position of each row, [query_pos].
        token_ids: token ids within the text, equal for equal tokens: of these rows [query_pos], and of all keys [key_pos].
        is_token: whether each row belongs to a token and not to padding, [query_pos].
        is_cross_attention: whether queries and keys are two texts, whose positions cannot be compared.
        contribution_lengths: the length of the vector that each key contributes at weight 1, [head key_pos]; None if unknown.
    """

    weights: Tensor
    visible: Tensor
    queries: Tensor
    token_ids: tuple[Tensor, Tensor]
    is_token: Tensor
    is_cross_attention: bool
    contribution_lengths: Tensor | None = None

    @cached_property
    def row_sums(self) -> Tensor:
        """The sum of each row, [head query_pos 1]."""
        import torch

        return self.weights.sum(dim=-1, keepdim=True, dtype=torch.float64)

    @cached_property
    def probabilities(self) -> Tensor:
        """The rows divided by their sums (usually 1): [head query_pos key_pos]."""
        return self.weights / self.row_sums.to(self.weights.dtype)

    @cached_property
    def n_visible(self) -> Tensor:
        """The number of keys visible to each query, [head query_pos]."""
        return self.visible.sum(dim=-1)

    def nan_unless(self, defined: Tensor | bool, numbers: Tensor) -> Tensor:
        """A number for each head and query, [head query_pos]: NaN where it is undefined, or the row is padding or empty."""
        usable = self.is_token & (self.row_sums[..., 0] > 0) & defined
        return numbers.double().masked_fill(~usable, math.nan)

    def weight_at_offset(self, offset: int) -> Tensor:
        """The weight of the key at this offset from its query, defined where that key exists and is visible."""
        if self.is_cross_attention:
            return self.nan_unless(False, self.row_sums[..., 0])
        position = self.queries + offset
        exists = (position >= 0) & (position < self.weights.shape[-1])
        column = position.clamp(0, self.weights.shape[-1] - 1)[None, :, None]
        visible = self.visible.gather(-1, column.expand(len(self.visible), -1, 1))[..., 0]
        return self.nan_unless(
            exists & visible, self.weights.gather(-1, column.expand(len(self.weights), -1, 1))[..., 0]
        )

    def weight_on(self, keys: Tensor) -> Tensor:
        """The total weight of some `keys` [query_pos key_pos], defined where any of them is visible."""
        import torch

        if self.is_cross_attention or not bool(keys.any()):
            return self.nan_unless(False, self.row_sums[..., 0])
        any_visible = (keys & self.visible).any(dim=-1)
        return self.nan_unless(any_visible, torch.linalg.vecdot(self.weights, keys.to(self.weights.dtype)))

    @cached_property
    def is_earlier_occurrence(self) -> Tensor:
        """Whether each key is an earlier occurrence of the query's token: [query_pos key_pos]."""
        import torch

        rows, keys = self.token_ids
        return (rows[:, None] == keys) & (torch.arange(len(keys)) < self.queries[:, None])

    @cached_property
    def follows_earlier_occurrence(self) -> Tensor:
        """Whether each key directly follows an earlier occurrence of the query's token: [query_pos key_pos]."""
        return self.is_earlier_occurrence.roll(
            1, dims=-1
        )  # the last key never precedes its query, so nothing wraps around

    @cached_property
    def distances(self) -> Tensor:
        """The distance between each query and each key in positions, [query_pos key_pos]."""
        import torch

        return (torch.arange(self.weights.shape[-1]) - self.queries[:, None]).abs().to(self.weights.dtype)

    @property
    def under_uniform_attention(self) -> Pattern:
        """The same rows of the first head under uniform attention: all visible keys have the same weight."""
        visible = self.visible[:1].to(self.weights.dtype)
        return replace(
            self,
            weights=visible / visible.sum(-1, keepdim=True).clamp_min(1),
            visible=self.visible[:1],
            contribution_lengths=None,
        )


def iterate_patterns(layer: Layer) -> Iterator[tuple[slice, slice, Pattern]]:
    """The layer in blocks: the slice of heads, the slice of queries, and their pattern.

    A layer without weights yields nothing.
    """
    import torch

    from attention.analysis.norms import contribution_lengths

    if not layer.has(WEIGHTS):
        return
    n_heads, n_queries, n_keys = layer.shape(WEIGHTS)
    crossed, lengths = is_cross_attention(layer), contribution_lengths(layer)
    numbers: dict[str, int] = {}
    rows_of, keys_of = (
        torch.tensor([numbers.setdefault(token, len(numbers)) for token in tokens] or range(size))
        for tokens, size in ((layer.tokens, n_queries), (layer.key_tokens, n_keys))
    )
    counted = torch.tensor(_real(layer, crossed, n_queries))
    causal = not layer.has(MASKED_SCORES) and not layer.has("mask") and not crossed and _looks_back(layer)
    for heads, rows in iterate_blocks(n_heads, n_queries, n_keys):
        positions = torch.arange(n_queries)[rows]
        if layer.has(MASKED_SCORES):
            weights, masked = layer.blocks(WEIGHTS, MASKED_SCORES, heads=heads, rows=rows)
            visible = masked != -math.inf
        else:
            (weights,) = layer.blocks(WEIGHTS, heads=heads, rows=rows)
            mask = layer.mask
            visible = torch.ones(1, len(positions), n_keys, dtype=torch.bool) if mask is None else mask[None, rows]
            if causal:
                visible = visible & (torch.arange(n_keys) <= positions[:, None])
        block_lengths = None if lengths is None else lengths[heads]
        yield (
            heads,
            rows,
            Pattern(weights, visible, positions, (rows_of[rows], keys_of), counted[rows], crossed, block_lengths),
        )


def iterate_blocks(n_heads: int, n_queries: int, n_keys: int) -> Iterator[tuple[slice, slice]]:
    """Slices of heads and rows with at most `BLOCK_CELLS` cells each: several heads of a short text, or some rows of a long one."""
    n_block_heads = max(1, BLOCK_CELLS // (n_queries * n_keys))
    n_block_rows = n_queries if n_queries * n_keys <= BLOCK_CELLS else max(1, BLOCK_CELLS // n_keys)
    for head in range(0, n_heads, n_block_heads):
        for row in range(0, n_queries, n_block_rows):
            yield slice(head, min(n_heads, head + n_block_heads)), slice(row, min(n_queries, row + n_block_rows))


def is_cross_attention(layer: Layer) -> bool:
    """Whether queries and keys belong to two texts."""
    _, n_queries, n_keys = layer.shape(WEIGHTS)
    return layer.has(MEMORY) or layer.tokens != layer.key_tokens or n_queries != n_keys


def _real(layer: Layer, crossed: bool, n_queries: int) -> list[bool]:
    """Whether each query is a token and not padding."""
    real = layer.formula and layer.formula.mask and layer.formula.mask.real
    if real and not crossed:
        return list(real)
    return [token != "" for token in layer.tokens] or [True] * n_queries


def _looks_back(layer: Layer) -> bool:
    """Whether no head gives any weight to a later key: a causal mask, inferred from weights alone."""
    n_heads, n_queries, n_keys = layer.shape(WEIGHTS)
    for heads, rows in iterate_blocks(n_heads, n_queries, n_keys):
        (weights,) = layer.blocks(WEIGHTS, heads=heads, rows=rows)
        if bool(weights.triu(rows.start + 1).any()):
            return False
    return True
