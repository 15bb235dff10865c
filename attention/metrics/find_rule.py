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
import time
import unicodedata
from collections.abc import Callable, Collection, Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import regex

from attention.base import cache
from attention.base.errors import ConfigError
from attention.base.printed import format_number
from attention.base.tokens import NO_PATCH, Patch, patch_places
from attention.explanation.subwords import TokenGroups
from attention.formula.names import WEIGHTS
from attention.metrics.metric import BY_DISTANCE, NULLS, UNIFORM, CellWeights, Metric, measure
from attention.metrics.patterns import CELLS_PER_SECOND, PATCH, REGISTER, WORD, is_punctuation, is_special, kind_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attention.formula.tensor_types import Visible
    from attention.metrics.patterns import Pattern
    from attention.trace.layer import Layer
    from attention.trace.trace import Trace


# One metric instead of fifteen, but the weights and its null are computed as well.
_CELLS_PER_SECOND = CELLS_PER_SECOND / 4

_REGEX_SECONDS = 0.12  # of processor for all words of a text; a rule has at most two expressions
_HELD_SECONDS = 0.005  # of a search that holds the interpreter's lock, as long as Python lets any thread hold it


@dataclass(frozen=True)
class _WordKind:
    """Every word; or those of a kind, by its keyword: words are no special tokens, patches or registers; those of a text are of a pair."""

    text: str

    def of_words(self, words: _TextWords) -> NDArray[np.bool_]:
        import numpy as np

        if self.text == _ANY:
            return np.ones(len(words.names), bool)
        if self.text in _TEXTS:
            return np.array([of == _TEXTS[self.text] for of in words.texts], bool)
        if self.text in _KINDS:
            return np.array([kind == _KINDS[self.text] for kind in words.kinds], bool)
        if self.text == _SPECIAL:
            return np.array(words.is_special, bool)
        pairs = zip(words.names, words.is_special, strict=True)
        return np.array([not special and is_punctuation(name) for name, special in pairs], bool)


@dataclass(frozen=True)
class _WordList:
    """Some words. One without a capital matches whatever the case; one with a capital matches exactly."""

    words: tuple[str, ...]

    @property
    def text(self) -> str:
        if len(self.words) == 1:
            return _quoted(self.words[0])
        return f"[{', '.join(word if _is_plain(word) else _quoted(word) for word in self.words)}]"

    def of_words(self, words: _TextWords) -> NDArray[np.bool_]:
        import numpy as np

        exact = {word for word in self.words if word != word.lower()}
        folded = set(self.words) - exact
        return np.array([name in exact or name.lower() in folded for name in words.names], bool)


@dataclass(frozen=True)
class _WordPattern:
    pattern: str
    ignores_case: bool = False

    @property
    def text(self) -> str:
        return f"/{self.pattern}/{'i' if self.ignores_case else ''}"

    def of_words(self, words: _TextWords) -> NDArray[np.bool_]:
        import numpy as np

        found = None
        with suppress(TimeoutError, MemoryError):
            found = _is_found(self, words.names)
        if found is None:
            raise ConfigError(
                f"A regular expression may take {_REGEX_SECONDS:g} s of processor for the words of a text; {self.text[:60]} takes longer: "
                "write one without a repetition inside or behind another, such as (a+)+ or a*a*."
            )
        return np.array(found, bool)


@lru_cache(maxsize=32)  # every run of a page asks again, and every layer of a text
def _is_found(pattern: _WordPattern, names: tuple[str, ...]) -> tuple[bool, ...] | None:
    """Whether the expression is found in each word; None if that takes too long.

    TimeoutError where other threads, whose time the library counts too, had most of the processor: it may be tried again.
    """
    compiled = regex.compile(pattern.pattern.replace(r"\/", "/"), regex.IGNORECASE if pattern.ignores_case else 0)
    end = time.thread_time() + _REGEX_SECONDS
    found: dict[str, bool] = {}
    try:
        for name in dict.fromkeys(names):
            if (left := end - time.thread_time()) <= 0:
                return None
            try:
                match = compiled.search(name, timeout=min(_HELD_SECONDS, left), concurrent=False)
            except TimeoutError:  # on without the lock, for which every short search would wait among the threads
                match = compiled.search(name, timeout=left, concurrent=True)
            found[name] = match is not None
    except TimeoutError:
        if end - time.thread_time() > _REGEX_SECONDS / 2:
            raise
        return None
    return tuple(found[name] for name in names)


NEAR = 1
"""How many rows and columns away a patch is a neighbour."""


