"""What the two sides of a find rule can be: words of a kind, or a place relative to the query. Each is a value with its text.

`TextWords` finds the words and sentences of a text that is given as tokens.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING

import regex

from attention.base.errors import ConfigError
from attention.base.tokens import NO_PATCH, patch_places
from attention.explanation.subwords import TokenGroups
from attention.metrics import patterns
from attention.metrics.patch_box import NEAR, PatchBox

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


_REGEX_SECONDS = 0.12  # of processor for all words of a text; a rule has at most two expressions
_HELD_SECONDS = 0.005  # of a search that holds the interpreter's lock, as long as Python lets any thread hold it


@dataclass(frozen=True)
class AnyWord:
    """Every token."""

    @property
    def text(self) -> str:
        """The side as it is written."""
        return "any"

    def of_words(self, words: TextWords) -> NDArray[np.bool_]:
        """Whether each word matches, [word]."""
        import numpy as np

        return np.ones(len(words.names), bool)


@dataclass(frozen=True)
class WordKind:
    """The words of a kind: punctuation marks, special tokens, patches of a picture, registers, words, which are none of the last three, or those of a text of a pair.

    Attributes:
        text: its keyword.
    """

    text: str

    def of_words(self, words: TextWords) -> NDArray[np.bool_]:
        """Whether each word matches, [word]."""
        import numpy as np

        if self.text in TEXTS:
            return np.array([of == TEXTS[self.text] for of in words.texts], bool)
        if self.text in KINDS:
            return np.array([kind == KINDS[self.text] for kind in words.kinds], bool)
        if self.text == _SPECIAL:
            return np.array(words.is_special, bool)
        pairs = zip(words.names, words.is_special, strict=True)
        return np.array([not special and patterns.is_punctuation(name) for name, special in pairs], bool)


@dataclass(frozen=True)
class WordList:
    """Some words. One without a capital matches whatever the case; one with a capital matches exactly.

    Attributes:
        words: the words.
    """

    words: tuple[str, ...]

    @property
    def text(self) -> str:
        """The side as it is written: a list without quotes where they are not needed; one word in quotes."""
        if len(self.words) == 1:
            return _quoted(self.words[0])
        return f"[{', '.join(word if _is_plain(word) else _quoted(word) for word in self.words)}]"

    def of_words(self, words: TextWords) -> NDArray[np.bool_]:
        """Whether each word matches, [word]."""
        import numpy as np

        exact = {word for word in self.words if word != word.lower()}
        folded = set(self.words) - exact
        return np.array([name in exact or name.lower() in folded for name in words.names], bool)


@dataclass(frozen=True)
class WordPattern:
    """The words in which a regular expression is found.

    Attributes:
        pattern: the regular expression.
        ignores_case: whether it has the flag i.
    """

    pattern: str
    ignores_case: bool = False

    @property
    def text(self) -> str:
        """The side as it is written."""
        return f"/{self.pattern}/{'i' if self.ignores_case else ''}"

    def of_words(self, words: TextWords) -> NDArray[np.bool_]:
        """Whether each word matches, [word].

        Raises:
            ConfigError: it takes too long.
        """
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
def _is_found(pattern: WordPattern, names: tuple[str, ...]) -> tuple[bool, ...] | None:
    """Whether the expression is found in each word; None if that takes too long.

    Raises:
        TimeoutError: the same, where other threads, whose time the library counts too, had most of the processor: it may be tried again.
        MemoryError: it takes too much memory.
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


@dataclass(frozen=True)
class Patches:
    """The patches of a rectangle.

    Attributes:
        box: the rectangle.
    """

    box: PatchBox

    @property
    def text(self) -> str:
        """The side as it is written."""
        return self.box.text

    def of_words(self, words: TextWords) -> NDArray[np.bool_]:
        """Whether each word matches, [word]."""
        import numpy as np

        pictures, rows, columns = words.places.T
        is_of_picture = (pictures != NO_PATCH) if self.box.picture is None else (pictures == self.box.picture)
        is_inside: NDArray[np.bool_] = np.logical_and.reduce([
            is_of_picture,
            rows >= self.box.rows[0], rows <= self.box.rows[1], columns >= self.box.columns[0], columns <= self.box.columns[1]
        ])  # fmt: skip
        return is_inside


@dataclass(frozen=True)
class Relation:
    """The words that are in a relation to the word of the query.

    Attributes:
        text: its keywords.
        meaning: the keys, in words.
        cells: whether each word is in the relation, [word of the query, word].
    """

    text: str
    meaning: str
    cells: Callable[[TextWords], NDArray[np.bool_]]


@dataclass(frozen=True)
class Offset:
    """The key at one offset from the query, in tokens; patches of a picture follow nothing, and nothing follows them.

    Attributes:
        offset: the position of the key minus that of the query.
    """

    offset: int

    @property
    def text(self) -> str:
        """The side as it is written."""
        return f"offset {self.offset}"


Side = AnyWord | WordKind | WordList | WordPattern | Patches
Target = Side | Relation | Offset


