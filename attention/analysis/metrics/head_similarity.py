"""Similarity of heads: the Jensen–Shannon divergence between their weights on a text."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from attention.analysis.patterns import CELLS_PER_SECOND, iterate_patterns
from attention.core import cache
from attention.core.layer import Layer
from attention.core.names import WEIGHTS
from attention.core.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor


def similar_heads(trace: Trace, layer: int, head: int) -> Sequence[tuple[int, int, float, int]]:
    """Every other head with its divergence from this one: (layer, head, divergence, number of queries), most similar first.

    The Jensen–Shannon divergence between two rows of weights, in bits, averaged over the queries: 0 means identical, 1 means
    disjoint; its square root is a distance. Only heads with the same numbers of queries and keys can be compared.

    Source: Lin 1991; Clark et al. 2019, "What Does BERT Look At?", section 6.
    """
    uid, key, formulas = _cache_key(trace, layer, head)
    return cache.memoize(uid, key, formulas, lambda: _differences(trace, layer, head))


def estimated_seconds(trace: Trace, layer: int, head: int) -> float:
    """The estimated time of `similar_heads` on one thread; 0 if the result is cached."""
    if cache.CACHE.get(_cache_key(trace, layer, head)) is not None:
        return 0.0
    return sum(math.prod(each.shape(WEIGHTS)) for each in trace.layers if each.has(WEIGHTS)) / CELLS_PER_SECOND


def _cache_key(trace: Trace, layer: int, head: int) -> tuple[int, Hashable, Hashable]:
    return trace.layer(layer).uid, ("alike", head), tuple((each.uid, each.formula) for each in trace.layers)


def _differences(trace: Trace, layer: int, head: int) -> Sequence[tuple[int, int, float, int]]:
    reference = trace.layer(layer)
    sizes = reference.shape(WEIGHTS)[1:]
    entries = []
    for other_index, other in enumerate(trace.layers):
        same_shape = other.has(WEIGHTS) and other.shape(WEIGHTS)[1:] == sizes
        if same_shape and (other.tokens, other.key_tokens) == (reference.tokens, reference.key_tokens):
            entries += [
                (other_index, other_head, divergence, count)
                for other_head, (divergence, count) in enumerate(_divergences(reference, head, other))
                if (other_index, other_head) != (layer, head) and count
            ]
    return sorted(entries, key=lambda entry: entry[2])


def _divergences(reference: Layer, head: int, other: Layer) -> list[tuple[float, int]]:
    """The mean divergence between one head and every head of another layer, with the number of queries."""
    import numpy as np
    import torch

    def entropy(probabilities: Tensor) -> Tensor:
        bits: Tensor = torch.special.entr(probabilities).sum(dim=-1) / math.log(2)
        return bits

    sums, counts = np.zeros(other.n_heads), np.zeros(other.n_heads, dtype=np.int64)
    for heads, rows, pattern in iterate_patterns(other):
        (weights,) = reference.blocks(WEIGHTS, heads=slice(head, head + 1), rows=rows)
        total = weights.sum(dim=-1, keepdim=True)
        probabilities = weights / total
        mixture = (probabilities + pattern.probabilities) / 2
        divergence = entropy(mixture) - (entropy(probabilities) + entropy(pattern.probabilities)) / 2
        divergence = pattern.nan_unless(total[..., 0] > 0, divergence.clamp_min(0))
        sums[heads] += divergence.nansum(dim=-1).numpy()
        counts[heads] += (~divergence.isnan()).sum(dim=-1).numpy()
    return [(float(value) / max(1, int(count)), int(count)) for value, count in zip(sums, counts, strict=True)]
