"""Attention sinks: the keys that many queries give much of their weight to, whatever these say, and their share of a head's weight."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attention.base import cache
from attention.base.errors import ConfigError
from attention.formula.names import WEIGHTS
from attention.metrics.patterns import iterate_blocks
from attention.trace.layer import Layer
from attention.trace.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

_THRESHOLD = 0.3  # of the mean weight, as in the paper
_SEEN_BY = 8  # a sink is seen by at least one of so many queries: of the last tokens, few queries would decide


def sinks(trace: Trace, threshold: float = _THRESHOLD) -> pd.DataFrame:
    """The attention sinks of every head, and their share of its weight.

    A sink is a key whose mean weight, over the queries that see it, is above the threshold; at least one of eight queries sees it. The weights
    are read row by row, so that texts of any length take little memory.

    Source: Gu et al. 2024, "When Attention Sink Emerges in Language Models", equation 6.

    Args:
        threshold: of the mean weight, from 0 to 1.

    Returns:
        A row for each head: `layer`, `head`; `first_token`, the share of all weight, of all queries, that is on the first key; `sinks`, the positions
        of its sinks; `tokens`, their tokens; `share`, the share of all weight that is on them.

    Raises:
        ConfigError: the threshold is not from 0 to 1.
    """
    import pandas as pd

    if not 0 <= threshold <= 1:
        raise ConfigError(f"threshold is a mean weight from 0 to 1; got {threshold!r}: give a number such as 0.3.")
    rows = []
    for index, layer in enumerate(trace.layers):
        if not layer.has(WEIGHTS):
            continue
        sums, seen = _received(layer)
        shares = sums / sums.sum(dim=1, keepdim=True).clamp_min(1e-300)
        is_sink = (sums > threshold * seen) & (_SEEN_BY * seen >= layer.shape(WEIGHTS)[1])
        for head in range(layer.n_heads):
            keys = is_sink[head].nonzero()[:, 0].tolist()
            tokens = tuple(layer.key_tokens[key] for key in keys if layer.key_tokens)
            rows.append(
                (index, head, float(shares[head, 0]), tuple(keys), tokens, float(shares[head, is_sink[head]].sum()))
            )
    return pd.DataFrame(rows, columns=["layer", "head", "first_token", "sinks", "tokens", "share"])


def _received(layer: Layer) -> tuple[Tensor, Tensor]:
    """The sum of the weights of each key, and by how many queries it is seen, both [head key_pos]."""
    import torch

    def make() -> Tensor:
        n_heads, n_queries, n_keys = layer.shape(WEIGHTS)
        received = torch.zeros(2, n_heads, n_keys, dtype=torch.float64)
        for heads, rows in iterate_blocks(n_heads, n_queries, n_keys):
            (weights,) = layer.blocks(WEIGHTS, heads=heads, rows=rows)
            received[0, heads] += weights.sum(dim=1, dtype=torch.float64)
            for head in range(*heads.indices(n_heads)):
                received[1, head] += layer.visible_cells(head, rows).sum(dim=0)
        return received

    sums, seen = cache.memoize(layer.uid, "received weights", layer.formula, make)
    return sums, seen