def _same_word(words: TextWords) -> NDArray[np.bool_]:
    import numpy as np

    numbers: dict[str, int] = {}
    of_words = np.array([numbers.setdefault(name.lower(), len(numbers)) for name in words.names], np.int64)
    is_word = np.array([kind != patterns.PATCH for kind in words.kinds], bool)
    found: NDArray[np.bool_] = np.equal.outer(of_words, of_words) & is_word
    return found


def _within_picture(
    is_related: Callable[[NDArray[np.int64], NDArray[np.int64]], NDArray[np.bool_]],
) -> Callable[[TextWords], NDArray[np.bool_]]:
    """The patches of the same picture in a relation, which is given the differences of rows and of columns."""

    def cells(words: TextWords) -> NDArray[np.bool_]:
        pictures, rows, columns = words.places.T
        same = (pictures[:, None] == pictures) & (pictures != NO_PATCH)
        found: NDArray[np.bool_] = same & is_related(rows - rows[:, None], columns - columns[:, None])
        return found

    return cells


def _in_sentence(difference: int) -> Callable[[TextWords], NDArray[np.bool_]]:
    """The words of the sentence that many sentences later."""

    def cells(words: TextWords) -> NDArray[np.bool_]:
        sentences = words.sentence_of
        is_text = sentences >= 0
        found: NDArray[np.bool_] = (sentences[None, :] - sentences[:, None] == difference) & is_text & is_text[:, None]
        return found

    return cells


_ANY, _PUNCTUATION, _SPECIAL = "any", "punctuation", "special"
KINDS = {"picture": patterns.PATCH, "registers": patterns.REGISTER, "words": patterns.WORD}
"""The kind of token of each keyword, where a model reads a picture."""
TEXTS = {"text A": "A", "text B": "B"}
"""The text of each keyword, where a model reads a pair of texts."""
SIDES: dict[str, Side] = {
    _ANY: AnyWord(),
    **{keyword: WordKind(keyword) for keyword in (_PUNCTUATION, _SPECIAL, *KINDS, *TEXTS)},
}
"""What both sides can be, by its keyword."""
RELATIONS: dict[str, Relation] = {
    relation.text: relation
    for relation in (
        Relation("same word", "other occurrences of its word, whatever the case", _same_word),
        Relation("previous sentence", "words of the sentence before its own", _in_sentence(-1)),
        Relation("same sentence", "other words of its sentence", _in_sentence(0)),
        Relation("next sentence", "words of the sentence after its own", _in_sentence(1)),
        Relation(
            "near patches",
            "other patches of its picture at most one row and one column away",
            _within_picture(lambda down, right: (abs(down) <= NEAR) & (abs(right) <= NEAR)),
        ),
        Relation("same row", "other patches in its row of the picture", _within_picture(lambda down, _: down == 0)),
        Relation(
            "same column", "other patches in its column of the picture", _within_picture(lambda _, right: right == 0)
        ),
    )
}
"""What only the right side can be, by its keywords."""


def _is_plain(word: str) -> bool:
    return not any(character in ',[]"\\' for character in word)


def _quoted(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


_MARKERS = "·▁ ⏎"  # a blank or a new line in readable tokens
_ENDS = frozenset(".!?…。！？")
_CLOSERS = frozenset("\"')]}”’»")


@dataclass(frozen=True, eq=False)
class TextWords:
    """The words of a text, for each of its tokens.

    The pieces of a word are joined by `TokenGroups`: as the tokenizer cuts words, or by the marks of the tokens. Of a language without
    spaces, Chinese and Japanese words are as long as their pieces; Thai, Khmer, Lao and Burmese ones reach to the next blank where the
    tokenizer does not say otherwise.

    Attributes:
        names: the words, without the mark of a leading blank.
        word_of: the index of the word of each token, [token].
        is_special: whether each word is a special token, such as [CLS].
        kinds: what each word stands for, one of `patterns`.
        places: the picture, row and column of each word that is a patch, [word 3]; −1 for others.
        texts: the text of a pair that each word is of, "A" or "B"; empty for others.
    """

    names: tuple[str, ...]
    word_of: NDArray[np.int64]
    is_special: tuple[bool, ...]
    kinds: tuple[str, ...]
    places: NDArray[np.int64]
    texts: tuple[str, ...]

    @classmethod
    def of(cls, tokens: Sequence[str], special: Collection[str] = ()) -> TextWords:
        """The words of some tokens.

        Args:
            tokens: readable tokens.
            special: the special tokens of the tokenizer; if empty, a token such as [CLS] or </s> counts as special.
        """
        import numpy as np

        is_special = [patterns.is_special(token, special) for token in tokens]
        groups = TokenGroups.of(tokens, is_special, words=True, hide=False)
        starts, stops = zip(*groups.spans, strict=True)
        return cls(
            tuple(str(name).strip(_MARKERS) for name in groups.names),
            np.repeat(np.arange(len(starts)), np.subtract(stops, starts)),
            tuple(is_special[start] for start in starts),
            tuple(patterns.kind_of(tokens[start], special) for start in starts),
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
            if self.is_special[index] or self.kinds[index] == patterns.PATCH:
                continue
            closes = all(character in _ENDS or character in _CLOSERS for character in name)
            if has_ended and not closes:
                sentence, has_ended = sentence + 1, False
            result[index] = sentence
            has_ended = has_ended or name.rstrip("\"')]}”’»")[-1:] in _ENDS
        return result
