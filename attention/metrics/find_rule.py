r"""Find rules: heads that look "from X to Y", such as `from [he, she] to [anna, tom]`; each rule is a metric.

`FindRule.parse('from "it" to "animal"').metric` is one, and `find_heads` ranks the heads of a text by it. The grammar:

    rule   = "from" side "to" target
    side   = "any" | "punctuation" | "special" | "picture" | "registers" | "words" | "text A" | "text B" | patches
           | word | "[" item {"," item} "]" | "/" regular expression "/" ["i"]
    target = side | "same word" | "previous sentence" | "same sentence" | "next sentence" | "offset" integer
           | "near patches" | "same row" | "same column"
    patches = "patch row" range "," "column" range, where a range is a number or two with - between them,
              and "of picture" number if it is of one picture; also in quotes
    word   = a word in quotes; \ before a quotation mark or another \
    item   = word, or a word without quotes, commas and brackets
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Hashable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import regex

from attention.base import cache
from attention.base.errors import ConfigError
from attention.base.printed import format_number
from attention.formula.names import WEIGHTS
from attention.metrics.find_targets import (
    RELATIONS,
    SIDES,
    Offset,
    Patches,
    Relation,
    Side,
    Target,
    TextWords,
    WordList,
    WordPattern,
)
from attention.metrics.metric import BY_DISTANCE, NULLS, UNIFORM, CellWeights, Metric, measure
from attention.metrics.patch_box import PATTERN, PatchBox
from attention.metrics.patterns import CELLS_PER_SECOND, PATCH

if TYPE_CHECKING:
    from torch import Tensor

    from attention.metrics.patterns import Pattern
    from attention.trace.layer import Layer
    from attention.trace.trace import Trace


_CELLS_PER_SECOND = (
    CELLS_PER_SECOND / 4
)  # one metric instead of fifteen, but the weights and its null are computed as well


_ONE = {
    "any": "a token", "punctuation": "a punctuation mark", "special": "a special token", "picture": "a patch of the picture",
    "registers": "a register", "words": "a word", "text A": "a word of the first text", "text B": "a word of the second text",
}  # fmt: skip
_OTHERS = {
    "any": "other words", "punctuation": "other punctuation marks", "special": "other special tokens", "picture": "other patches of the picture",
    "registers": "other registers", "words": "other words that are no patches",
    "text A": "words of the first text", "text B": "words of the second text",
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
PAIR_EXAMPLES = ("from text A to text B", "from text B to text A")
"""Rules to begin with where a model reads a pair of texts."""
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
        return cls(*_RuleParser(text).rule())

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
            null=BY_DISTANCE,
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


class FoundHead(NamedTuple):
    """How much a head looks from X to Y.

    Attributes:
        layer: the layer of the head.
        head: the head.
        value: the weight on Y, the mean over the queries of X that see a Y; NaN if there is none.
        uniform: the same if all visible keys had the same weight: the share of Y.
        queries: the number of these queries.
        query: the query with the largest value, and `key`, its key of Y with the largest weight; −1 if there is none.
        key: see `query`.
        weight: the weight of this cell.
        by_distance: the value if only distances counted, its null (`patterns.DistanceProfile`); NaN where positions are no distances.
    """

    layer: int
    head: int
    value: float
    uniform: float
    queries: int
    query: int
    key: int
    weight: float
    by_distance: float

    @property
    def words(self) -> str:
        """The value in words, with what it would be by chance."""
        by_chance = [(self.by_distance, BY_DISTANCE), (self.uniform, UNIFORM)]
        known = [f"{format_number(number)} {NULLS[null]}" for number, null in by_chance if not math.isnan(number)]
        return f"{format_number(self.value)} over {self.queries:,} of its queries; by chance {', '.join(known)}"


def find_heads(trace: Trace, rule: FindRule) -> tuple[FoundHead, ...]:
    """All heads of a text, those with the largest value first, then those without one; each layer is computed once and cached.

    Raises:
        ConfigError: a regular expression takes too long.
    """
    found = [each for index, layer in enumerate(trace.layers) for each in _of_layer(index, layer, rule)]
    return tuple(sorted(found, key=lambda each: (each.queries == 0, -each.value if each.queries else 0.0)))


def estimated_seconds_to_find(trace: Trace, rule: FindRule) -> float:
    """The estimated time of `find_heads` on one thread, without the cached layers."""
    layers = [layer for layer in trace.layers if layer.has(WEIGHTS) and cache.CACHE.get(_key(layer, rule)) is None]
    return sum(math.prod(layer.shape(WEIGHTS)) for layer in layers) / _CELLS_PER_SECOND


def _key(layer: Layer, rule: FindRule) -> tuple[int, Hashable, Hashable]:
    return layer.uid, ("find", rule.text), layer.formula


def _of_layer(index: int, layer: Layer, rule: FindRule) -> list[FoundHead]:
    values, counts, uniform, by_distance, cells = cache.memoize(*_key(layer, rule), lambda: _measured(layer, rule))
    numbers = zip(values[:, 0].tolist(), counts[:, 0].tolist(), cells, by_distance, strict=True)
    return [
        FoundHead(index, head, value, float(uniform[0]), count, *cell, null)
        for head, (value, count, cell, null) in enumerate(numbers)
    ]


def _measured(layer: Layer, rule: FindRule) -> tuple[Any, Any, Any, list[float], list[tuple[int, int, float]]]:
    best: list[float] = [-math.inf] * layer.n_heads
    cells = [(-1, -1, math.nan)] * layer.n_heads
    expected, n_expected = [0.0] * layer.n_heads, [0] * layer.n_heads

    def receive(heads: slice, pattern: Pattern, of_queries: Tensor) -> None:
        import torch

        numbers, rows = of_queries.nan_to_num(-math.inf).max(-1)  # the first of equal ones
        mask = rule.cells(pattern) & pattern.visible
        null = rule.metric.under_null(pattern)
        for place, (total, count) in enumerate(
            zip(null.nansum(-1).tolist(), (~null.isnan()).sum(-1).tolist(), strict=True)
        ):
            expected[heads.start + place] += total
            n_expected[heads.start + place] += count
        for place, (number, row) in enumerate(zip(numbers.tolist(), rows.tolist(), strict=True)):
            head = heads.start + place
            if number > best[head]:
                of_head = mask.expand(len(numbers), -1, -1)[place, row]
                weights = torch.where(of_head, pattern.weights[place, row], -1)
                key = int(weights.argmax())
                best[head], cells[head] = number, (int(pattern.queries[row]), key, float(weights[key]))

    numbers = measure(layer, (rule.metric,), receive)
    return *numbers, [total / n if n else math.nan for total, n in zip(expected, n_expected, strict=True)], cells


MAX_RULE, _MAX_ITEMS, _MAX_REGEX, _MAX_OFFSET = 1000, 100, 200, 4096
"""The characters of a rule, the words of a list, the characters of a regular expression, the distance of an offset."""
_CLOSING = {'"': '"', "'": "'", "“": "”", "„": "“", "«": "»"}
_SIDE_WORDS = '"it", [he, she, it], /^[A-Z]/, ' + ", ".join(SIDES)
_TARGET_WORDS = f"{_SIDE_WORDS}, {', '.join(RELATIONS)}, offset -1"
# Recursion, counted repetition and fuzzy matching could take any memory; without them, time is the only limit.
_REFUSED = (
    (re.compile(r"\((?!\?:)\?|\(\*"), "groups are ( ) and (?: )"),
    (re.compile(r"\{"), "repetitions are * + ?, and { follows \\p only"),
    (re.compile(r"\\[1-9gLkKGXRNU]"), "references to groups and \\L, \\X, \\R, \\N are left out"),
)


class _RuleParser:
    """The parser of one rule.

    Attributes:
        text: the rule.
        place: the index of the next character.
    """

    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0

    def rule(self) -> tuple[Side, Target]:
        """Both sides of the rule.

        Raises:
            ConfigError: the text is no rule.
        """
        if len(self.text) > MAX_RULE:
            raise ConfigError(
                f"A rule has at most {MAX_RULE:,} characters; got {len(self.text):,}: write a shorter one."
            )
        for place, character in enumerate(self.text):
            if unicodedata.category(character) in ("Cc", "Cs"):
                self.place = place
                raise self._error("characters that can be seen", "remove it")
        self._expect("from")
        left = self._side(_SIDE_WORDS)
        self._expect("to")
        right = self._target()
        self._skip_blanks()
        if self.place < len(self.text):
            raise self._error("the end of the rule", "remove the rest, or put several words into a list")
        return left, right

    def _target(self) -> Target:
        self._skip_blanks()
        for keywords, relation in RELATIONS.items():
            if match := re.compile(keywords.replace(" ", r"\s+") + r"(?!\w)", re.IGNORECASE).match(
                self.text, self.place
            ):
                self.place = match.end()
                return relation
        if not self._accept("offset"):
            return self._side(_TARGET_WORDS)
        self._skip_blanks()
        match = re.compile(r"[-−+]?[0-9]+").match(self.text, self.place)
        offset = int(match[0].replace("−", "-")) if match and len(match[0]) < 9 else None
        if match is None or offset is None or abs(offset) > _MAX_OFFSET:
            raise self._error(
                f"an integer from −{_MAX_OFFSET:,} to {_MAX_OFFSET:,}", "write offset -1 for the token before the query"
            )
        self.place = match.end()
        return Offset(offset)

    def _side(self, choices: str) -> Side:
        self._skip_blanks()
        for keyword, side in SIDES.items():
            if self._accept(keyword):
                return side
        if match := PATTERN.match(self.text, self.place):
            self.place = match.end()
            return Patches(PatchBox.of(match))
        character = self.text[self.place : self.place + 1]
        if character in _CLOSING:
            word = self._word()
            return Patches(PatchBox.of(match)) if (match := PATTERN.fullmatch(word)) else WordList((word,))
        if character == "[":
            return self._list()
        if character == "/":
            return self._regex()
        raise self._error(f"one of {choices}", "put a word into quotes")

    def _list(self) -> WordList:
        self.place += 1
        words: list[str] = []
        while True:
            self._skip_blanks()
            words.append(self._word() if self.text[self.place : self.place + 1] in _CLOSING else self._plain_word())
            if len(words) > _MAX_ITEMS:
                raise self._error(
                    f"at most {_MAX_ITEMS} words in a list", "use a shorter list, or a regular expression"
                )
            self._skip_blanks()
            character, self.place = self.text[self.place : self.place + 1], self.place + 1
            if character == "]":
                return WordList(tuple(dict.fromkeys(words)))
            if character != ",":
                self.place -= 1
                raise self._error("a comma or ] after a word of a list", "write [he, she, it]")

    def _plain_word(self) -> str:
        match = re.compile(r'[^\s,\[\]"\\]+').match(self.text, self.place)
        if match is None:
            raise self._error("a word of a list", "write [he, she, it]")
        self.place = match.end()
        return match[0]

    def _word(self) -> str:
        start, closing = self.place, _CLOSING[self.text[self.place]]
        self.place += 1
        characters: list[str] = []
        while self.text[self.place : self.place + 1] != closing:
            if self.place >= len(self.text):
                self.place = start
                raise self._error(f"{closing} at the end of the word", "close the quotes")
            self.place += self.text[self.place] == "\\" and self.place + 1 < len(self.text)
            characters.append(self.text[self.place])
            self.place += 1
        word = "".join(characters)
        is_patch = PATTERN.fullmatch(word) is not None  # the name of a patch has blanks
        if not word or (any(character.isspace() for character in word) and not is_patch):
            self.place = start
            raise self._error(
                "one word without blanks in quotes", 'put several words into a list, such as ["New", "York"]'
            )
        self.place += 1
        return word

    def _regex(self) -> WordPattern:
        start = self.place
        match = re.compile(r"/((?:\\.|[^/\\])+)/(\w*)").match(self.text, self.place)
        if match is None:
            raise self._error("a regular expression between two /", r"close it with /, and write \/ for a / inside")
        pattern, flags = match[1], match[2]
        if len(pattern) > _MAX_REGEX:
            raise self._error(f"a regular expression of at most {_MAX_REGEX} characters", "write a shorter one")
        if flags not in ("", "i"):
            self.place = match.start(2)
            raise self._error("no flag but i", "remove it")
        for refused, words in _REFUSED:
            if found := refused.search(_skeleton(pattern)):
                self.place = start + 1 + found.start()
                raise self._error(f"a simple regular expression, where {words}", "write it without")
        try:
            regex.compile(pattern)
        except (regex.error, ValueError, KeyError, TypeError, OverflowError, RecursionError, MemoryError) as error:
            raise self._error("a regular expression", f"correct it ({error})") from None
        self.place = match.end()
        return WordPattern(pattern, flags == "i")

    def _accept(self, keyword: str) -> bool:
        """Whether the keyword is next; then it is read."""
        self._skip_blanks()
        match = re.compile(re.escape(keyword) + r"(?!\w)", re.IGNORECASE).match(self.text, self.place)
        self.place = match.end() if match else self.place
        return match is not None

    def _expect(self, keyword: str) -> None:
        if not self._accept(keyword):
            raise self._error(keyword, 'write a rule as from "it" to [animal, street]')

    def _skip_blanks(self) -> None:
        while self.text[self.place : self.place + 1].isspace():
            self.place += 1

    def _error(self, expected: str, to_do: str) -> ConfigError:
        """The error that something else is expected at this place."""
        rest = self.text[self.place : self.place + 20]
        got = repr(rest) if rest else "the end"
        return ConfigError(f"A find rule needs {expected} at character {self.place + 1}; got {got}: {to_do}.")


def _skeleton(pattern: str) -> str:
    """The expression, of the same length, with an x for each character of a class, of a property and of an escaped mark."""
    harmless = re.compile(r"\\[pP]\{\w*\}|\\\W|\\[A-Za-z0-9]|\[(?:\\.|[^\]\\])+\]")
    return harmless.sub(lambda match: match[0] if re.fullmatch(r"\\\w", match[0]) else "x" * len(match[0]), pattern)
