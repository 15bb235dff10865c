"""A model's prediction at one position of a text: a logit for every token of its vocabulary, and the likeliest tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

TOP_K = 10
"""The number of likeliest tokens that a prediction lists."""
MAX_NEW_TOKENS = 32
"""The maximal number of tokens that a model generates."""


@dataclass(frozen=True, eq=False)
class Prediction:
    """The predicted distribution over the vocabulary at one position, in the order of the model's token ids.

    Attributes:
        position: the position whose hidden state predicts: the one before the next token, or that of a mask token.
        before: the token at that position.
        all_logits: the logit of every token, [vocabulary].
        ids: ids of the likeliest tokens, the likeliest first.
        tokens: these tokens as text.
        fills_mask: whether the prediction fills this position, as in masked models; otherwise it is about the next position. Also true of a class.
        classifies: whether the vocabulary is the classes of a classifier, and the prediction is about the whole input; its position is the first.
    """

    position: int
    before: str
    all_logits: Tensor
    ids: tuple[int, ...]
    tokens: tuple[str, ...]
    fills_mask: bool = False
    classifies: bool = False

    @cached_property
    def all_log_probabilities(self) -> Tensor:
        """The logarithm of every token's probability, [vocabulary], in double precision."""
        return self.all_logits.double().log_softmax(-1)

    @property
    def logits(self) -> tuple[float, ...]:
        """Logits of the likeliest tokens."""
        return tuple(self.all_logits[list(self.ids)].tolist())

    @property
    def log_probabilities(self) -> tuple[float, ...]:
        """Natural logarithms of the probabilities of the likeliest tokens."""
        return tuple(self.all_log_probabilities[list(self.ids)].tolist())

    @property
    def probabilities(self) -> tuple[float, ...]:
        """Probabilities of the likeliest tokens: the softmax is over the whole vocabulary."""
        return tuple(self.all_log_probabilities[list(self.ids)].exp().tolist())

    @property
    def nbytes(self) -> int:
        """Bytes of the logits, and of the log-probabilities that are computed on access."""
        return int(self.all_logits.nbytes) * 3
