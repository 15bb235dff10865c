"""Which tokens of one text are which of another: one to one, by their characters, or as far as the texts are the same."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from itertools import groupby
from typing import NamedTuple

_SPECIAL = re.compile(r"\[[A-Z]+\d*\]|<[/|]?[a-z_|▁]+[|]?>|<\|.*\|>", re.DOTALL)
_MARKS = re.compile(r"^##|[·⏎⇥\s]")
_LONG = 400  # tokens; of a longer text difflib begins with its rarer words, or it would take the square of its length


class Group(NamedTuple):
    """Some tokens of A and those of B that are the same: from … to before, as a slice; one of the two may have none."""

    a: tuple[int, int]
    b: tuple[int, int]

    @property
    def partners(self) -> bool:
        """Whether both have some."""
        return self.a[0] < self.a[1] and self.b[0] < self.b[1]

    @property
    def single(self) -> bool:
        """Whether it is one token of each."""
        return self.a[1] - self.a[0] == 1 == self.b[1] - self.b[0]


@dataclass(frozen=True)
class Alignment:
    """The places along an axis of two states, in the order of both.

    Attributes:
        groups: each with its tokens in A and in B; together they have every token of both once.
        how: how partners were found, in words; empty where all are one to one.
    """

    groups: tuple[Group, ...]
    how: str = ""

    @classmethod
    def numbered(cls, size: int) -> Alignment:
        """That of an axis without tokens, such as d_k: each column with the same one."""
        return cls(tuple(Group((i, i + 1), (i, i + 1)) for i in range(size)))

    @cached_property
    def plain(self) -> bool:
        """Whether every place of both is the same place of the other."""
        return all(one.a == one.b and one.single for one in self.groups)

    @cached_property
    def reversed(self) -> Alignment:
        """The same, seen from B."""
        return Alignment(tuple(Group(one.b, one.a) for one in self.groups), self.how)

    def place(self, side: str, at: int) -> int:
        """The number of the group that has the token `at` of a side, "a" or "b"."""
        return next(i for i, one in enumerate(self.groups) if getattr(one, side)[0] <= at < getattr(one, side)[1])


@lru_cache(maxsize=64)
def aligned(a: tuple[str, ...], b: tuple[str, ...]) -> Alignment:
    """The tokens of A and of B, next to those that are the same.

    Equal lists go one to one. Where both are pieces of one text, those that have the same characters stand together: what one
    tokenizer writes as several pieces and another as one. Of different texts those that difflib finds in both are partners.
    Upper case, accents, blanks and the marks of pieces (##, ·) count for nothing.
    """
    if a == b:
        return Alignment.numbered(len(a))
    if b < a:  # difflib finds more in one direction than in the other; B − A must be what A − B is, turned round
        return aligned(b, a).reversed
    ours, theirs = tuple(map(_bare, a)), tuple(map(_bare, b))
    one_text = "".join(map(_read, ours)) == "".join(map(_read, theirs))
    groups: list[Group] = []
    if one_text:
        groups += _by_characters(ours, theirs, 0, 0)
    else:
        for a0, a1, b0, b1 in _runs(ours, theirs):
            if ours[a0:a1] == theirs[b0:b1]:
                groups += (Group((a0 + i, a0 + i + 1), (b0 + i, b0 + i + 1)) for i in range(a1 - a0))
            else:
                groups += _between(ours[a0:a1], theirs[b0:b1], a0, b0)
    pieces = any(one.partners and not one.single for one in groups)
    how = "tokens of one text, by their characters" if one_text else "different texts, by the tokens they share"
    return Alignment(tuple(groups), f"{how}; pieces are put together" if pieces else how)


def _runs(ours: Sequence[str], theirs: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Both texts from beginning to end in runs that are the same, or are not: [from, before) in A, and in B.

    Where both have as many tokens, and at least as many are the same in their places, they stay in their places: difflib begins
    with the longest run, and in a text that repeats itself that may be another one.
    """
    matcher = SequenceMatcher(None, ours, theirs, autojunk=max(len(ours), len(theirs)) > _LONG)
    found = matcher.get_opcodes()
    shared = sum(a1 - a0 for kind, a0, a1, _, _ in found if kind == "equal")
    in_place = [one == other for one, other in zip(ours, theirs, strict=False)]
    if len(ours) != len(theirs) or sum(in_place) < shared:
        return [(a0, a1, b0, b1) for _, a0, a1, b0, b1 in found]
    runs = [list(run) for _, run in groupby(range(len(ours)), key=in_place.__getitem__)]
    return [(run[0], run[-1] + 1, run[0], run[-1] + 1) for run in runs]


def _between(ours: Sequence[str], theirs: Sequence[str], a0: int, b0: int) -> list[Group]:
    """Tokens that differ: partners where they are pieces of the same characters, otherwise first those of A, then those of B."""
    if "".join(map(_read, ours)) and "".join(map(_read, ours)) == "".join(map(_read, theirs)):
        return list(_by_characters(ours, theirs, a0, b0))
    return [*_alone(len(ours), a0, b0, of_a=True), *_alone(len(theirs), b0, a0 + len(ours), of_a=False)]


def _alone(count: int, first: int, other: int, of_a: bool) -> list[Group]:
    own = [(first + i, first + i + 1) for i in range(count)]
    return [Group(one, (other, other)) if of_a else Group((other, other), one) for one in own]


def _by_characters(ours: Sequence[str], theirs: Sequence[str], a0: int, b0: int) -> Iterator[Group]:
    """The smallest groups of pieces that end with the same character; what has no characters is a partner of the same thing only."""
    i = j = 0
    while i < len(ours) or j < len(theirs):
        mute_a, mute_b = (at < len(side) and not _read(side[at]) for at, side in ((i, ours), (j, theirs)))
        if mute_a and mute_b and ours[i] == theirs[j]:
            yield Group((a0 + i, a0 + i + 1), (b0 + j, b0 + j + 1))
            i, j = i + 1, j + 1
        elif mute_a:
            yield Group((a0 + i, a0 + i + 1), (b0 + j, b0 + j))
            i += 1
        elif mute_b:
            yield Group((a0 + i, a0 + i), (b0 + j, b0 + j + 1))
            j += 1
        else:
            from_a, from_b, ahead = i, j, 0  # `ahead`: how many characters A has been read further than B
            while i == from_a or j == from_b or ahead:
                if ahead <= 0:
                    ahead, i = ahead + len(_read(ours[i])), i + 1
                else:
                    ahead, j = ahead - len(_read(theirs[j])), j + 1
            yield Group((a0 + from_a, a0 + i), (b0 + from_b, b0 + j))


def _bare(token: str) -> str:
    """A token as its characters; one that stands for none, such as [CLS], as it is."""
    if _SPECIAL.fullmatch(token):
        return token
    letters = unicodedata.normalize("NFKD", _MARKS.sub("", token).casefold())
    return "".join(one for one in letters if unicodedata.category(one) != "Mn") or "".join(letters) or token


def _read(bare: str) -> str:
    """What of a text it has: a special token, or a blank, has nothing."""
    return "" if _SPECIAL.fullmatch(bare) or not _MARKS.sub("", bare) else bare


def ranges(places: Sequence[int]) -> list[tuple[int, int]]:
    """Places next to one another as (first, before last)."""
    runs = groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])
    return [(run[0][1], run[-1][1] + 1) for run in (list(found) for _, found in runs)]
