"""Metrics of a head, each declared once: one number per query, averaged over the queries for which it is defined, or one per head.

`measure` adds them up over the queries of a layer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attention.base.errors import AttentionError, MissingError
from attention.base.tokens import any_patch
from attention.circuits import copying, direct_effects
from attention.metrics.patterns import CLS, PATCH, REGISTER, WORD, Pattern, is_punctuation, iterate_patterns
from attention.trace.trace import Trace
from attention.vision import places

if TYPE_CHECKING:
    from torch import Tensor

    from attention.trace.head_matrices import HeadMatrices
    from attention.trace.layer import Layer


ON_THIS_TEXT = "on this text"
OF_THE_PARAMETERS = "of the parameters"
UNIFORM, BY_DISTANCE = "uniform attention", "its own distances"
NULLS = {UNIFORM: "if all visible keys had the same weight", BY_DISTANCE: "if only distances counted"}
"""The nulls with their words; with the second, the head gives each distance what it usually gives it, whatever the words (`patterns.DistanceProfile`)."""
SHUFFLED, RANDOM = "shuffled", "random"
"""The controls: the words of a text in random order; and random tokens that are repeated once."""
NEARBY = 3
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
    """The weight of the key at this offset from its query."""
    return CellWeights(
        lambda pattern: pattern.offsets == offset,
        lambda pattern: pattern.weight_at_offset(offset),
    )


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
    return (pattern.offsets.abs() <= NEARBY) & pattern.has_distances  # without distances no key is near


def _matrices(trace: Trace) -> HeadMatrices | None:
    """The matrices of the heads; None if the source has no model, or its matrices are not known."""
    try:
        return None if trace.model_run is None else trace.model_run.head_matrices()
    except AttentionError:
        return None


def _copying(trace: Trace) -> Tensor | None:
    matrices = _matrices(trace)
    return None if matrices is None or matrices.no_vocabulary_reason else copying.copying_scores(matrices)


def _copying_seconds(trace: Trace) -> float:
    matrices = _matrices(trace)
    return 0.0 if matrices is None else copying.estimated_seconds(matrices)


_VIT = "Dosovitskiy et al. 2021, An Image is Worth 16x16 Words"
_DARCET = "Darcet et al. 2024, Vision Transformers Need Registers"
_VOITA = "Voita et al. 2019, Analyzing Multi-Head Self-Attention"
# fmt: off
METRICS: tuple[Metric, ...] = (
    Metric("entropy", "How evenly a query spreads its weights: 0 means a single key, 1 means all visible keys equally.",
        "−Σ_j p_ij log p_ij / log n_i, n_i the number of keys visible to query i", "queries with at least two visible keys",
        "Ghader and Monz 2017, What does Attention in Neural Machine Translation Pay Attention to?; Clark et al. 2019", _entropy),
    Metric("distance", "How far away a query looks on average, in positions; under a causal mask it grows with the length of the text.",
        "Σ_j p_ij |i − j|", "all queries, within one text without patches of a picture", "Vig and Belinkov 2019, Analyzing the Structure of Attention", _distance,
        "keys − 1"),
    Metric("previous", "The weight of the preceding token.", "a_i,i−1", "queries for which the preceding token is visible; beside patches of a picture, words after a word",
        _VOITA, _offset(-1), control=SHUFFLED),
    Metric("next", "The weight of the following token.", "a_i,i+1", "queries for which the following token is visible; beside patches of a picture, words before a word",
        _VOITA, _offset(1), control=SHUFFLED),
    Metric("first token", "The weight of the first token, where idle heads often look (an attention sink). A large weight need not be a large effect.",
        "a_i,0", "queries after the first for which it is visible",
        "Vig and Belinkov 2019; Xiao et al. 2023, Efficient Streaming Language Models with Attention Sinks", CellWeights(_first_key, _first), control=SHUFFLED),
    Metric("self", "The weight of the token itself.", "a_i,i", "all queries, within one text",
        _VOITA, _offset(0), control=SHUFFLED),
    Metric("duplicate token", "The total weight of earlier occurrences of the same token.",
        "Σ a_ij over j < i with x_j = x_i", "queries whose token occurs earlier in the text",
        "Wang et al. 2022, Interpretability in the Wild; TransformerLens, head_detector", CellWeights(lambda pattern: pattern.is_earlier_occurrence), null=BY_DISTANCE, control=RANDOM),
    Metric("induction", "The total weight of the tokens that followed earlier occurrences of the same token. It shows where a head looks, not what it copies.",
        "Σ a_ij over j ≤ i with x_j−1 = x_i", "queries whose token occurs earlier in the text",
        "Olsson et al. 2022, In-context Learning and Induction Heads", CellWeights(lambda pattern: pattern.follows_earlier_occurrence), null=BY_DISTANCE, control=RANDOM),
    Metric("largest weight", "How concentrated a head is: the largest weight of a query. Looking at a sink counts, too.",
        "max_j a_ij", "all queries", _VOITA, lambda pattern: pattern.nan_unless(True, pattern.weights.amax(dim=-1))),
    Metric("norm-weighted first token", "The first token's share of the vector lengths that a query receives: usually far below its weight.",
        "‖a_i0 f(x_0)‖ / Σ_j ‖a_ij f(x_j)‖, f(x) = (x W_V + b_V) W_O", "queries after the first for which it is visible, if V and W_O are known",
        "Kobayashi et al. 2020, Attention is Not Only a Weight", CellWeights(_first_key, _norm_first), null=""),
    Metric("copying score", "Whether a head raises the token that it reads, through W_V, W_O and the vocabulary alone: 1 means that it copies every token, −1 that it suppresses it. It says nothing about where the head looks.",
        "Σλ / Σ|λ|, λ the eigenvalues of W_E W_V W_O W_U", "the whole vocabulary, for models whose heads have a linear path to the logits",
        "Elhage et al. 2021, A Mathematical Framework for Transformer Circuits", None, "1", "−1", OF_THE_PARAMETERS, _copying, _copying_seconds),
    Metric("direct effect", "What a head adds to the logit of the likeliest next token through W_O, the frozen norms and the unembedding, and nothing else. The head that writes the word need not be the one without which the model fails.",
        "z W_O N w_U at the position of the last prediction", "the position of the last prediction, for models that predict the next token",
        "Wang et al. 2022, Interpretability in the Wild; nostalgebraist 2020, the logit lens", None, "∞", "−∞", ON_THIS_TEXT,
        direct_effects.direct_effects, direct_effects.direct_effects_seconds),
    Metric("distant induction", "Induction without the token directly before the query: in “x y x”, the y is both the previous token and the one after the earlier x, so a previous-token head would count.",
        "Σ a_ij over j ≤ i with x_j−1 = x_i and j ≠ i − 1", "queries whose token occurs earlier in the text, with a token after it that is not the previous one",
        "Olsson et al. 2022, In-context Learning and Induction Heads", CellWeights(_distant_induction), null=BY_DISTANCE, control=RANDOM),
    Metric("punctuation", "The total weight of punctuation marks.", "Σ a_ij over j with x_j a punctuation mark", "queries that see a punctuation mark",
        "Clark et al. 2019, What Does BERT Look At?", CellWeights(_punctuation), null=BY_DISTANCE, control=SHUFFLED),
    Metric("local", f"The total weight of the tokens at most {NEARBY} positions away, and of the token itself.",
        f"Σ a_ij over |i − j| ≤ {NEARBY}", "all queries, within one text without patches of a picture", "Clark et al. 2019, What Does BERT Look At?; Vig and Belinkov 2019", CellWeights(_local), control=SHUFFLED),
    Metric("patch distance", "How far away a patch looks on average, in patches: the distance between the centres of two patches, one row or one column being 1. Weights on other tokens do not count.",
        "Σ_j a_ij √((r_i − r_j)² + (c_i − c_j)²) / Σ_j a_ij, over patches j of the same picture, at row r and column c", "queries that are patches",
        "Dosovitskiy et al. 2021, An Image is Worth 16x16 Words, figure 7 (attention distance)", places.patch_distance, "diagonal", of_pictures=True),
    Metric("near patches", "The total weight of the patch of the query itself and of its neighbours, at most one row and one column away.",
        f"Σ a_ij over patches j of the same picture with |r_i − r_j| ≤ {places.NEAR} and |c_i − c_j| ≤ {places.NEAR}", "queries that are patches",
        "Cordonnier et al. 2020, On the Relationship between Self-Attention and Convolutional Layers", CellWeights(places.near_patches), of_pictures=True),
    Metric("on the picture", "The total weight of patches.", "Σ a_ij over j with x_j a patch", "queries that see a patch, in a layer that reads a picture",
        _VIT, CellWeights(places.keys_of_kind(PATCH)), of_pictures=True),
    Metric("on [CLS]", "The total weight of [CLS], and of the distillation token where there is one. As no patch of the picture, it also serves heads that look at nothing (a sink).",
        "Σ a_ij over j with x_j [CLS] or the distillation token", "queries that see one of them, in a layer that reads a picture",
        _VIT, CellWeights(places.keys_of_kind(CLS)), of_pictures=True),
    Metric("on registers", "The total weight of registers, which a model was given as a place for sinks.",
        "Σ a_ij over j with x_j a register", "queries that see a register, in a layer that reads a picture",
        _DARCET, CellWeights(places.keys_of_kind(REGISTER)), of_pictures=True),
    Metric("on words", "The total weight of words, which are neither patches nor special tokens.",
        "Σ a_ij over j with x_j a word", "queries that see a word, in a layer that reads a picture",
        "Chen et al. 2024, An Image is Worth 1/2 Tokens After Layer 2 (how little of the attention of a language model lies on a picture)",
        CellWeights(places.keys_of_kind(WORD)), of_pictures=True),
    Metric("sink patch", "The largest mean weight of a single patch: near 1 if all queries look at the same patch, often one of an even background in which the model keeps something else. Under a causal mask, early patches have fewer rivals.",
        "max_j mean_i a_ij over patches j, the mean over the queries that see j", "the queries that see it, in a layer that reads a picture",
        _DARCET, None, of_heads=places.sink_patches, estimate=places.sink_seconds, of_pictures=True),
)
# fmt: on
"""Every metric, in the order of the tables."""

NAMES = tuple(metric.name for metric in METRICS)


def names_of(trace: Trace) -> tuple[str, ...]:
    """The names of the metrics that a trace can have: those of patches only where it has patches of a picture."""
    has_patches = any(any_patch(layer.key_tokens) for layer in trace.layers)
    return tuple(metric.name for metric in METRICS if has_patches or not metric.of_pictures)


def find(name: str) -> Metric:
    """The metric of this name.

    Raises:
        MissingError: no metric has this name.
    """
    for metric in METRICS:
        if metric.name == name:
            return metric
    raise MissingError(f"a metric is one of {', '.join(NAMES)}; got {name!r}: choose one of them.")


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
