"""The interface of a normalizer, which turns scores into weights."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attention.core.inline import inlined
from attention.core.names import WEIGHTS
from attention.printed import Arithmetic

if TYPE_CHECKING:
    from attention.core.tensor_types import PerHead, Scores, Weights


@dataclass(frozen=True)
class Row:
    """The masked scores of one query, for the arithmetic of one of its weights.

    Attributes:
        scores: [key_pos], −∞ for hidden keys.
        column: the key whose weight is explained.
        at: the indices of the cell as LaTeX.
        any_at: the indices of any key of the row as LaTeX.
        parameter: the parameter of the normalizer for this head.
    """

    scores: list[float]
    column: int
    at: str
    any_at: str
    parameter: float = 0.0

    @property
    def visible(self) -> list[int]:
        """The keys that the query sees."""
        return [j for j, score in enumerate(self.scores) if score > -math.inf]

    @property
    def keys(self) -> str:
        """The number of visible keys in words."""
        return f"{len(self.visible)} {'key' if len(self.visible) == 1 else 'keys'}"


@dataclass(frozen=True)
class Normalizer(ABC):
    """One way to turn scores into weights.

    Attributes:
        name: as in `AttentionConfig.normalizer` and in links.
        words: its effect and its users, for a menu.
        paper: its source.
        formula: plain text.
        sums: the sums of its rows.
        in_page: whether the page itself can compute it, under this name in kernel.js.
        argmax: whether its limit at temperature 0 is argmax: the largest scores share all the weight.
        parameter: the name of a layer parameter that it needs, [head]; may be empty.
    """

    name: str = ""
    words: str = ""
    paper: str = ""
    formula: str = ""
    sums: Literal["1", "below 1", "freely"] = "1"
    in_page: bool = False
    argmax: bool = False
    parameter: str = ""

    @abstractmethod
    def weights(self, scores: Scores) -> Weights:
        """The weights of masked scores; keys at −∞ get 0, also in a row with no visible key."""

    def bind(self, parameter: PerHead) -> Normalizer:
        """The normalizer with the parameter of a layer."""
        raise NotImplementedError(f"{self.name} has no parameter")

    def limit(self, scores: Scores, bias: Scores) -> Weights:
        """The weights at temperature 0: the scores without bias decide, and the `bias` only among the largest."""
        return self.weights(largest_only(scores, bias))

    def python(self, scores: str) -> list[str]:
        """Lines of plain torch that compute `weights` from the variable `scores`: the body of the function `weights`."""
        return inlined(type(self).weights, WEIGHTS, scores=scores)

    def limit_python(self, scores: str, bias: str) -> list[str]:
        """Lines that compute `limit` from variables of these names."""
        return [*inlined(largest_only, "winners", scores=scores, bias=bias), *self.python("winners")]

    @abstractmethod
    def arithmetic(self, row: Row) -> Arithmetic:
        """The arithmetic of the weight of the row's column; the row has at least one visible key."""


def largest_only(scores: Scores, bias: Scores) -> Scores:
    """The bias at the largest scores of each row, −∞ elsewhere."""
    largest = scores.amax(dim=-1, keepdim=True)
    return bias.masked_fill((scores != largest) | (scores == -math.inf), -math.inf)
