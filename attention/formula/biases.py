"""What is added to the scores of each pair of positions: one entry for each way."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.formula.inline import defined, inlined
from attention.formula.names import QUERY

if TYPE_CHECKING:
    import torch

    from attention.formula.axes import Distances, PerHead, Scores
    from attention.formula.tensors import Tensors

BUCKETS, FARTHEST = 32, 128  # as in T5: how many distances are told apart, and from where on they are one


@dataclass(frozen=True)
class Bias:
    """One way to add to the scores.

    Attributes:
        bias: its numbers for some heads and queries of a layer.
        words: what it is.
        python: lines that make `bias` of `query_pos` and `key_pos`, for so many heads; none where the source has them.
    """

    bias: Callable[[Tensors, slice, slice], Scores]
    words: str
    python: Callable[[int], list[str]] = lambda _: []

    @property
    def by_distance(self) -> bool:
        """Whether it is made of positions, and not given."""
        return bool(self.python(1))


def slopes(n_heads: int) -> PerHead:
    """How much each head takes off a score for each position of distance: 2^(−8/n), 2^(−16/n), … 2^(−8).

    Where n is no power of two: those of the next smaller one, then every second of the next larger one.
    Source: Press et al. 2022, "Train Short, Test Long", section 3 and the code that belongs to it.
    """
    import torch

    power = 2 ** math.floor(math.log2(n_heads))
    first = [2 ** (-8 * (head + 1) / power) for head in range(power)]
    more = [2 ** (-4 * (head + 1) / power) for head in range(0, 2 * (n_heads - power), 2)]
    return torch.tensor(first + more, dtype=torch.float64)


def bucket(distance: Distances) -> Distances:
    """The group of each distance key_pos − query_pos: near ones each by itself, far ones together, keys after the query in the upper half.

    Source: Raffel et al. 2020, "T5", section 2.1; bidirectional, as in its encoder.
    """
    import torch

    half = BUCKETS // 2
    near = half // 2
    apart = distance.abs()
    # In single precision, as T5 itself: at the edge of a group it decides.
    ratio = torch.log(apart.clamp_min(1).float() / near) / math.log(FARTHEST / near)
    far = near + (ratio * (half - near)).long()
    return (distance > 0).long() * half + torch.where(apart < near, apart, far.clamp_max(half - 1))


def distances(layer: Tensors, rows: slice) -> Distances:
    """key_pos − query_pos of some queries."""
    import torch

    return torch.arange(layer.sizes["key_pos"]) - torch.arange(layer.sizes["query_pos"])[rows, None]


def sloped(slopes: PerHead, distance: Distances, dtype: torch.dtype) -> Scores:
    """What ALiBi takes off a score: the slope of its head, times how far the key is from the query."""
    return (-slopes[:, None, None] * distance.abs()).to(dtype)


def _alibi(layer: Tensors, heads: slice, rows: slice) -> Scores:
    dtype = layer[QUERY].dtype
    return sloped(slopes(layer.n_heads)[heads], distances(layer, rows), dtype)


def _relative(layer: Tensors, heads: slice, rows: slice) -> Scores:
    table = layer["bias_table"]
    return table[bucket(distances(layer, rows))][..., heads].permute(2, 0, 1)


def _given(layer: Tensors, heads: slice, rows: slice) -> Scores:
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
    "alibi": Bias(_alibi, "so much of this head's slope for each position between them", _alibi_python),
    "relative": Bias(_relative, "what this head's table has for this distance", _relative_python),
    "given": Bias(_given, "as it was given"),
}
"""Every way to add to the scores, by its name in a `Formula`."""
