r"""The parser of find rules, from left to right, one character at a time.

rule   = "from" side "to" target
side   = "any" | "punctuation" | "special" | "picture" | "registers" | "words" | patches
       | word | "[" item {"," item} "]" | "/" regular expression "/" ["i"]
target = side | "same word" | "previous sentence" | "same sentence" | "next sentence" | "offset" integer
       | "near patches" | "same row" | "same column"
patches = "patch row" range "," "column" range, where a range is a number or two with - between them, and "of picture" number if it is of one picture; also in quotes
word   = a word in quotes; \ before a quotation mark or another \
    item   = word, or a word without quotes, commas and brackets
"""

from __future__ import annotations

import re
import unicodedata

import regex

from attention.analysis.metrics.find_targets import (
    RELATIONS,
    SIDES,
    Offset,
    Patches,
    Side,
    Target,
    WordList,
    WordPattern,
)
from attention.analysis.patch_box import PATTERN, PatchBox
from attention.errors import ConfigError

MAX_RULE, MAX_ITEMS, MAX_REGEX, MAX_OFFSET = 1000, 100, 200, 4096
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


class RuleParser:
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
        if match is None or offset is None or abs(offset) > MAX_OFFSET:
            raise self._error(
                f"an integer from −{MAX_OFFSET:,} to {MAX_OFFSET:,}", "write offset -1 for the token before the query"
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
            if len(words) > MAX_ITEMS:
                raise self._error(f"at most {MAX_ITEMS} words in a list", "use a shorter list, or a regular expression")
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
        if len(pattern) > MAX_REGEX:
            raise self._error(f"a regular expression of at most {MAX_REGEX} characters", "write a shorter one")
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
