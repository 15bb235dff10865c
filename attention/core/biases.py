"""Biases of the scores: one entry for each variant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.core.inline import defined, inlined
from attention.core.names import QUERY

if TYPE_CHECKING:
    import torch

    from attention.core.layer_view import Tensors
    from attention.core.tensor_types import Distances, PerHead, Scores

BUCKETS, FARTHEST = 32, 128  # as in T5: the number of distance groups, and the distance from which all are in one group


@dataclass(frozen=True)
class Bias:
    """One variant of the bias that is added to the scores.

    Attributes:
        bias: computes the bias for some heads and queries of a layer.
        words: a description.
        python: lines of Python that compute `bias` from `query_pos` and `key_pos`, for a number of heads; empty for a
            provided bias.
    """

    bias: Callable[[Tensors, slice, slice], Scores]
    words: str
    python: Callable[[int], list[str]] = lambda _: []

    @property
    def by_distance(self) -> bool:
        """Whether it is computed from positions, and not provided."""
        return bool(self.python(1))


def slopes(n_heads: int) -> PerHead:
    """The ALiBi slope of each head, [head]: 2^(−8/n), 2^(−16/n), … 2^(−8) for n heads.

    If n is not a power of two, the slopes are those of the next smaller power, then every second one of the next larger power.
    Source: Press et al. 2022, "Train Short, Test Long", section 3 and its published code.
    """
    import torch

    power = 2 ** math.floor(math.log2(n_heads))
    first = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    more = [2 ** (-4 * (head + 1) / power) for head in range(0, 2 * (n_heads - power), 2)]
    return torch.tensor(first + more, dtype=torch.float64)


def bucket(distance: Distances) -> Distances:
    """The T5 bucket of each distance key_pos − query_pos: one bucket per small distance, logarithmic buckets for large ones.

    Keys after the query are in the upper half of the buckets.
    Source: Raffel et al. 2020, "T5", section 2.1; bidirectional, as in its encoder.
    """
    import torch

    half = BUCKETS // 2
    near = half // 2
    apart = distance.abs()
    # In single precision as in T5: the precision decides at the edges of buckets.
    ratio = torch.log(apart.clamp_min(1).float() / near) / math.log(FARTHEST / near)
    far = near + (ratio * (half - near)).long()
    return (distance > 0).long() * half + torch.where(apart < near, apart, far.clamp_max(half - 1))


def distances(layer: Tensors, rows: slice) -> Distances:
    """key_pos − query_pos for some queries."""
    import torch

    return torch.arange(layer.sizes["key_pos"]) - torch.arange(layer.sizes["query_pos"])[rows, None]


def sloped(slopes: PerHead, distance: Distances, dtype: torch.dtype) -> Scores:
    """The ALiBi bias: minus the slope of the head, times the distance between query and key."""
    return (-slopes[:, None, None] * distance.abs()).to(dtype)


def _alibi(layer: Tensors, heads: slice, rows: slice) -> Scores:
    dtype = layer[QUERY].dtype
    return sloped(slopes(layer.n_heads)[heads], distances(layer, rows), dtype)


def _relative(layer: Tensors, heads: slice, rows: slice) -> Scores:
    table = layer["bias_table"]
    return table[bucket(distances(layer, rows))][..., heads].permute(2, 0, 1)


def _provided(layer: Tensors, heads: slice, rows: slice) -> Scores:
    return layer["bias"][heads, rows]


def _alibi_python(n_heads: int) -> list[str]:
    return [
        f"slopes = torch.tensor({slopes(n_heads).tolist()}, dtype=torch.float64)",
        *inlined(sloped, "bias", distance="key_pos - query_pos", dtype="query.dtype"),
    ]


def _relative_python(_: int) -> list[str]:
    return [
        f"BUCKETS, FARTHEST = {BUCKETS}, {FARTHEST}",
        *defined(bucket),
        "bias = bias_table[bucket(key_pos - query_pos)].permute(2, 0, 1)  # [head query_pos key_pos]",
    ]


BIASES: dict[str, Bias] = {
    "alibi": Bias(_alibi, "minus this head's slope for each position between them", _alibi_python),
    "relative": Bias(_relative, "the entry of this head's table for this distance", _relative_python),
    "given": Bias(_provided, "as provided"),
}
"""Every bias, by its name in a `Formula`."""