# The name of a patch is a rectangle, too.
_PATCHES = re.compile(
    r"(?:patch(?:es)?\s+)?rows?\s+(\d{1,4})(?:\s*[-–]\s*(\d{1,4}))?\s*,?\s*col(?:umn)?s?\s+(\d{1,4})(?:\s*[-–]\s*(\d{1,4}))?(?!\w)"
    r"(?:\s*(?:,\s*|of\s+)?picture\s+(\d{1,4})(?!\w))?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class PatchBox:
    """A rectangle of patches, as it is written in find rules and masks: "row 3, column 7" or "row 2-4, column 3-7 of picture 1".

    Attributes:
        rows: the first and the last row, both inside.
        columns: the first and the last column, both inside.
        picture: the index of their picture; None: of every picture.
    """

    rows: tuple[int, int]
    columns: tuple[int, int]
    picture: int | None = None

    @classmethod
    def parse(cls, text: str) -> PatchBox:
        """The rectangle of a text.

        Raises:
            ConfigError: the text is no such rectangle.
        """
        match = _PATCHES.fullmatch(text.strip())
        if match is None:
            raise ConfigError(
                f"Patches are written as row 3, column 7 or row 2-4, column 3-7; got {text[:40]!r}: write rows, then columns."
            )
        return cls.of(match)

    @classmethod
    def of(cls, match: re.Match[str]) -> PatchBox:
        """The rectangle of a match of its pattern; its ends may be in either order."""
        top, bottom, left, right, picture = match.groups()
        rows, columns = ((int(first), int(last or first)) for first, last in ((top, bottom), (left, right)))
        return cls((min(rows), max(rows)), (min(columns), max(columns)), None if picture is None else int(picture))

    @property
    def text(self) -> str:
        """The rectangle as it is written, with one form for equal rectangles."""
        of_picture = "" if self.picture is None else f" of picture {self.picture}"
        return f"patch row {_range(self.rows)}, column {_range(self.columns)}{of_picture}"

    def __contains__(self, token: object) -> bool:
        """Whether a token is one of these patches."""
        return (
            isinstance(token, Patch)
            and self.rows[0] <= token.row <= self.rows[1]
            and self.columns[0] <= token.column <= self.columns[1]
            and self.picture in (None, token.picture)
        )

    def hide_from(self, visible: Visible, key_tokens: Sequence[str]) -> Tensor:
        """A mask [query_pos key_pos] with these patches hidden from every query.

        Raises:
            ConfigError: none of the tokens is one of these patches.
        """
        import torch

        is_hidden = torch.tensor([token in self for token in key_tokens])
        if not is_hidden.any():
            raise ConfigError(f"No key is {self.text}: choose rows and columns of this picture.")
        return visible & ~is_hidden

    def of_words(self, words: _TextWords) -> NDArray[np.bool_]:
        """Whether each word of a text is one of these patches, [word]."""
        import numpy as np

        pictures, rows, columns = words.places.T
        is_of_picture = (pictures != NO_PATCH) if self.picture is None else (pictures == self.picture)
        is_inside: NDArray[np.bool_] = np.logical_and.reduce([
            is_of_picture, rows >= self.rows[0], rows <= self.rows[1], columns >= self.columns[0], columns <= self.columns[1]
        ])  # fmt: skip
        return is_inside


def _range(ends: tuple[int, int]) -> str:
    return str(ends[0]) if ends[0] == ends[1] else f"{ends[0]}-{ends[1]}"


@dataclass(frozen=True)
class _Relation:
    """The words that are in a relation, `cells` [word of the query, word], to the word of the query; `meaning` has these keys in words."""

    text: str
    meaning: str
    cells: Callable[[_TextWords], NDArray[np.bool_]]


@dataclass(frozen=True)
class _Offset:
    """The key at one offset from the query, in tokens; patches of a picture follow nothing, and nothing follows them."""

    offset: int

    @property
    def text(self) -> str:
        return f"offset {self.offset}"


_Side = _WordKind | _WordList | _WordPattern | PatchBox
_Target = _Side | _Relation | _Offset


def _same_word(words: _TextWords) -> NDArray[np.bool_]:
    import numpy as np

    numbers: dict[str, int] = {}
    of_words = np.array([numbers.setdefault(name.lower(), len(numbers)) for name in words.names], np.int64)
    is_word = np.array([kind != PATCH for kind in words.kinds], bool)
    found: NDArray[np.bool_] = np.equal.outer(of_words, of_words) & is_word
    return found


def _within_picture(
    is_related: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]],
) -> Callable[[_TextWords], NDArray[np.bool_]]:
    """The patches of the same picture in a relation, which is given the differences of rows and of columns."""

    def cells(words: _TextWords) -> NDArray[np.bool_]:
        pictures, rows, columns = words.places.T
        same = (pictures[:, None] == pictures) & (pictures != NO_PATCH)
        found: NDArray[np.bool_] = same & is_related(rows - rows[:, None], columns - columns[:, None])
        return found

    return cells


