"""The hyperparameters of one attention layer, validated once and frozen."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

from attention.errors import ConfigError
from attention.formula import positions
from attention.formula.mask import Mask
from attention.formula.scores import SCORES
from attention.formula.shares import SHARES

MASKS = ("none", "causal", "window", "causal window", "prefix", "padding", "custom")
POSITIONS = tuple(positions.POSITIONS)
INITS = ("scaled normal", "uniform", "normal", "linear", "identity")
AFTER_THE_SCORES = ("mask", "window", "prefix", "cells", "temperature", "scaled", "cap", "share", "dropout")
LARGEST_CAP = 1000.0
WIDEST = 4096  # columns of Q, K or V in all heads together, where d_model has fewer


class HeadSizes(NamedTuple):
    """How many heads there are, and the width of a query/key row and of a value row in each."""

    n_heads: int
    d_k: int
    d_v: int


@dataclass(frozen=True)
class AttentionConfig:
    """The knobs of one attention layer.

    Attributes:
        d_model: width of a token's row.
        n_heads: number of heads; ignored by ``init="identity"``, which has one.
        d_k: width of a query or key row in each head; None means d_model / n_heads.
        d_v: width of a value row in each head; None means d_model / n_heads, or d_k where
            the heads do not divide d_model.
        mask: which keys a query may attend to, one of `MASKS`.
        window: for the two window masks: how many positions away a key may be.
        prefix: for the prefix mask: how many first keys every query sees.
        cells: for the custom mask: which cells are hidden, as `attention.masks.encode` writes it.
        dropout: the share of the weights that is dropped, 0 to 0.9; seeded. The rest is divided by 1 − dropout.
        temperature: 0 to infinity; 0 is argmax, infinity is uniform over the visible keys.
        scaled: whether scores are divided by √d_k (per head, never √d_model).
        positions: what is added to the embeddings, one of `POSITIONS`.
        init: how the projections are drawn, one of `INITS`. "identity" has no projections:
            one head, Q = K = V = X, no W_O.
        seed: of every random matrix, 0 to 2³² − 1.
        n_kv_heads: how many heads keys and values have; query heads share them in equal groups. None: as many as queries.
        score: how a query is compared with a key, one of `attention.formula.scores.SCORES`.
        cap: what no score goes beyond, by cap · tanh(score / cap); None caps nothing.
        share: how weights come from scores, one of `attention.formula.shares.SHARES`.

    Raises:
        ConfigError: a value is out of range, the heads do not divide d_model and no d_k is set, heads · d_k or
            heads · d_v is more than `WIDEST` and d_model, the heads of keys do not divide the heads, or "rope" has an odd d_k.

    Source: Vaswani et al. 2017, "Attention Is All You Need", section 3.2 and equation 1.
    """

    d_model: int = 64
    n_heads: int = 4
    d_k: int | None = None
    d_v: int | None = None
    mask: str = "none"
    window: int = 2
    temperature: float = 1.0
    scaled: bool = True
    positions: str = "none"
    init: str = "scaled normal"
    seed: int = 0
    prefix: int = 1
    cells: str = ""
    dropout: float = 0.0
    n_kv_heads: int | None = None
    score: str = "dot"
    cap: float | None = None
    share: str = "softmax"

    def __post_init__(self) -> None:
        for name, low, high in (
            ("d_model", 1, None),
            ("n_heads", 1, None),
            ("window", 0, None),
            ("prefix", 0, None),
            ("seed", 0, 2**32 - 1),
        ):
            _check_whole(name, getattr(self, name), low, high)
        for name in ("d_k", "d_v"):
            if getattr(self, name) is not None:
                _check_whole(name, getattr(self, name), 1, None)
        for name, choices in (
            ("mask", MASKS),
            ("positions", POSITIONS),
            ("init", INITS),
            ("score", tuple(SCORES)),
            ("share", tuple(SHARES)),
        ):
            if getattr(self, name) not in choices:
                raise ConfigError(
                    f"{name} is one of {', '.join(choices)}; got {getattr(self, name)!r}: choose one of them."
                )
        if not _is_number(self.temperature) or math.isnan(self.temperature) or self.temperature < 0:
            raise ConfigError(
                f"temperature is a number from 0 (argmax) to infinity (uniform); got {self.temperature!r}: choose one, 1 changes nothing."
            )
        if not _is_number(self.dropout) or not 0 <= self.dropout <= 0.9:
            raise ConfigError(f"dropout is a number from 0 to 0.9; got {self.dropout!r}: choose one, 0 drops nothing.")
        if self.cap is not None and (not _is_number(self.cap) or not 0 < self.cap <= LARGEST_CAP):
            raise ConfigError(
                f"cap is a number above 0 and up to {LARGEST_CAP:g}; got {self.cap!r}: choose one, or None to cap nothing."
            )
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
        self._check_shared()

    def _check_width(self, name: str, size: int) -> None:
        most = max(WIDEST, self.d_model)
        if self.n_heads * size > most:
            raise ConfigError(
                f"heads · {name} is at most {most:,}; got {self.n_heads:,} · {size:,} = {self.n_heads * size:,}: "
                f"choose fewer heads, or a smaller {name}."
            )

    def _check_shared(self) -> None:
        n_heads, d_k, *_ = self.sizes
        if self.n_kv_heads is not None:
            _check_whole("n_kv_heads", self.n_kv_heads, 1, None)
            if self.init != "identity" and n_heads % self.n_kv_heads:
                raise ConfigError(
                    f"{n_heads} query heads cannot share {self.n_kv_heads} heads of keys in equal groups: choose {_one_of(divisors(n_heads))}."
                )
        if positions.POSITIONS[self.positions].rotary and d_k % 2:
            raise ConfigError(
                f'positions "rope" turn pairs of columns, so d_k is even; got {d_k}: choose another d_k, or other positions.'
            )

    @property
    def hiding(self) -> Mask:
        """The mask as a value, without padding, which depends on the text."""
        return Mask(self.mask, self.window, self.prefix, self.cells)

    @property
    def base(self) -> AttentionConfig:
        """The config with the knobs after the scores where they were. "padding" stays, since it makes shorter lines longer."""
        plain, mask = AttentionConfig(), "padding" if self.mask == "padding" else "none"
        return replace(self, **{name: getattr(plain, name) for name in AFTER_THE_SCORES} | {"mask": mask})

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

    @property
    def kv_heads(self) -> int:
        """How many heads keys and values have."""
        return self.sizes.n_heads if self.init == "identity" else self.n_kv_heads or self.n_heads


def divisors(number: int) -> tuple[int, ...]:
    """All whole numbers that divide `number`, ascending: the numbers of heads that fit a d_model."""
    small = [i for i in range(1, math.isqrt(number) + 1) if number % i == 0]
    return tuple(sorted({*small, *(number // i for i in small)}))


def _check_whole(name: str, value: object, low: int, high: int | None) -> None:
    whole = isinstance(value, int) and not isinstance(value, bool)
    if not whole or value < low or (high is not None and value > high):  # type: ignore[operator]  # int by `whole`
        span = f"of at least {low}" if high is None else f"from {low} to {high}"
        raise ConfigError(f"{name} is a whole number {span}; got {value!r}: choose one.")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _one_of(numbers: tuple[int, ...]) -> str:
    *first, last = map(str, numbers)
    return f"{', '.join(first)} or {last}" if first else last
