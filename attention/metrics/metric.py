"""Metrics of a head, each declared once: one number per query, averaged over the queries for which it is defined, or one per head.

`measure` adds them up over the queries of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from attention.base.errors import MissingError
from attention.base.tokens import any_patch
from attention.features import features
from attention.metrics.patterns import Pattern, is_punctuation, iterate_patterns
from attention.trace.trace import Trace

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.layer import Layer


ON_THIS_TEXT = "on this text"
OF_THE_PARAMETERS = "of the parameters"
UNIFORM, BY_DISTANCE = "uniform attention", "its own distances"
NULLS = {UNIFORM: "if all visible keys had the same weight", BY_DISTANCE: "if only distances counted"}
"""The nulls with their words; with the second, the head gives each distance what it usually gives it, whatever the words (`patterns.DistanceProfile`)."""
SHUFFLED, RANDOM = "shuffled", "random"
"""The controls: the words of a text in random order; and random tokens that are repeated once."""
_NEARBY = 3
"""The largest distance of a token that counts as nearby, in positions."""


@dataclass(frozen=True)
class CellWeights:
    """A metric that sums the weights of some cells, computed as such.

    Attributes:
        cells: the cells, as a mask that can be broadcast to the weights.
        weight: the value of the metric if it is not the total weight of these cells, where any of them is visible.
    """

    cells: Callable[[Pattern], Tensor]
    weight: Callable[[Pattern], Tensor] | None = None

    def __call__(self, pattern: Pattern) -> Tensor:
        """The value for each query, [text head query_pos]."""
        return pattern.weight_on(self.cells(pattern)) if self.weight is None else self.weight(pattern)


@dataclass(frozen=True)
class Metric:
    """One metric of a head: its name, its formula, its source.

    Most are measured on a text, query by query. Others are one number per head, such as those of the parameters of a model.

    Attributes:
        name: in Python, in links and in headings.
        meaning: what it measures, in one sentence.
        formula: for one query i, plain text; a are the weights, p is a row divided by its sum, which usually is 1.
        averaged_over: the queries over which it is averaged, in words.
        paper: where it was introduced.
        compute: the value for each query of some heads, [head query_pos] or [text head query_pos], NaN where undefined; None: `of_heads`
            has the values.
        maximum: the largest possible value, plain text.
        minimum: the smallest possible value, plain text.
        scope: what the value depends on, as part of a heading.
        of_heads: the value of every head of a trace, [layer head], NaN where undefined; None if the trace does not have what it needs.
        estimate: the estimated seconds of `of_heads`.
        of_pictures: whether it is defined only where tokens are patches of a picture.
        null: what a value is compared with to say whether it is more than chance: `UNIFORM`, `BY_DISTANCE`, or nothing.
        control: where a head that does this still does it, a positive control: `SHUFFLED` or `RANDOM`; empty if nothing shows it.
        chip: its place among the metrics that people look for first, and its words there; None if only the menu has it.
    """

    name: str
    meaning: str
    formula: str
    averaged_over: str
    paper: str
    compute: Callable[[Pattern], Tensor] | None
    maximum: str = "1"
    minimum: str = "0"
    scope: str = ON_THIS_TEXT
    of_heads: Callable[[Trace], Tensor | None] = lambda _: None
    estimate: Callable[[Trace], float] = lambda _: 0.0
    of_pictures: bool = False
    null: str = UNIFORM
    control: str = ""
    chip: tuple[int, str] | None = None

    def under_null(self, pattern: Pattern) -> Tensor:
        """The value for each query if the null held, [text head query_pos]; the head axis has length 1 where it is the same for all heads."""
        cells = self.cells
        if self.compute is None or not self.null:
            return pattern.nan_unless(False, pattern.row_sums[..., 0])
        if self.null == BY_DISTANCE and cells is not None:
            return pattern.weight_by_distance(cells(pattern))
        return self.compute(pattern.under_uniform_attention)

    @property
    def cells(self) -> Callable[[Pattern], Tensor] | None:
        """The cells whose weights it sums, such as those of the previous tokens, as a mask that can be broadcast to the weights; None: all."""
        return self.compute.cells if isinstance(self.compute, CellWeights) else None

    @property
    def range(self) -> str:
        """The range of its values, plain text."""
        return f"{self.minimum} … {self.maximum}"


def _entropy(pattern: Pattern) -> Tensor:
    import torch

    n_visible = pattern.n_visible
    entropy = torch.special.entr(pattern.probabilities).sum(dim=-1).double()
    return pattern.nan_unless(n_visible > 1, entropy / n_visible.clamp_min(2).double().log())


def _distance(pattern: Pattern) -> Tensor:
    import torch

    return pattern.nan_unless(pattern.has_distances, torch.linalg.vecdot(pattern.probabilities, pattern.distances))


def _first(pattern: Pattern) -> Tensor:
    later = (pattern.queries > 0) | pattern.is_cross_attention
    return pattern.nan_unless(later & pattern.visible[..., 0], pattern.weights[..., 0])


def _norm_first(pattern: Pattern) -> Tensor:
    import torch

    if pattern.contribution_lengths is None:
        return pattern.nan_unless(False, pattern.row_sums[..., 0])
    norms = pattern.weights * pattern.contribution_lengths[..., None, :]
    total = norms.sum(dim=-1, dtype=torch.float64)
    later = (pattern.queries > 0) | pattern.is_cross_attention
    return pattern.nan_unless(later & pattern.visible[..., 0] & (total > 0), norms[..., 0] / total)


def _offset(offset: int) -> CellWeights:
    return CellWeights(lambda pattern: pattern.offsets == offset, lambda pattern: pattern.weight_at_offset(offset))


def _first_key(pattern: Pattern) -> Tensor:
    return pattern.offsets == -pattern.queries[:, None]


def _distant_induction(pattern: Pattern) -> Tensor:
    return pattern.follows_earlier_occurrence & (pattern.offsets != -1)


def _punctuation(pattern: Pattern) -> Tensor:
    import torch

    return pattern.mask_of_tokens(
        "punctuation", lambda tokens: torch.tensor([is_punctuation(token) for token in tokens])
    )


def _local(pattern: Pattern) -> Tensor:
    return (pattern.offsets.abs() <= _NEARBY) & pattern.has_distances  # without distances no key is near


_VOITA = "Voita et al. 2019, Analyzing Multi-Head Self-Attention"
# fmt: off
_METRICS = (
    Metric("entropy", "How evenly a query spreads its weights: 0 means a single key, 1 means all visible keys equally.",
        "−Σ_j p_ij log p_ij / log n_i, n_i the number of keys visible to query i", "queries with at least two visible keys",
        "Ghader and Monz 2017, What does Attention in Neural Machine Translation Pay Attention to?; Clark et al. 2019", _entropy),
    Metric("distance", "How far away a query looks on average, in positions; under a causal mask it grows with the length of the text.",
        "Σ_j p_ij |i − j|", "all queries, within one text without patches of a picture", "Vig and Belinkov 2019, Analyzing the Structure of Attention", _distance,
        "keys − 1"),
    Metric("previous", "The weight of the preceding token.", "a_i,i−1", "queries for which the preceding token is visible; beside patches of a picture, words after a word",
        _VOITA, _offset(-1), control=SHUFFLED, chip=(2, "previous token")),
    Metric("next", "The weight of the following token.", "a_i,i+1", "queries for which the following token is visible; beside patches of a picture, words before a word",
        _VOITA, _offset(1), control=SHUFFLED),
    Metric("first token", "The weight of the first token, where idle heads often look (an attention sink). A large weight need not be a large effect.",
        "a_i,0", "queries after the first for which it is visible",
        "Vig and Belinkov 2019; Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks", CellWeights(_first_key, _first), control=SHUFFLED, chip=(3, "first token")),
    Metric("self", "The weight of the token itself.", "a_i,i", "all queries, within one text",
        _VOITA, _offset(0), control=SHUFFLED),
    Metric("duplicate token", "The total weight of earlier occurrences of the same token.",
        "Σ a_ij over j < i with x_j = x_i", "queries whose token occurs earlier in the text",
        "Wang et al. 2022, Interpretability in the Wild; TransformerLens, head_detector", CellWeights(lambda pattern: pattern.is_earlier_occurrence), null=BY_DISTANCE, control=RANDOM, chip=(4, "duplicate token")),
    Metric("induction", "The total weight of the tokens that followed earlier occurrences of the same token. It shows where a head looks, not what it copies.",
        "Σ a_ij over j ≤ i with x_j−1 = x_i", "queries whose token occurs earlier in the text",
        "Olsson et al. 2022, In-context Learning and Induction Heads", CellWeights(lambda pattern: pattern.follows_earlier_occurrence), null=BY_DISTANCE, control=RANDOM, chip=(1, "induction")),
    Metric("largest weight", "How concentrated a head is: the largest weight of a query. Looking at a sink counts, too.",
        "max_j a_ij", "all queries", _VOITA, lambda pattern: pattern.nan_unless(True, pattern.weights.amax(dim=-1))),
    Metric("norm-weighted first token", "The first token's share of the vector lengths that a query receives: usually far below its weight.",
        "‖a_i0 f(x_0)‖ / Σ_j ‖a_ij f(x_j)‖, f(x) = (x W_V + b_V) W_O", "queries after the first for which it is visible, if V and W_O are known",
        "Kobayashi et al. 2020, Attention is Not Only a Weight", CellWeights(_first_key, _norm_first), null=""),
    Metric("distant induction", "Induction without the token directly before the query: in “x y x”, the y is both the previous token and the one after the earlier x, so a previous-token head would count.",
        "Σ a_ij over j ≤ i with x_j−1 = x_i and j ≠ i − 1", "queries whose token occurs earlier in the text, with a token after it that is not the previous one",
        "Olsson et al. 2022, In-context Learning and Induction Heads", CellWeights(_distant_induction), null=BY_DISTANCE, control=RANDOM),
    Metric("punctuation", "The total weight of punctuation marks.", "Σ a_ij over j with x_j a punctuation mark", "queries that see a punctuation mark",
        "Clark et al. 2019, What Does BERT Look At?", CellWeights(_punctuation), null=BY_DISTANCE, control=SHUFFLED),
    Metric("local", f"The total weight of the tokens at most {_NEARBY} positions away, and of the token itself.",
        f"Σ a_ij over |i − j| ≤ {_NEARBY}", "all queries, within one text without patches of a picture", "Clark et al. 2019, What Does BERT Look At?; Vig and Belinkov 2019", CellWeights(_local), control=SHUFFLED),
)
# fmt: on


@cache
def all_metrics() -> dict[str, Metric]:
    """Every metric by its name, in the order of the tables: these, and those of features."""
    added = (metric for feature in features() for metric in feature.metrics)
    return {metric.name: metric for metric in (*_METRICS, *added)}


def names_of(trace: Trace) -> tuple[str, ...]:
    """The names of the metrics that a trace can have: those of patches only where it has patches of a picture."""
    has_patches = any(any_patch(layer.key_tokens) for layer in trace.layers)
    return tuple(name for name, metric in all_metrics().items() if has_patches or not metric.of_pictures)


def chips(trace: Trace) -> dict[str, str]:
    """The names of the metrics that people look for first, in their order, with their words."""
    found = (find(name) for name in names_of(trace))
    places = sorted((metric.chip, metric.name) for metric in found if metric.chip)
    return {name: words for (_, words), name in places}


def find(name: str) -> Metric:
    """The metric of this name.

    Raises:
        MissingError: no metric has this name.
    """
    if name not in all_metrics():
        raise MissingError(f"a metric is one of {', '.join(all_metrics())}; got {name!r}: choose one of them.")
    return all_metrics()[name]


_Receiver = Callable[[slice, "Pattern", "Tensor"], None]


def measure(layer: Layer, metrics: Sequence[Metric], receive: _Receiver | None = None) -> tuple[Any, Any, Any]:
    """Metrics of every head of a layer: values and counts [head metric], and the values under uniform attention [metric].

    Args:
        layer: with or without weights.
        metrics: the metrics; one that is not computed query by query is NaN.
        receive: is called for each block and metric: the heads, the pattern, and the value for each query [head query_pos].
    """
    import numpy as np

    n_heads = layer.n_heads
    sums, counts = np.zeros((n_heads + 1, len(metrics))), np.zeros((n_heads + 1, len(metrics)), dtype=np.int64)

    def add(rows: slice, pattern: Pattern, receive: Callable[[Tensor], None] | None = None) -> None:
        for index, metric in enumerate(metrics):
            if metric.compute is None:
                continue
            of_queries = metric.compute(pattern)
            sums[rows, index] += of_queries.nansum(dim=-1).numpy()
            counts[rows, index] += (~of_queries.isnan()).sum(dim=-1).numpy()
            if receive is not None:
                receive(of_queries)

    for heads, _, pattern in iterate_patterns(layer):
        add(heads, pattern, None if receive is None else lambda each, h=heads, p=pattern: receive(h, p, each))  # type: ignore[misc]  # mypy infers no type for the defaults
        if heads.start == 0:
            add(slice(n_heads, None), pattern.under_uniform_attention)
    values = np.full(sums.shape, np.nan)
    np.divide(sums, counts, out=values, where=counts > 0)
    return values[:-1], counts[:-1], values[-1]
