"""What a model says at one position of a text: a logit for every token of its vocabulary, and the likeliest of them by name."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LIKELIEST = 10
"""How many tokens of a prediction are named."""
MOST_GENERATED = 32
"""Tokens that a model says itself at most."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """How likely each token of a vocabulary is at one place, in the model's own order of ids.

    Attributes:
        position: of the token whose vector it is read from: the one before the token that is said, or the mask that is filled.
        before: that token, as it is read.
        row: the logit of every token, [vocabulary].
        ids: of the likeliest tokens, the likeliest first.
        tokens: the same as they are read.
        fills: whether it fills this position, as masked models do; otherwise it says what comes next.
    """

    position: int
    before: str
    row: Tensor
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    fills: bool = False

    @cached_property
    def log_row(self) -> Tensor:
        """The logarithm of every token's probability, [vocabulary], in double precision."""
        return self.row.double().log_softmax(-1)

    @property
    def logits(self) -> tuple[float, ...]:
        """Those of the likeliest tokens."""
        return tuple(self.row[list(self.ids)].tolist())

    @property
    def log_probabilities(self) -> tuple[float, ...]:
        """Those of the likeliest tokens; natural logarithms."""
        return tuple(self.log_row[list(self.ids)].tolist())

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Those of the likeliest tokens, of the softmax over the whole vocabulary."""
        return tuple(self.log_row[list(self.ids)].exp().tolist())

    @property
    def nbytes(self) -> int:
        """What its logits take, and their logarithms once they are asked for."""
        return int(self.row.nbytes) * 3