def _in_sentence(difference: int) -> Callable[[_TextWords], NDArray[np.bool_]]:
    """The words of the sentence that many sentences later."""

    def cells(words: _TextWords) -> NDArray[np.bool_]:
        sentences = words.sentence_of
        is_text = sentences >= 0
        found: NDArray[np.bool_] = (sentences[None, :] - sentences[:, None] == difference) & is_text & is_text[:, None]
        return found

    return cells


_ANY, _PUNCTUATION, _SPECIAL = "any", "punctuation", "special"
_KINDS = {"picture": PATCH, "registers": REGISTER, "words": WORD}
_TEXTS = {"text A": "A", "text B": "B"}
_SIDES = {keyword: _WordKind(keyword) for keyword in (_ANY, _PUNCTUATION, _SPECIAL, *_KINDS, *_TEXTS)}
_RELATIONS: dict[str, _Relation] = {
    relation.text: relation
    for relation in (
        _Relation("same word", "other occurrences of its word, whatever the case", _same_word),
        _Relation("previous sentence", "words of the sentence before its own", _in_sentence(-1)),
        _Relation("same sentence", "other words of its sentence", _in_sentence(0)),
        _Relation("next sentence", "words of the sentence after its own", _in_sentence(1)),
        _Relation(
            "near patches",
            "other patches of its picture at most one row and one column away",
            _within_picture(lambda down, right: (abs(down) <= NEAR) & (abs(right) <= NEAR)),
        ),
        _Relation("same row", "other patches in its row of the picture", _within_picture(lambda down, _: down == 0)),
        _Relation(
            "same column", "other patches in its column of the picture", _within_picture(lambda _, right: right == 0)
        ),
    )
}


def _is_plain(word: str) -> bool:
    return not any(character in ',[]"\\' for character in word)


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_MARKERS = "·▁ ⏎"  # a blank or a new line in readable tokens
_ENDS = frozenset(".!?…。！？")
_CLOSERS = frozenset("\"')]}”’»")


@dataclass(frozen=True, eq=False)
class _TextWords:
    """The words of a text, for each of its tokens.

    The pieces of a word are joined by `TokenGroups`: as the tokenizer cuts words, or by the marks of the tokens. Of a language without
    spaces, Chinese and Japanese words are as long as their pieces; Thai, Khmer, Lao and Burmese ones reach to the next blank where the
    tokenizer does not say otherwise.
    """

    names: tuple[str, ...]  # without the mark of a leading blank
    word_of: NDArray[np.int64]  # the index of the word of each token
    is_special: tuple[bool, ...]
    kinds: tuple[str, ...]
    places: NDArray[np.int64]  # the picture, row and column of each word that is a patch, [word 3]; −1 for others
    texts: tuple[str, ...]  # of a pair: "A" or "B"; empty for others

    @classmethod
    def of(cls, tokens: Sequence[str], special: Collection[str] = ()) -> _TextWords:
        import numpy as np

        are_special = [is_special(token, special) for token in tokens]
        groups = TokenGroups.of(tokens, are_special, words=True, hide=False)
        starts, stops = zip(*groups.spans, strict=True)
        return cls(
            tuple(str(name).strip(_MARKERS) for name in groups.names),
            np.repeat(np.arange(len(starts)), np.subtract(stops, starts)),
            tuple(are_special[start] for start in starts),
            tuple(kind_of(tokens[start], special) for start in starts),
            patch_places([tokens[start] for start in starts]).numpy(),
            tuple(getattr(tokens[start], "of", "") for start in starts),
        )

    @cached_property
    def sentence_of(self) -> NDArray[np.int64]:
        """The index of the sentence of each word, [word]; −1 for a special token and for a patch.

        A sentence ends at a word that ends with . ! ? or …, with the marks that close it; abbreviations such as "Dr." end one, too.
        """
        import numpy as np

        result, sentence, has_ended = np.full(len(self.names), -1), 0, False
        for index, name in enumerate(self.names):
            if self.is_special[index] or self.kinds[index] == PATCH:
                continue
            closes = all(character in _ENDS or character in _CLOSERS for character in name)
            if has_ended and not closes:
                sentence, has_ended = sentence + 1, False
            result[index] = sentence
            has_ended = has_ended or name.rstrip("\"')]}”’»")[-1:] in _ENDS
        return result


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
RESIDUE_EXAMPLES = (
    "from [K, R] to [D, E]",
    'from "C" to "C"',
    "from any to same word",
    "from any to offset -4",
    "from any to special",
)
"""Rules to begin with where a model reads a chain of amino acids: opposite charges, cysteines, equal residues, a turn of a helix."""
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

    queries: _Side
    keys: _Target

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

        words = _TextWords.of(tokens, special)
        rows = self.queries.of_words(words)[words.word_of]
        if isinstance(self.keys, _Offset):
            places = np.arange(len(tokens))
            follows = places - places[:, None] == self.keys.offset
            if self.keys.offset:
                is_patch = np.array([kind == PATCH for kind in words.kinds], bool)[words.word_of]
                follows &= ~(is_patch | is_patch[:, None])
            return torch.from_numpy(rows[:, None] & follows)
        of_words = (
            self.keys.cells(words)
            if isinstance(self.keys, _Relation)
            else np.tile(self.keys.of_words(words), (len(words.names), 1))
        )
        np.fill_diagonal(of_words, False)
        return torch.from_numpy(rows[:, None] & of_words[words.word_of][:, words.word_of])

    @property
    def _query_words(self) -> str:
        match self.queries:
            case _WordList() | _WordPattern():
                return f"a word that matches {self.queries.text}"
            case _:
                return _ONE.get(self.queries.text, self.queries.text)

    @property
    def _key_words(self) -> str:
        match self.keys:
            case _Offset(offset):
                if not offset:
                    return "itself"
                return f"the token {abs(offset)} position{'s' * (abs(offset) > 1)} {'before' if offset < 0 else 'after'} it"
            case _Relation():
                return self.keys.meaning
            case _WordList() | _WordPattern():
                return f"other words that match {self.keys.text}"
            case _:
                return _OTHERS.get(self.keys.text, f"other patches of {self.keys.text}")


