"""Every metric of a head, declared once: a number for each query, averaged over the queries for which it is defined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from attention.errors import MissingError
from attention.numbers.patterns import Pattern

if TYPE_CHECKING:
    from torch import Tensor


@dataclass(frozen=True)
class Metric:
    """One number of a head on a text: what it is called, how it is made, who made it first.

    Attributes:
        name: in Python, in links and in headings.
        words: what it says of a head, one sentence.
        formula: of one query i, plain text; a is the weights, p a row divided by its sum, which 1 mostly is.
        over: the queries over which it is averaged, in words.
        paper: where it comes from.
        high: the largest it can be, plain text; the smallest is 0.
        of: a number for each query of some heads, [head query_pos], NaN where it is not defined.
    """

    name: str
    words: str
    formula: str
    over: str
    paper: str
    of: Callable[[Pattern], Tensor]
    high: str = "1"

    @property
    def range(self) -> str:
        """What it lies between, plain text."""
        return f"0 … {self.high}"


def _entropy(pattern: Pattern) -> Tensor:
    import torch

    seen = pattern.n_visible
    entropy = torch.special.entr(pattern.shares).sum(dim=-1).double()
    return pattern.where(seen > 1, entropy / seen.clamp_min(2).double().log())


def _distance(pattern: Pattern) -> Tensor:
    import torch

    return pattern.where(not pattern.crossed, torch.linalg.vecdot(pattern.shares, pattern.distances))


def _first(pattern: Pattern) -> Tensor:
    later = (pattern.queries > 0) | pattern.crossed
    return pattern.where(later & pattern.visible[..., 0], pattern.weights[..., 0])


def _norm_first(pattern: Pattern) -> Tensor:
    import torch

    if pattern.reach is None:
        return pattern.where(False, pattern.total[..., 0])
    norms = pattern.weights * pattern.reach[:, None]
    total = norms.sum(dim=-1, dtype=torch.float64)
    later = (pattern.queries > 0) | pattern.crossed
    return pattern.where(later & pattern.visible[..., 0] & (total > 0), norms[..., 0] / total)


_VOITA = "Voita et al. 2019, Analyzing Multi-Head Self-Attention"
# fmt: off
METRICS: tuple[Metric, ...] = (
    Metric("entropy", "How evenly a query spreads its weights: 0 is one key, 1 is all keys that it may look at alike.",
        "−Σ_j p_ij log p_ij / log n_i, n_i the keys that query i may look at", "queries that may look at two keys or more",
        "Ghader and Monz 2017, What does Attention in Neural Machine Translation Pay Attention to?; Clark et al. 2019", _entropy),
    Metric("distance", "How many positions a query looks away on average; under a causal mask it grows with the text.",
        "Σ_j p_ij |i − j|", "all queries, within one text", "Vig and Belinkov 2019, Analyzing the Structure of Attention", _distance,
        "keys − 1"),
    Metric("previous", "The weight of the token just before.", "a_i,i−1", "queries that may look at the token before them",
        _VOITA, lambda pattern: pattern.at(-1)),
    Metric("next", "The weight of the token just after.", "a_i,i+1", "queries that may look at the token after them",
        _VOITA, lambda pattern: pattern.at(1)),
    Metric("first token", "The weight of the first token, where heads with nothing to do often look (a sink). A large weight is no large effect.",
        "a_i,0", "queries after the first that may look at it",
        "Vig and Belinkov 2019; Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks", _first),
    Metric("self", "The weight of the token itself.", "a_i,i", "all queries, within one text",
        _VOITA, lambda pattern: pattern.at(0)),
    Metric("duplicate token", "The weight on earlier places of the same token.",
        "Σ a_ij over j < i with x_j = x_i", "queries whose token stands earlier in the text",
        "Wang et al. 2022, Interpretability in the Wild; TransformerLens, head_detector", lambda pattern: pattern.on(pattern.same_word)),
    Metric("induction", "The weight on what came after earlier places of the same token. It says how a head looks, not what it copies.",
        "Σ a_ij over j ≤ i with x_j−1 = x_i", "queries whose token stands earlier in the text",
        "Olsson et al. 2022, In-context Learning and Induction Heads", lambda pattern: pattern.on(pattern.word_after)),
    Metric("largest weight", "How sure a head is: the largest weight of a query. A head that looks at a sink is sure, too.",
        "max_j a_ij", "all queries", _VOITA, lambda pattern: pattern.where(True, pattern.weights.amax(dim=-1))),
    Metric("norm-weighted first token", "The share of the first token in the lengths of what a query gets from each key: mostly far below its weight.",
        "‖a_i0 f(x_0)‖ / Σ_j ‖a_ij f(x_j)‖, f(x) = (x W_V + b_V) W_O", "queries after the first that may look at it, where V and W_O are known",
        "Kobayashi et al. 2020, Attention is Not Only a Weight", _norm_first),
)
# fmt: on
"""Every metric, in the order of tables."""

NAMES = tuple(metric.name for metric in METRICS)


def find(name: str) -> Metric:
    """The metric of that name.

    Raises:
        MissingError: there is none.
    """
    for metric in METRICS:
        if metric.name == name:
            return metric
    raise MissingError(f"a metric is one of {', '.join(NAMES)}; got {name!r}: choose one of them.")
