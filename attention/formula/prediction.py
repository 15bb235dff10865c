"""A model's prediction at one position of a text: a logit for every token of its vocabulary, and the likeliest tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

LIKELIEST = 10
"""The number of likeliest tokens that a prediction lists."""
MOST_GENERATED = 32
"""The maximal number of tokens that a model generates."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predicted distribution over the vocabulary at one position, in the order of the model's token ids.

    Attributes:
        position: the position whose hidden state predicts: the one before the next token, or that of a mask token.
        before: the token at that position.
        row: the logit of every token, [vocabulary].
        ids: ids of the likeliest tokens, the likeliest first.
        tokens: these tokens as text.
        fills: whether the prediction fills this position, as in masked models; otherwise it is about the next position.
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
        """Logits of the likeliest tokens."""
        return tuple(self.row[list(self.ids)].tolist())

    @property
    def log_probabilities(self) -> tuple[float, ...]:
        """Natural logarithms of the probabilities of the likeliest tokens."""
        return tuple(self.log_row[list(self.ids)].tolist())

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probabilities of the likeliest tokens: the softmax is over the whole vocabulary."""
        return tuple(self.log_row[list(self.ids)].exp().tolist())

    @property
    def nbytes(self) -> int:
        """Bytes of the logits, and of the log-probabilities that are computed on access."""
        return int(self.row.nbytes) * 3
