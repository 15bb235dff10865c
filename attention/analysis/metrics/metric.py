"""Metrics of a head, each declared once: one number per query, averaged over the queries for which it is defined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.analysis.patterns import Pattern
from attention.errors import MissingError

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """One metric of a head on a text: its name, its formula, its source.

    Attributes:
        name: in Python, in links and in headings.
        meaning: what it measures, in one sentence.
        formula: for one query i, plain text; a are the weights, p is a row divided by its sum, which usually is 1.
        averaged_over: the queries over which it is averaged, in words.
        paper: where it was introduced.
        maximum: the largest possible value, plain text; the smallest is 0.
        compute: the value for each query of some heads, [head query_pos], NaN where undefined.
    """

    name: str
    meaning: str
    formula: str
    averaged_over: str
    paper: str
    compute: Callable[[Pattern], Tensor]
    maximum: str = "1"

    @property
    def range(self) -> str:
        """The range of its values, plain text."""
        return f"0 … {self.maximum}"


def _entropy(pattern: Pattern) -> Tensor:
    import torch

    n_visible = pattern.n_visible
    entropy = torch.special.entr(pattern.probabilities).sum(dim=-1).double()
    return pattern.nan_unless(n_visible > 1, entropy / n_visible.clamp_min(2).double().log())


def _distance(pattern: Pattern) -> Tensor:
    import torch

    return pattern.nan_unless(
        not pattern.is_cross_attention, torch.linalg.vecdot(pattern.probabilities, pattern.distances)
    )


def _first(pattern: Pattern) -> Tensor:
    later = (pattern.queries > 0) | pattern.is_cross_attention
    return pattern.nan_unless(later & pattern.visible[..., 0], pattern.weights[..., 0])


def _norm_first(pattern: Pattern) -> Tensor:
    import torch

    if pattern.contribution_lengths is None:
        return pattern.nan_unless(False, pattern.row_sums[..., 0])
    norms = pattern.weights * pattern.contribution_lengths[:, None]
    total = norms.sum(dim=-1, dtype=torch.float64)
    later = (pattern.queries > 0) | pattern.is_cross_attention
    return pattern.nan_unless(later & pattern.visible[..., 0] & (total > 0), norms[..., 0] / total)


_VOITA = "Voita et al. 2019, Analyzing Multi-Head Self-Attention"
# fmt: off
METRICS: tuple[Metric, ...] = (
    Metric("entropy", "How evenly a query spreads its weights: 0 means a single key, 1 means all visible keys equally.",
        "−Σ_j p_ij log p_ij / log n_i, n_i the number of keys visible to query i", "queries with at least two visible keys",
        "Ghader and Monz 2017, What does Attention in Neural Machine Translation Pay Attention to?; Clark et al. 2019", _entropy),
    Metric("distance", "How far away a query looks on average, in positions; under a causal mask it grows with the length of the text.",
        "Σ_j p_ij |i − j|", "all queries, within one text", "Vig and Belinkov 2019, Analyzing the Structure of Attention", _distance,
        "keys − 1"),
    Metric("previous", "The weight of the preceding token.", "a_i,i−1", "queries for which the preceding token is visible",
        _VOITA, lambda pattern: pattern.weight_at_offset(-1)),
    Metric("next", "The weight of the following token.", "a_i,i+1", "queries for which the following token is visible",
        _VOITA, lambda pattern: pattern.weight_at_offset(1)),
    Metric("first token", "The weight of the first token, where idle heads often look (an attention sink). A large weight need not be a large effect.",
        "a_i,0", "queries after the first for which it is visible",
        "Vig and Belinkov 2019; Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks", _first),
    Metric("self", "The weight of the token itself.", "a_i,i", "all queries, within one text",
        _VOITA, lambda pattern: pattern.weight_at_offset(0)),
    Metric("duplicate token", "The total weight of earlier occurrences of the same token.",
        "Σ a_ij over j < i with x_j = x_i", "queries whose token occurs earlier in the text",
        "Wang et al. 2022, Interpretability in the Wild; TransformerLens, head_detector", lambda pattern: pattern.weight_on(pattern.is_earlier_occurrence)),
    Metric("induction", "The total weight of the tokens that followed earlier occurrences of the same token. It shows where a head looks, not what it copies.",
        "Σ a_ij over j ≤ i with x_j−1 = x_i", "queries whose token occurs earlier in the text",
        "Olsson et al. 2022, In-context Learning and Induction Heads", lambda pattern: pattern.weight_on(pattern.follows_earlier_occurrence)),
    Metric("largest weight", "How concentrated a head is: the largest weight of a query. Looking at a sink counts, too.",
        "max_j a_ij", "all queries", _VOITA, lambda pattern: pattern.nan_unless(True, pattern.weights.amax(dim=-1))),
    Metric("norm-weighted first token", "The first token's share of the vector lengths that a query receives: usually far below its weight.",
        "‖a_i0 f(x_0)‖ / Σ_j ‖a_ij f(x_j)‖, f(x) = (x W_V + b_V) W_O", "queries after the first for which it is visible, if V and W_O are known",
        "Kobayashi et al. 2020, Attention is Not Only a Weight", _norm_first),
)
# fmt: on
"""Every metric, in the order of the tables."""

NAMES = tuple(metric.name for metric in METRICS)


def find(name: str) -> Metric:
    """The metric of this name.

    Raises:
        MissingError: no metric has this name.
    """
    for metric in METRICS:
        if metric.name == name:
            return metric
    raise MissingError(f"a metric is one of {', '.join(NAMES)}; got {name!r}: choose one of them.")
