"""The hyperparameters of one attention layer, validated once and frozen."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from attention.errors import ConfigError
from attention.formula import positions
from attention.formula.dropping import Dropping
from attention.formula.knobs import knob, knobs_of
from attention.formula.mask import Mask
from attention.formula.mask_rules import OFFERED
from attention.formula.positions import Positions
from attention.formula.ranges import Choice, Real, Switch, Text, Whole
from attention.formula.scores import SCORES, Score
from attention.formula.shares import SHARES, Share

MASKS = ("none", *OFFERED, "padding", "custom")
POSITIONS = tuple(positions.POSITIONS)
INITS = ("scaled normal", "uniform", "normal", "linear", "identity")
TEMPERATURE = Real(0.05, 100)  # that pages offer: colder or hotter looks like the ends
WIDEST = 4096  # columns of Q, K or V in all heads together, where d_model has fewer

_DRAWN = ("typed text",)  # the source that draws its weights at random
_MADE = ("typed text", "matrices")  # those whose numbers are worked out here
BRING_THEIR_OWN = ("notebook", "model", "file", "trained")
"""The sources that bring their own formula: of these a hand turns what `attention.formula.what_if.WhatIf` has."""
_ANY = (*_MADE, *BRING_THEIR_OWN)
_MORE = "More knobs"
# The others need what a model has learned.
_DRAWABLE = {name: share for name, share in SHARES.items() if not share.parameter}


def _ways(ways: Mapping[str, Positions] | Mapping[str, Score] | Mapping[str, Share]) -> Choice:
    """One of several ways, each in its own words."""
    return Choice(tuple(ways), words=tuple(way.words for way in ways.values()))


class HeadSizes(NamedTuple):
    """How many heads there are, and the width of a query/key row and of a value row in each."""

    n_heads: int
    d_k: int
    d_v: int


@dataclass(frozen=True)
class AttentionConfig:
    """The knobs of one attention layer. Each is declared here, and nowhere else: `Knob` says what follows from it.

    Attributes:
        d_model: width of a token's row.
        n_heads: number of heads; ignored by ``init="identity"``, which has one.
        d_k: width of a query or key row in each head; None means d_model / n_heads.
        d_v: width of a value row in each head; None means d_model / n_heads, or d_k where
            the heads do not divide d_model.
        mask: which keys a query may attend to, one of `MASKS`.
        window: for the two window masks: how many positions away a key may be.
        prefix: for the prefix mask: how many first keys every query sees.
        cells: for the custom mask: which cells are hidden, as `attention.formula.masks.encode` writes it.
        dropout: the share of the weights that is dropped; seeded. The rest is divided by 1 − dropout.
        temperature: 0 is argmax, infinity is uniform over the visible keys.
        scaled: whether scores are divided by √d_k (per head, never √d_model).
        positions: what is added to the embeddings, one of `POSITIONS`.
        init: how the projections are drawn, one of `INITS`. "identity" has no projections:
            one head, Q = K = V = X, no W_O.
        seed: of every random matrix.
        n_kv_heads: how many heads keys and values have; query heads share them in equal groups. None: as many as queries.
        score: how a query is compared with a key, one of `attention.formula.scores.SCORES`.
        cap: what no score goes beyond, by cap · tanh(score / cap); None caps nothing.
        share: how weights come from scores, one of `attention.formula.shares.SHARES`.

    Raises:
        ConfigError: a value is out of range, the heads do not divide d_model and no d_k is set, heads · d_k or
            heads · d_v is more than `WIDEST` and d_model, the heads of keys do not divide the heads, or "rope" has an odd d_k.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2 and equation 1.
    """

    # fmt: off
    d_model: int = knob(
        64, Whole(1, limit="d_model"), "d_model", "How many numbers stand for one token.",
        _DRAWN, held=True, place=60, usual=(16, 32, 64, 128))
    n_heads: int = knob(
        4, Whole(1, limit="heads"), "Heads", "Only numbers that divide d_model are offered.", _DRAWN, key="heads", place=5)
    d_k: int | None = knob(
        None, Whole(1, limit="d_model", optional=True), "d_k", "Width of a query or key in each head. Empty: d_model / heads.",
        _DRAWN, fold=_MORE, place=30, empty="d_model / heads")
    d_v: int | None = knob(
        None, Whole(1, limit="d_model", optional=True), "d_v", "Width of a value in each head. Empty: d_model / heads.",
        _DRAWN, fold=_MORE, place=40, empty="d_model / heads")
    mask: str = knob(
        "none", Choice(MASKS), "Mask",
        "Which keys a query may look at. Causal: only itself and what stands before it. Window: only its neighbours. "
        "Prefix: causal, but everybody sees the first ones. Custom: click the cells on the Masks page.",
        _ANY, after=True, held=True, place=20)
    window: int = knob(
        2, Whole(0, limit="tokens"), "±", "How many positions away a key may be.",
        _ANY, after=True, held=True, place=21, when=("mask", ("window", "causal window")))
    temperature: float = knob(
        1.0, Real(0, means=("argmax", "uniform")), "Temperature",
        "Scores are divided by it before the softmax. Low: the best key takes all. High: every key gets the same.",
        _ANY, after=True, held=True, place=10, offered=TEMPERATURE, advice="1 changes nothing")
    scaled: bool = knob(
        True, Switch(), "÷ √d_k", "Without it the scores grow with d_k, and the softmax picks one key and forgets the rest.",
        _ANY, after=True, held=True, place=30)
    positions: str = knob(
        "none", _ways(positions.POSITIONS), "Positions", "How the order of the words gets into attention.",
        _DRAWN, fold=_MORE, place=20)
    init: str = knob(
        "scaled normal", Choice(INITS), "Random weights",
        "How W_Q, W_K, W_V and W_O are drawn. Identity: no projections at all, Q = K = V = X, one head.",
        _DRAWN, fold=_MORE, place=10)
    seed: int = knob(
        0, Whole(0, 2**32 - 1), "Seed", "Another seed draws other random weights; the same seed always the same ones.",
        (*_DRAWN, "trained"), held=True, place=70)
    prefix: int = knob(
        1, Whole(0, limit="tokens"), "first", "How many first keys every query sees.",
        _ANY, after=True, held=True, place=22, when=("mask", ("prefix",)))
    cells: str = knob("", Text(), sources=_ANY, after=True, held=True, offered=Text(4000))
    dropout: float = knob(
        0.0, Real(0, 0.9), "Dropout", "The share of the weights that is dropped after the softmax, as in training.",
        _DRAWN, after=True, fold=_MORE, advice="0 drops nothing")
    n_kv_heads: int | None = knob(
        None, Whole(1, limit="heads", optional=True), "Heads of keys",
        "Several heads of queries may share one of keys and values (GQA; one for all is MQA), as in Llama 3. It divides the heads. Empty: each has its own.",
        _DRAWN, key="kv_heads", fold=_MORE, place=15, empty="heads")
    score: str = knob(
        "dot", _ways(SCORES), "Score", "How a query is compared with a key.", _DRAWN, fold=_MORE, place=50)
    cap: float | None = knob(
        None, Real(0.05, 1000, optional=True), "Cap", "No score goes beyond it: cap · tanh(score / cap), 50 in Gemma 2. Empty: nothing is capped.",
        _MADE, after=True, fold=_MORE, place=60, empty="no cap", advice="None caps nothing")
    share: str = knob(
        "softmax", _ways(_DRAWABLE), "Weights by", "How weights come from scores.", _MADE, after=True,
        key="normalizer", fold=_MORE, place=70)
    # fmt: on

    def __post_init__(self) -> None:
        for one in KNOBS:
            one.check(getattr(self, one.name))
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
        self._check_variants()

    def _check_width(self, name: str, size: int) -> None:
        most = max(WIDEST, self.d_model)
        if self.n_heads * size > most:
            raise ConfigError(
                f"heads · {name} is at most {most:,}; got {self.n_heads:,} · {size:,} = {self.n_heads * size:,}: "
                f"choose fewer heads, or a smaller {name}."
            )

    def _check_variants(self) -> None:
        n_heads, d_k, _ = self.sizes
        if n_heads % self.kv_heads:
            raise ConfigError(
                f"{n_heads} heads of queries cannot share {self.kv_heads} heads of keys in equal groups: choose {_one_of(divisors(n_heads))}."
            )
        if positions.POSITIONS[self.positions].rotary and d_k % 2:
            raise ConfigError(
                f'positions "rope" turn pairs of columns, so d_k is even; got {d_k}: choose another d_k, or other positions.'
            )

    @property
    def kv_heads(self) -> int:
        """How many heads keys and values have."""
        return 1 if self.init == "identity" else self.n_kv_heads or self.n_heads

    @property
    def hiding(self) -> Mask:
        """The mask as a value, without padding, which depends on the text."""
        return Mask(self.mask, self.window, self.prefix, self.cells)

    @property
    def dropping(self) -> Dropping:
        """Which weights are dropped, as a value."""
        return Dropping(**{field: getattr(self, knob) for field, knob in Dropping.knobs.items()})

    @property
    def base(self) -> AttentionConfig:
        """The config with the knobs after the scores where they were. "padding" stays, since it makes shorter lines longer."""
        mask = "padding" if self.mask == "padding" else "none"
        return replace(self, **{one.name: one.default for one in KNOBS if one.after} | {"mask": mask})

    @property
    def sizes(self) -> HeadSizes:
        """The heads, d_k and d_v in use, with the defaults filled in."""
        if self.init == "identity":
            return HeadSizes(1, self.d_model, self.d_model)
        share = self.d_model // self.n_heads
        d_k = self.d_k if self.d_k is not None else share
        divides = self.d_model % self.n_heads == 0
        d_v = self.d_v if self.d_v is not None else (share if divides else d_k)
        return HeadSizes(self.n_heads, d_k, d_v)


KNOBS = knobs_of(AttentionConfig)
"""The fields of `AttentionConfig` as knobs, in their order."""


def divisors(number: int) -> tuple[int, ...]:
    """All whole numbers that divide `number`, ascending: the numbers of heads that fit a d_model."""
    small = [i for i in range(1, math.isqrt(number) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))


def _one_of(numbers: tuple[int, ...]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last
