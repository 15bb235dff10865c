"""The hyperparameters of one attention layer, validated once and frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from attention.base.errors import ConfigError
from attention.base.knobs import Choice, Integer, Real, Switch, Text, knob, knobs_of
from attention.formula import positions
from attention.formula.dropout import Dropout
from attention.formula.mask import KNOB_RULES, SIZES, Mask
from attention.formula.normalizers import NORMALIZERS, Normalizer
from attention.formula.positions import Positions
from attention.formula.scores import SCORES, Score

MASKS = ("none", *KNOB_RULES, "padding", "custom")
_POSITIONS = tuple(positions.POSITIONS)
INITS = ("scaled normal", "uniform", "normal", "linear", "identity")
TEMPERATURE = Real(0.05, 100)  # offered by pages: lower or higher values look like 0 and infinity
_MAX_WIDTH = 4096  # columns of Q, K or V in all heads together, if d_model is smaller

_RANDOM_WEIGHTS = ("typed text",)
_COMPUTED = ("typed text", "matrices")  # sources whose steps the package computes
WITH_FORMULA = "with a formula"
"""In `Knob.sources`: every source with a formula of its own, which users override with `attention.formula.override.Override`."""
_ALL_SOURCES = (*_COMPUTED, WITH_FORMULA)
_MORE_KNOBS = "More knobs"
# The others need a learned parameter.
_NORMALIZERS_WITHOUT_PARAMETER = {
    name: normalizer for name, normalizer in NORMALIZERS.items() if not normalizer.parameter
}


def _choice_of(variants: Mapping[str, Positions] | Mapping[str, Score] | Mapping[str, Normalizer]) -> Choice:
    return Choice(tuple(variants), words=tuple(variant.words for variant in variants.values()))


class HeadSizes(NamedTuple):
    """The number of heads, and the width of a query/key row and of a value row in each head."""

    n_heads: int
    d_k: int
    d_v: int


@dataclass(frozen=True)
class AttentionConfig:
    """The knobs of one attention layer. This class is their only declaration; see `Knob` for what is derived from it.

    Attributes:
        d_model: width of a token's row.
        n_heads: number of heads; ignored by ``init="identity"``, which has one head.
        d_k: width of a query or key row in each head; None means d_model / n_heads.
        d_v: width of a value row in each head; None means d_model / n_heads, or d_k if
            d_model is not divisible by n_heads.
        mask: which keys a query may attend to, one of `MASKS`.
        window: for the two window masks: the largest distance of a visible key, in positions.
        prefix: for the prefix mask: the number of leading keys that every query sees.
        window_right: for the window mask: the largest distance of a visible key after the query; None: as before it.
        query_offset: for masks by position: how many keys are before the first query, as in a cache; keys minus queries aligns the last of both.
        cells: for the custom mask: the hidden cells, in the format of `attention.formula.mask_tensor.encode`.
        dropout: the fraction of weights that is dropped; seeded. Surviving weights are scaled by 1 / (1 − dropout).
        temperature: 0 is argmax, infinity is uniform over the visible keys.
        scaled: whether scores are divided by √d_k (per head, never √d_model).
        positions: the positional encoding, one of `POSITIONS`.
        init: the initialization of the projections, one of `INITS`. "identity" has no projections:
            one head, Q = K = V = X, no W_O.
        seed: seed of every random matrix.
        n_kv_heads: number of heads of keys and values; query heads share them in equal groups. None: n_heads.
        score: the function that compares a query with a key, one of `attention.formula.scores.SCORES`.
        cap: limit of the scores, by cap · tanh(score / cap); None: no cap.
        normalizer: the function from scores to weights, one of `attention.formula.normalizers.NORMALIZERS`.

    Raises:
        ConfigError: a value is out of range, d_model is not divisible by n_heads and d_k is None, heads · d_k or
            heads · d_v exceeds both `_MAX_WIDTH` and d_model, n_heads is not divisible by n_kv_heads, or "rope" has an odd d_k.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2 and equation 1.
    """

    # fmt: off
    d_model: int = knob(
        64, Integer(1, limit="d_model"), "d_model", "The width of a token's vector: how many numbers represent it.",
        _RANDOM_WEIGHTS, inline=True, order=60, suggestions=(16, 32, 64, 128))
    n_heads: int = knob(
        4, Integer(1, limit="heads"), "Heads", "The number of heads. Only divisors of d_model are offered.", _RANDOM_WEIGHTS, key="heads",
        inline=True, order=65)
    d_k: int | None = knob(
        None, Integer(1, limit="d_model", optional=True), "d_k", "The width of a query or key in each head. Empty: d_model / heads.",
        _RANDOM_WEIGHTS, section=_MORE_KNOBS, order=30, placeholder="d_model / heads")
    d_v: int | None = knob(
        None, Integer(1, limit="d_model", optional=True), "d_v", "The width of a value in each head. Empty: d_model / heads.",
        _RANDOM_WEIGHTS, section=_MORE_KNOBS, order=40, placeholder="d_model / heads")
    mask: str = knob(
        "none", Choice(MASKS), "Mask",
        "Which keys a query may attend to. Causal: its own position and earlier ones. Window: its neighbours. "
        "Prefix: causal, and every query sees the first keys. Custom: click the cells, with “Edit mask” on Explore.",
        _ALL_SOURCES, after_scores=True, inline=True, order=20)
    window: int = knob(
        2, Integer(0, limit="tokens"), "±", "How many positions away a visible key may be.",
        _ALL_SOURCES, after_scores=True, inline=True, order=21, applies_with=("mask", ("window", "causal window")))
    temperature: float = knob(
        1.0, Real(0, end_meanings=("argmax", "uniform")), "Temperature",
        "Divides the scores before the softmax. Low: the best key gets all the weight. High: all keys get the same weight.",
        _ALL_SOURCES, after_scores=True, inline=True, order=10, page_range=TEMPERATURE, advice="1 changes nothing")
    scaled: bool = knob(
        True, Switch(), "÷ √d_k", "Divides the scores by √d_k. Without it they grow with d_k, and the softmax puts nearly all the weight on one key.",
        _ALL_SOURCES, after_scores=True, inline=True, order=30)
    positions: str = knob(
        "none", _choice_of(positions.POSITIONS), "Positions", "The positional encoding: how attention learns the order of the tokens.",
        _RANDOM_WEIGHTS, section=_MORE_KNOBS, order=20)
    init: str = knob(
        "scaled normal", Choice(INITS), "Random weights",
        "How W_Q, W_K, W_V and W_O are initialized. Identity: no projections, Q = K = V = X, one head.",
        _RANDOM_WEIGHTS, section=_MORE_KNOBS, order=10)
    seed: int = knob(
        0, Integer(0, 2**32 - 1), "Seed", "Seed of the random weights: the same seed always gives the same weights.",
        _RANDOM_WEIGHTS, inline=True, order=70)
    prefix: int = knob(
        1, Integer(0, limit="tokens"), "first", "How many leading keys every query sees.",
        _ALL_SOURCES, after_scores=True, inline=True, order=22, applies_with=("mask", ("prefix",)))
    cells: str = knob("", Text(), sources=_ALL_SOURCES, after_scores=True, inline=True, page_range=Text(4000))
    dropout: float = knob(
        0.0, Real(0, 0.9), "Dropout", "The fraction of weights that is set to 0 after the softmax, as in training.",
        _RANDOM_WEIGHTS, after_scores=True, section=_MORE_KNOBS, advice="0 drops nothing")
    n_kv_heads: int | None = knob(
        None, Integer(1, limit="heads", optional=True), "Heads of keys",
        "Several query heads may share a head of keys and values (GQA, as in Llama 3; with one such head MQA). A divisor of the heads. Empty: no sharing.",
        _RANDOM_WEIGHTS, key="kv_heads", section=_MORE_KNOBS, order=15, placeholder="heads")
    score: str = knob(
        "dot", _choice_of(SCORES), "Score", "The function that compares a query with a key.", _RANDOM_WEIGHTS, section=_MORE_KNOBS, order=50)
    cap: float | None = knob(
        None, Real(0.05, 1000, optional=True), "Cap", "Limits the scores: cap · tanh(score / cap), with cap 50 in Gemma 2. Empty: no cap.",
        _COMPUTED, after_scores=True, section=_MORE_KNOBS, order=60, placeholder="no cap", advice="None caps nothing")
    normalizer: str = knob(
        "softmax", _choice_of(_NORMALIZERS_WITHOUT_PARAMETER), "Weights by", "The function from scores to weights (normalizer).",
        _COMPUTED, after_scores=True, key="normalizer", section=_MORE_KNOBS, order=70)
    window_right: int | None = knob(
        None, Integer(0, limit="tokens", optional=True), "Window after the query",
        "How many positions after the query a key of the window mask may be, if not as many as before it.",
        (*_COMPUTED, "file"), after_scores=True, section=_MORE_KNOBS, order=80, placeholder="±")
    query_offset: int = knob(
        0, Integer(-4096, limit="tokens"), "Keys before the first query",
        "For masks by position, with more keys than queries: how many keys a cache has before the first query. Keys minus queries aligns the last of both (bottom right).",
        (*_COMPUTED, "file"), after_scores=True, section=_MORE_KNOBS, order=90, advice="0 aligns the first of both")
    # fmt: on

    def __post_init__(self) -> None:
        for field in KNOBS:
            field.check(getattr(self, field.name))
        if self.init == "identity":
            for name in ("d_k", "d_v"):
                if getattr(self, name) not in (None, self.d_model):
                    raise ConfigError(
                        f'init "identity" has no projections, so {name} is d_model ({self.d_model}); '
                        f"got {getattr(self, name)}: leave {name} empty, or choose another init."
                    )
        elif self.d_k is None and self.d_model % self.n_heads:
            raise ConfigError(
                f"d_model {self.d_model} cannot be split over {self.n_heads} heads: choose {_one_of(divisors(self.d_model))}, or set d_k."
            )
        else:
            self._check_width("d_k", self.sizes.d_k)
            self._check_width("d_v", self.sizes.d_v)
        n_heads, d_k, _ = self.sizes
        if n_heads % self.kv_heads:
            raise ConfigError(
                f"{n_heads} heads of queries cannot share {self.kv_heads} heads of keys in equal groups: choose {_one_of(divisors(n_heads))}."
            )
        if positions.POSITIONS[self.positions].rotary and d_k % 2:
            raise ConfigError(
                f'positions "rope" rotates pairs of columns, so d_k is even; got {d_k}: choose another d_k, or other positions.'
            )

    def _check_width(self, name: str, size: int) -> None:
        largest = max(_MAX_WIDTH, self.d_model)
        if self.n_heads * size > largest:
            raise ConfigError(
                f"heads · {name} is at most {largest:,}; got {self.n_heads:,} · {size:,} = {self.n_heads * size:,}: "
                f"choose fewer heads, or a smaller {name}."
            )

    @property
    def kv_heads(self) -> int:
        """The number of heads of keys and values."""
        return 1 if self.init == "identity" else self.n_kv_heads or self.n_heads

    @property
    def mask_rule(self) -> Mask:
        """The mask without padding, which depends on the text."""
        return Mask(self.mask, cells=self.cells, **{size: getattr(self, size) for size in SIZES})

    @property
    def dropping(self) -> Dropout:
        """The dropout of the weights."""
        return Dropout(**{field: getattr(self, knob) for field, knob in Dropout.knobs.items()})

    @property
    def up_to_scores(self) -> AttentionConfig:
        """The config with defaults for the knobs after the scores. "padding" stays, since it lengthens shorter texts."""
        mask = "padding" if self.mask == "padding" else "none"
        return replace(self, **{field.name: field.default for field in KNOBS if field.after_scores} | {"mask": mask})

    @property
    def sizes(self) -> HeadSizes:
        """The number of heads, d_k and d_v, with None replaced by the default widths."""
        if self.init == "identity":
            return HeadSizes(1, self.d_model, self.d_model)
        default_width = self.d_model // self.n_heads
        d_k = self.d_k if self.d_k is not None else default_width
        divides = self.d_model % self.n_heads == 0
        d_v = self.d_v if self.d_v is not None else (default_width if divides else d_k)
        return HeadSizes(self.n_heads, d_k, d_v)


KNOBS = knobs_of(AttentionConfig)
"""The knobs of `AttentionConfig`, in the order of its fields."""


def divisors(number: int) -> tuple[int, ...]:
    """All divisors of `number` in ascending order, such as the possible numbers of heads for a d_model."""
    small = [i for i in range(1, math.isqrt(number) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))


def _one_of(numbers: tuple[int, ...]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last
