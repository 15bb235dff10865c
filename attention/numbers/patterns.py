"""What the heads of a layer do with a text, some heads and queries at a time: nothing of size T² is kept for all of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from attention.formula.layer import Layer
from attention.formula.names import MASKED_SCORES, MEMORY, WEIGHTS

if TYPE_CHECKING:
    from torch import Tensor

CELLS = 2**20  # weights that are looked at at once: some copies of them are small, and stay near the processor

CELLS_A_SECOND = 20_000_000  # weights that are made and looked at from every side; measured on one thread


@dataclass(frozen=True, eq=False)
class Pattern:
    """The weights of some heads in some rows, and what is known of their positions.

    Attributes:
        weights: [head query_pos key_pos], as they are: rows need not sum to 1.
        visible: which keys each query may look at, [head query_pos key_pos] or [1 query_pos key_pos].
        queries: the position of each row, [query_pos].
        words: numbers of the tokens, the same for the same token: of these rows [query_pos], and of all keys [key_pos].
        counted: which rows are those of a token, and not of padding, [query_pos].
        crossed: whether queries and keys are two texts: then their positions have nothing to do with each other.
        reach: the length of what each key would bring if its weight were 1, [head key_pos]; None where that is not known.
    """

    weights: Tensor
    visible: Tensor
    queries: Tensor
    words: tuple[Tensor, Tensor]
    counted: Tensor
    crossed: bool
    reach: Tensor | None = None

    @cached_property
    def total(self) -> Tensor:
        """What each row sums to, [head query_pos 1]."""
        import torch

        return self.weights.sum(dim=-1, keepdim=True, dtype=torch.float64)

    @cached_property
    def shares(self) -> Tensor:
        """The rows divided by their sums, which 1 mostly is: [head query_pos key_pos]."""
        return self.weights / self.total.to(self.weights.dtype)

    @cached_property
    def n_visible(self) -> Tensor:
        """How many keys each query may look at, [head query_pos]."""
        return self.visible.sum(dim=-1)

    def where(self, defined: Tensor | bool, numbers: Tensor) -> Tensor:
        """A number for each head and query, [head query_pos]: NaN where it is not defined, or the row is none of a token's."""
        there = self.counted & (self.total[..., 0] > 0) & defined
        return numbers.double().masked_fill(~there, math.nan)

    def at(self, steps: int) -> Tensor:
        """The weight of the key so many positions after its query, where there is one that may be looked at."""
        if self.crossed:
            return self.where(False, self.total[..., 0])
        place = self.queries + steps
        there = (place >= 0) & (place < self.weights.shape[-1])
        column = place.clamp(0, self.weights.shape[-1] - 1)[None, :, None]
        seen = self.visible.gather(-1, column.expand(len(self.visible), -1, 1))[..., 0]
        return self.where(there & seen, self.weights.gather(-1, column.expand(len(self.weights), -1, 1))[..., 0])

    def on(self, keys: Tensor) -> Tensor:
        """The weight on some `keys` [query_pos key_pos] together, where any of them may be looked at."""
        import torch

        if self.crossed or not bool(keys.any()):
            return self.where(False, self.total[..., 0])
        there = (keys & self.visible).any(dim=-1)
        return self.where(there, torch.linalg.vecdot(self.weights, keys.to(self.weights.dtype)))

    @cached_property
    def same_word(self) -> Tensor:
        """Which keys are the query's own token, earlier in the text: [query_pos key_pos]."""
        import torch

        rows, keys = self.words
        return (rows[:, None] == keys) & (torch.arange(len(keys)) < self.queries[:, None])

    @cached_property
    def word_after(self) -> Tensor:
        """Which keys come right after an earlier place of the query's own token: [query_pos key_pos]."""
        return self.same_word.roll(1, dims=-1)  # the last key is never before its query, so nothing comes round

    @cached_property
    def distances(self) -> Tensor:
        """How many positions lie between each query and each key, [query_pos key_pos]."""
        import torch

        return (torch.arange(self.weights.shape[-1]) - self.queries[:, None]).abs().to(self.weights.dtype)

    @property
    def uniform(self) -> Pattern:
        """The same rows if the first of the heads had no preference: every key that may be looked at has the same weight."""
        seen = self.visible[:1].to(self.weights.dtype)
        return replace(
            self, weights=seen / seen.sum(-1, keepdim=True).clamp_min(1), visible=self.visible[:1], reach=None
        )


def patterns(layer: Layer) -> Iterator[tuple[slice, slice, Pattern]]:
    """The heads and rows of a layer in blocks, one after the other: which heads, which queries, and their pattern.

    A layer without weights has none.
    """
    import torch

    from attention.numbers.norms import reach

    if not layer.has(WEIGHTS):
        return
    n_heads, n_queries, n_keys = layer.shape(WEIGHTS)
    crossed, brings = is_crossed(layer), reach(layer)
    numbers: dict[str, int] = {}
    rows_of, keys_of = (
        torch.tensor([numbers.setdefault(token, len(numbers)) for token in tokens] or range(size))
        for tokens, size in ((layer.tokens, n_queries), (layer.key_tokens, n_keys))
    )
    counted = torch.tensor(_real(layer, crossed, n_queries))
    lower = not layer.has(MASKED_SCORES) and not layer.has("mask") and not crossed and _looks_back(layer)
    for heads, rows in blocks(n_heads, n_queries, n_keys):
        places = torch.arange(n_queries)[rows]
        if layer.has(MASKED_SCORES):
            weights, masked = layer.part(WEIGHTS, MASKED_SCORES, heads=heads, rows=rows)
            visible = masked != -math.inf
        else:
            (weights,) = layer.part(WEIGHTS, heads=heads, rows=rows)
            seen = layer.mask
            visible = torch.ones(1, len(places), n_keys, dtype=torch.bool) if seen is None else seen[None, rows]
            if lower:
                visible = visible & (torch.arange(n_keys) <= places[:, None])
        own = None if brings is None else brings[heads]
        yield heads, rows, Pattern(weights, visible, places, (rows_of[rows], keys_of), counted[rows], crossed, own)


def blocks(n_heads: int, n_queries: int, n_keys: int) -> Iterator[tuple[slice, slice]]:
    """Heads and rows so that no block has more than `CELLS` cells: several heads of a short text, some rows of a long one."""
    many = max(1, CELLS // (n_queries * n_keys))
    deep = n_queries if n_queries * n_keys <= CELLS else max(1, CELLS // n_keys)
    for head in range(0, n_heads, many):
        for row in range(0, n_queries, deep):
            yield slice(head, min(n_heads, head + many)), slice(row, min(n_queries, row + deep))


def is_crossed(layer: Layer) -> bool:
    """Whether the queries are one text and the keys another."""
    _, n_queries, n_keys = layer.shape(WEIGHTS)
    return layer.has(MEMORY) or layer.tokens != layer.key_tokens or n_queries != n_keys


def _real(layer: Layer, crossed: bool, n_queries: int) -> list[bool]:
    """Which queries are tokens, and not padding."""
    real = layer.formula and layer.formula.mask and layer.formula.mask.real
    if real and not crossed:
        return list(real)
    return [token != "" for token in layer.tokens] or [True] * n_queries


def _looks_back(layer: Layer) -> bool:
    """Whether no head gives any weight to a later key: of weights alone, nobody says which keys could be looked at."""
    n_heads, n_queries, n_keys = layer.shape(WEIGHTS)
    for heads, rows in blocks(n_heads, n_queries, n_keys):
        (weights,) = layer.part(WEIGHTS, heads=heads, rows=rows)
        if bool(weights.triu(rows.start + 1).any()):
            return False
    return True
