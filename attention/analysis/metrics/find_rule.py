"""Find rules: heads that look "from X to Y", such as `from [he, she] to [anna, tom]`; each rule is a metric.

from attention.analysis.metrics.find_rule import FindRule
FindRule.parse('from "it" to "animal"').metric
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from attention.analysis.metrics.find_parser import RuleParser
from attention.analysis.metrics.find_targets import Offset, Relation, Side, Target, WordList, WordPattern
from attention.analysis.metrics.find_words import TextWords
from attention.analysis.metrics.metric import CellWeights, Metric
from attention.analysis.token_kinds import PATCH

if TYPE_CHECKING:
    from torch import Tensor

    from attention.analysis.patterns import Pattern

_ONE = {
    "any": "a token", "punctuation": "a punctuation mark", "special": "a special token", "picture": "a patch of the picture",
    "registers": "a register", "words": "a word",
}  # fmt: skip
_OTHERS = {
    "any": "other words", "punctuation": "other punctuation marks", "special": "other special tokens", "picture": "other patches of the picture",
    "registers": "other registers", "words": "other words that are no patches",
}  # fmt: skip
EXAMPLES = (
    "from [he, she, it, they] to /^[A-Z]/",
    "from any to same word",
    "from any to offset -1",
    'from any to ","',
    "from any to previous sentence",
    "from any to special",
)
"""Rules to begin with."""
PICTURE_EXAMPLES = (
    "from words to picture",
    "from picture to near patches",
    "from picture to same row",
    "from picture to special",
    "from any to patch row 0-1, column 0-1",
)
"""Rules to begin with where a model reads a picture."""


@dataclass(frozen=True)
class FindRule:
    """A rule "from X to Y", equal to another with the same text.

    X and Y are words, not tokens: of a word that is cut into pieces, all pieces count. The word of the query itself never counts as a
    key, except in `offset`, which is the key at this distance whatever its word.

    Attributes:
        queries: X, the words from which a head looks.
        keys: Y, the words at which it looks, or their place relative to the query.
    """

    queries: Side
    keys: Target

    @classmethod
    def parse(cls, text: str) -> FindRule:
        """The rule of a text.

        Raises:
            ConfigError: the text is no rule; the message says at which character.
        """
        return cls(*RuleParser(text).rule())

    @property
    def text(self) -> str:
        """The rule as it is written, with one form for equal rules; `parse` reads it."""
        return f"from {self.queries.text} to {self.keys.text}"

    def __str__(self) -> str:
        return self.text

    @cached_property
    def metric(self) -> Metric:
        """The rule as a metric: the total weight that a query of X gives to the keys of Y that it sees."""
        return Metric(
            self.text,
            f"The total weight that {self._query_words} gives to {self._key_words}.",
            f"Σ a_ij over i in {self.queries.text}, j in {self.keys.text}",
            f"queries that match {self.queries.text} and see a key that matches {self.keys.text}",
            "A rule of the user",
            CellWeights(self.cells),
        )

    def cells(self, pattern: Pattern) -> Tensor:
        """The cells whose weights count, as a mask that can be broadcast to the weights: [text 1 query_pos key_pos]."""
        special, n_keys = pattern.tokens.special, pattern.weights.shape[-1]
        return pattern.mask_of_tokens(self, lambda tokens: self._of_text(tokens or ("",) * n_keys, special))

    def _of_text(self, tokens: tuple[str, ...], special: frozenset[str]) -> Tensor:
        """The cells of a text, [query_pos key_pos]."""
        import numpy as np
        import torch

        words = TextWords.of(tokens, special)
        rows = self.queries.of_words(words)[words.word_of]
        if isinstance(self.keys, Offset):
            places = np.arange(len(tokens))
            follows = places - places[:, None] == self.keys.offset
            if self.keys.offset:
                is_patch = np.array([kind == PATCH for kind in words.kinds], bool)[words.word_of]
                follows &= ~(is_patch | is_patch[:, None])
            return torch.from_numpy(rows[:, None] & follows)
        of_words = (
            self.keys.cells(words)
            if isinstance(self.keys, Relation)
            else np.tile(self.keys.of_words(words), (len(words.names), 1))
        )
        np.fill_diagonal(of_words, False)
        return torch.from_numpy(rows[:, None] & of_words[words.word_of][:, words.word_of])

    @property
    def _query_words(self) -> str:
        match self.queries:
            case WordList() | WordPattern():
                return f"a word that matches {self.queries.text}"
            case _:
                return _ONE.get(self.queries.text, self.queries.text)

    @property
    def _key_words(self) -> str:
        match self.keys:
            case Offset(offset):
                if not offset:
                    return "itself"
                return f"the token {abs(offset)} position{'s' * (abs(offset) > 1)} {'before' if offset < 0 else 'after'} it"
            case Relation():
                return self.keys.meaning
            case WordList() | WordPattern():
                return f"other words that match {self.keys.text}"
            case _:
                return _OTHERS.get(self.keys.text, f"other patches of {self.keys.text}")
