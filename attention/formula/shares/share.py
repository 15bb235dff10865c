"""What every way to share out has to say of itself."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from attention.formula.inline import inlined
from attention.formula.names import WEIGHTS
from attention.printed import Arithmetic

if TYPE_CHECKING:
    from attention.formula.axes import PerHead, Scores, Weights


@dataclass(frozen=True)
class Row:
    """One query's masked scores, for the arithmetic of one of its weights.

    Attributes:
        scores: [key_pos], −∞ where a key is hidden.
        column: the key whose weight is explained.
        at: the indices of the cell as LaTeX; `any_at` those of any key of the row.
        own: what the share's parameter has for this head.
    """

    scores: list[float]
    column: int
    at: str
    any_at: str
    own: float = 0.0

    @property
    def visible(self) -> list[int]:
        """The keys that the query sees."""
        return [j for j, score in enumerate(self.scores) if score > -math.inf]

    @property
    def keys(self) -> str:
        """How many it sees, in words."""
        return f"{len(self.visible)} {'key' if len(self.visible) == 1 else 'keys'}"


@dataclass(frozen=True)
class Share(ABC):
    """One way to make weights of scores.

    Attributes:
        name: as in `AttentionConfig.share` and in links.
        words: what it changes and who uses it, one sentence.
        paper: where it comes from.
        formula: plain text.
        sums: what the rows sum to.
        in_page: whether the page's own arithmetic knows it, under this name.
        argmax: whether its limit at temperature 0 is argmax: the largest take all, and share it.
        parameter: what it needs beside the scores, one number a head, by the name of the layer's parameter.
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
        """The weights of masked scores; a key at −∞ gets 0, and so does every key of a row that sees none."""

    def knowing(self, own: PerHead) -> Share:
        """The same with what a layer has learned as its parameter."""
        raise NotImplementedError(f"{self.name} has no parameter")

    def limit(self, scores: Scores, bias: Scores) -> Weights:
        """The weights at temperature 0, where the scores without their bias decide, and among the largest the `bias`."""
        return self.weights(winners(scores, bias))

    def python(self, scores: str) -> list[str]:
        """Lines of plain torch that compute `weights` from a variable of that name: the body of the function `weights`."""
        return inlined(type(self).weights, WEIGHTS, scores=scores)

    def limit_python(self, scores: str, bias: str) -> list[str]:
        """Lines that compute `limit` from variables of these names."""
        return [*inlined(winners, "winners", scores=scores, bias=bias), *self.python("winners")]

    @abstractmethod
    def arithmetic(self, row: Row) -> Arithmetic:
        """How the weight of a row's column came about; the row sees at least one key."""


def winners(scores: Scores, bias: Scores) -> Scores:
    """The bias where a score is the largest of its row, −∞ everywhere else."""
    most = scores.amax(dim=-1, keepdim=True)
    return bias.masked_fill((scores != most) | (scores == -math.inf), -math.inf)