class FoundHead(NamedTuple):
    """How much a head looks from X to Y.

    Attributes:
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
_SIDE_WORDS = '"it", [he, she, it], /^[A-Z]/, ' + ", ".join(_SIDES)
_TARGET_WORDS = f"{_SIDE_WORDS}, {', '.join(_RELATIONS)}, offset -1"
# Recursion, counted repetition and fuzzy matching could take any memory; without them, time is the only limit.
_REFUSED = (
    (re.compile(r"\((?!\?:)\?|\(\*"), "groups are ( ) and (?: )"),
    (re.compile(r"\{"), "repetitions are * + ?, and { follows \\p only"),
    (re.compile(r"\\[1-9gLkKGXRNU]"), "references to groups and \\L, \\X, \\R, \\N are left out"),
)


class _RuleParser:
    def __init__(self, text: str) -> None:
        self.text, self.place = text, 0  # the index of the next character

    def rule(self) -> tuple[_Side, _Target]:
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

    def _target(self) -> _Target:
        self._skip_blanks()
        for keywords, relation in _RELATIONS.items():
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
        return _Offset(offset)

    def _side(self, choices: str) -> _Side:
        self._skip_blanks()
        for keyword, side in _SIDES.items():
            if self._accept(keyword):
                return side
        if match := _PATCHES.match(self.text, self.place):
            self.place = match.end()
            return PatchBox.of(match)
        character = self.text[self.place : self.place + 1]
        if character in _CLOSING:
            word = self._word()
            return PatchBox.of(match) if (match := _PATCHES.fullmatch(word)) else _WordList((word,))
        if character == "[":
            return self._list()
        if character == "/":
            return self._regex()
        raise self._error(f"one of {choices}", "put a word into quotes")

    def _list(self) -> _WordList:
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
                return _WordList(tuple(dict.fromkeys(words)))
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
        is_patch = _PATCHES.fullmatch(word) is not None  # the name of a patch has blanks
        if not word or (any(character.isspace() for character in word) and not is_patch):
            self.place = start
            raise self._error(
                "one word without blanks in quotes", 'put several words into a list, such as ["New", "York"]'
            )
        self.place += 1
        return word

    def _regex(self) -> _WordPattern:
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
        return _WordPattern(pattern, flags == "i")

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
        rest = self.text[self.place : self.place + 20]
        got = repr(rest) if rest else "the end"
        return ConfigError(f"A find rule needs {expected} at character {self.place + 1}; got {got}: {to_do}.")


def _skeleton(pattern: str) -> str:
    """The expression, of the same length, with an x for each character of a class, of a property and of an escaped mark."""
    harmless = re.compile(r"\\[pP]\{\w*\}|\\\W|\\[A-Za-z0-9]|\[(?:\\.|[^\]\\])+\]")
    return harmless.sub(lambda match: match[0] if re.fullmatch(r"\\\w", match[0]) else "x" * len(match[0]), pattern)
