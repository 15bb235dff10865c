"""Which heads look alike on a text."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING

from attention.formula import kept
from attention.formula.layer import Layer
from attention.formula.names import WEIGHTS
from attention.formula.trace import Trace
from attention.numbers.patterns import CELLS_A_SECOND, patterns

if TYPE_CHECKING:
    from torch import Tensor


def differences(trace: Trace, layer: int, head: int) -> Sequence[tuple[int, int, float, int]]:
    """Every other head by how alike it looks: layer, head, divergence, and on how many queries that rests; the most alike first.

    The Jensen–Shannon divergence of two rows of shares, in bits, averaged over the queries: 0 is the same, 1 is nothing in
    common; its square root is the distance. Only heads that attend from as many queries to as many keys compare.

    Source: Lin 1991; Clark et al. 2019, "What Does BERT Look At?", section 6.
    """
    number, place, others = _kept_at(trace, layer, head)
    return kept.matrix(number, place, others, lambda: _differences(trace, layer, head))


def seconds(trace: Trace, layer: int, head: int) -> float:
    """About how long `differences` takes on one thread, counted before; what is kept takes none."""
    if kept.KEPT.get(_kept_at(trace, layer, head)) is not None:
        return 0.0
    return sum(math.prod(one.shape(WEIGHTS)) for one in trace.layers if one.has(WEIGHTS)) / CELLS_A_SECOND


def _kept_at(trace: Trace, layer: int, head: int) -> tuple[int, Hashable, Hashable]:
    return trace.layer(layer).number, ("alike", head), tuple((one.number, one.formula) for one in trace.layers)


def _differences(trace: Trace, layer: int, head: int) -> Sequence[tuple[int, int, float, int]]:
    own = trace.layer(layer)
    sizes = own.shape(WEIGHTS)[1:]
    found = []
    for other, its in enumerate(trace.layers):
        alike = its.has(WEIGHTS) and its.shape(WEIGHTS)[1:] == sizes
        if alike and (its.tokens, its.key_tokens) == (own.tokens, own.key_tokens):
            found += [
                (other, at, number, count)
                for at, (number, count) in enumerate(_divergences(own, head, its))
                if (other, at) != (layer, head) and count
            ]
    return sorted(found, key=lambda one: one[2])


def _divergences(own: Layer, head: int, other: Layer) -> list[tuple[float, int]]:
    """The mean divergence of every head of another layer from a head, and the number of queries."""
    import numpy as np
    import torch

    def entropy(shares: Tensor) -> Tensor:
        bits: Tensor = torch.special.entr(shares).sum(dim=-1) / math.log(2)
        return bits

    sums, counts = np.zeros(other.n_heads), np.zeros(other.n_heads, dtype=np.int64)
    for heads, rows, pattern in patterns(other):
        (weights,) = own.part(WEIGHTS, heads=slice(head, head + 1), rows=rows)
        total = weights.sum(dim=-1, keepdim=True)
        shares = weights / total
        middle = (shares + pattern.shares) / 2
        number = entropy(middle) - (entropy(shares) + entropy(pattern.shares)) / 2
        number = pattern.where(total[..., 0] > 0, number.clamp_min(0))
        sums[heads] += number.nansum(dim=-1).numpy()
        counts[heads] += (~number.isnan()).sum(dim=-1).numpy()
    return [(float(one) / max(1, int(count)), int(count)) for one, count in zip(sums, counts, strict=True)]
