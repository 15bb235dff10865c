"""Aligning the tokens of two texts: one to one, by their characters, or as far as the texts share tokens."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property, lru_cache
from itertools import groupby
from typing import NamedTuple

from attention.base.tokens import isolated, label

_SPECIAL = re.compile(r"\[[A-Z]+\d*\]|<[/|]?[a-z_|▁]+[|]?>|<\|.*\|>", re.DOTALL)
_MARKS = re.compile(r"^##|[·⏎⇥\s]")
MAX_NAMED = 24
"""How many tokens without a partner are listed by name."""
_LONG = 400  # tokens; beyond that difflib skips frequent words, as it would take quadratic time otherwise


class _Group(NamedTuple):
    """Corresponding tokens of A and B, as slices [start, stop); one of the two may be empty."""

    a: tuple[int, int]
    b: tuple[int, int]

    @property
    def has_partners(self) -> bool:
        """Whether both sides have tokens."""
        return self.a[0] < self.a[1] and self.b[0] < self.b[1]

    @property
    def is_one_to_one(self) -> bool:
        """Whether it is one token on each side."""
        return self.a[1] - self.a[0] == 1 == self.b[1] - self.b[0]

    @property
    def place(self) -> str:
        """Its positions: "A 3 B 4", "A 3–4 B 2", "A 3"."""
        sides = ((name, first, stop) for name, (first, stop) in zip("AB", self, strict=True) if first < stop)
        return " ".join(
            f"{name} {first}" if stop - first == 1 else f"{name} {first}–{stop - 1}" for name, first, stop in sides
        )


@dataclass(frozen=True)
class Alignment:
    """An alignment of the positions along an axis of two states, in the order of both.

    Attributes:
        groups: the corresponding tokens; every token of A and of B is in exactly one group.
        description: how partners were found, in words; empty for a one-to-one alignment.
    """

    groups: tuple[_Group, ...]
    description: str = ""

    @classmethod
    def identity(cls, size: int) -> Alignment:
        """The alignment of an axis without tokens, such as d_k: each column with the column of the same index."""
        return cls(tuple(_Group((i, i + 1), (i, i + 1)) for i in range(size)))

    @cached_property
    def is_identity(self) -> bool:
        """Whether every position corresponds to the same position of the other side."""
        return all(group.a == group.b and group.is_one_to_one for group in self.groups)

    @cached_property
    def swapped(self) -> Alignment:
        """The alignment with A and B exchanged."""
        return Alignment(tuple(_Group(group.b, group.a) for group in self.groups), self.description)

    def group_index(self, side: str, at: int) -> int:
        """The index of the group that contains the token `at` of a side, "a" or "b"."""
        return next(i for i, group in enumerate(self.groups) if getattr(group, side)[0] <= at < getattr(group, side)[1])


@lru_cache(maxsize=64)
def align(a: tuple[str, ...], b: tuple[str, ...]) -> Alignment:
    """The alignment of the tokens of A and B.

    Equal lists are aligned one to one. Two tokenizations of one text are aligned by characters: one token of A may correspond
    to several of B. In different texts the tokens that difflib matches are partners.
    Case, accents, spaces and subword markers (##, ·) are ignored.
    """
    if a == b:
        return Alignment.identity(len(a))
    if b < a:  # difflib depends on the direction, but B − A must be the negative of A − B
        return align(b, a).swapped
    tokens_a, tokens_b = tuple(map(_bare, a)), tuple(map(_bare, b))
    one_text = "".join(map(_text, tokens_a)) == "".join(map(_text, tokens_b))
    groups: list[_Group] = []
    if one_text:
        groups += _by_characters(tokens_a, tokens_b, 0, 0)
    else:
        for a0, a1, b0, b1 in _runs(tokens_a, tokens_b):
            if tokens_a[a0:a1] == tokens_b[b0:b1]:
                groups += (_Group((a0 + i, a0 + i + 1), (b0 + i, b0 + i + 1)) for i in range(a1 - a0))
            else:
                groups += _between(tokens_a[a0:a1], tokens_b[b0:b1], a0, b0)
    pieces = any(group.has_partners and not group.is_one_to_one for group in groups)
    how = "tokens of one text, by their characters" if one_text else "different texts, by the tokens they share"
    return Alignment(tuple(groups), f"{how}; pieces are put together" if pieces else how)


def _runs(tokens_a: Sequence[str], tokens_b: Sequence[str]) -> list[tuple[int, int, int, int]]:
    """Both texts as consecutive runs, equal or not: [start, stop) in A and in B.

    If both have the same length, and at least as many tokens agree position by position, they are compared by position: difflib
    starts with the longest run, which in a repetitive text may be a shifted one.
    """
    matcher = SequenceMatcher(None, tokens_a, tokens_b, autojunk=max(len(tokens_a), len(tokens_b)) > _LONG)
    opcodes = matcher.get_opcodes()
    shared = sum(a1 - a0 for tag, a0, a1, _, _ in opcodes if tag == "equal")
    in_place = [token_a == token_b for token_a, token_b in zip(tokens_a, tokens_b, strict=False)]
    if len(tokens_a) != len(tokens_b) or sum(in_place) < shared:
        return [(a0, a1, b0, b1) for _, a0, a1, b0, b1 in opcodes]
    runs = [list(run) for _, run in groupby(range(len(tokens_a)), key=in_place.__getitem__)]
    return [(run[0], run[-1] + 1, run[0], run[-1] + 1) for run in runs]


def _between(tokens_a: Sequence[str], tokens_b: Sequence[str], a0: int, b0: int) -> list[_Group]:
    """The groups of a run that differs: by characters where these agree, otherwise the tokens of A, then those of B, without partners."""
    if "".join(map(_text, tokens_a)) and "".join(map(_text, tokens_a)) == "".join(map(_text, tokens_b)):
        return list(_by_characters(tokens_a, tokens_b, a0, b0))
    a1, b1 = a0 + len(tokens_a), b0 + len(tokens_b)
    of_a, of_b = ([(i, i + 1) for i in range(*ends)] for ends in ((a0, a1), (b0, b1)))
    return [*(_Group(span, (b0, b0)) for span in of_a), *(_Group((a1, a1), span) for span in of_b)]


def _by_characters(tokens_a: Sequence[str], tokens_b: Sequence[str], a0: int, b0: int) -> Iterator[_Group]:
    """The smallest groups that end at the same character; a token without characters is a partner only of an equal token."""
    i = j = 0
    while i < len(tokens_a) or j < len(tokens_b):
        empty_a, empty_b = (at < len(side) and not _text(side[at]) for at, side in ((i, tokens_a), (j, tokens_b)))
        if empty_a and empty_b and tokens_a[i] == tokens_b[j]:
            yield _Group((a0 + i, a0 + i + 1), (b0 + j, b0 + j + 1))
            i, j = i + 1, j + 1
        elif empty_a:
            yield _Group((a0 + i, a0 + i + 1), (b0 + j, b0 + j))
            i += 1
        elif empty_b:
            yield _Group((a0 + i, a0 + i), (b0 + j, b0 + j + 1))
            j += 1
        else:
            from_a, from_b, ahead = i, j, 0  # `ahead`: the number of characters by which A is ahead of B
            while i == from_a or j == from_b or ahead:
                if ahead <= 0:
                    ahead, i = ahead + len(_text(tokens_a[i])), i + 1
                else:
                    ahead, j = ahead - len(_text(tokens_b[j])), j + 1
            yield _Group((a0 + from_a, a0 + i), (b0 + from_b, b0 + j))


def _bare(token: str) -> str:
    """The normalized characters of a token; a special token such as [CLS] stays as it is."""
    if _SPECIAL.fullmatch(token):
        return token
    letters = unicodedata.normalize("NFKD", _MARKS.sub("", token).casefold())
    return "".join(letter for letter in letters if unicodedata.category(letter) != "Mn") or "".join(letters) or token


def _text(bare: str) -> str:
    """A token's contribution to the text: nothing for a special token or a space."""
    return "" if _SPECIAL.fullmatch(bare) or not _MARKS.sub("", bare) else bare


def consecutive_ranges(places: Sequence[int]) -> list[tuple[int, int]]:
    """Consecutive positions as ranges [start, stop)."""
    runs = groupby(enumerate(places), key=lambda pair: pair[1] - pair[0])
    return [(run[0][1], run[-1][1] + 1) for run in (list(group) for _, group in runs)]


def position_names(alignment: Alignment, a: tuple[str, ...], b: tuple[str, ...]) -> tuple[str, ...]:
    """The name of each position of an axis: its token in A, or that in B if A has none, or if A splits it into subwords."""
    return tuple(
        _joined(a[slice(*group.a)])
        if group.a[1] - group.a[0] == 1 or group.b[0] == group.b[1]
        else _joined(b[slice(*group.b)])
        for group in alignment.groups
    )


def position_labels(
    alignment: Alignment, a: tuple[str, ...], b: tuple[str, ...], escape: bool = True
) -> tuple[str, ...]:
    """Each position of an axis with its index and name: "3 cat"; where A and B differ, with both indices: "3 cat · A 3 B 4"."""
    named = zip(alignment.groups, position_names(alignment, a, b), strict=True)
    return tuple(
        f"{i} {isolated(label(token, 40, escape))}{'' if alignment.is_identity else f' · {group.place}'}"
        for i, (group, token) in enumerate(named)
    )


def without_partner(
    alignment: Alignment, a: tuple[str, ...], b: tuple[str, ...], names: tuple[str, str] = ("A", "B")
) -> str:
    """The tokens of A and of B that match none of the other, with their positions: "3 cat in A; 4 dog in B"; empty if all match."""
    parts = []
    for name, side, tokens in zip(names, ("a", "b"), (a, b), strict=True):
        spans = [getattr(group, side) for group in alignment.groups if not group.has_partners]
        lone = [f"{i} {isolated(label(tokens[i], 40, escape=False))}" for span in spans for i in range(*span)]
        more = f" and {len(lone) - MAX_NAMED} more" if len(lone) > MAX_NAMED else ""
        parts += [f"{', '.join(lone[:MAX_NAMED])}{more} in {name}"] if lone else []
    return "; ".join(parts)


def _joined(tokens: tuple[str, ...]) -> str:
    """The tokens as one; one alone stays what it is, such as a patch, whose label has its place."""
    return tokens[0] if len(tokens) == 1 else "".join(tokens)
