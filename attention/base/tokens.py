"""Tokens: texts split into words, readable labels of tokens, and patches of pictures with their places."""

from __future__ import annotations

import hashlib
import html
import sys
import unicodedata
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import regex
from cachetools import LRUCache, cached

if TYPE_CHECKING:
    from torch import Tensor


# A word includes inner apostrophes and hyphens (don't, self-contradictory), a number its inner
# points (3.14, 2024-01-15). Han and kana are written without spaces: one token per character. The
# rest is punctuation: \X matches a grapheme cluster, such as a family emoji. A flag is two regional indicators; its
# pattern comes before \X, which would count all indicators before a flag to find the pairs.
_TOKEN = regex.compile(
    r"""(?V1)
      [\p{Han}\p{Hiragana}\p{Katakana}]\p{M}*
    | \p{N}+(?:[.,:/\-]\p{N}+)+(?!\w)
    | (?:[\w--[\p{Han}\p{Hiragana}\p{Katakana}]]\p{M}*)+(?:[-'’](?:[\w--[\p{Han}\p{Hiragana}\p{Katakana}]]\p{M}*)+)*
    | \p{RI}{2}[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]*
    | (?!\s)\X
    """,
    regex.VERBOSE,
)


def _weight(tokens: tuple[str, ...]) -> int:
    return 1000 + sum(map(sys.getsizeof, tokens)) + 8 * len(tokens)


def _key(text: str, lowercase: bool = True) -> tuple[bytes, bool]:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest(), lowercase


@cached(LRUCache(16 * 2**20, getsizeof=_weight), key=_key, lock=Lock())
def tokenize(text: str, lowercase: bool = True) -> tuple[str, ...]:
    """The words and punctuation marks of a text, in order.

    Repeated words are repeated tokens: the second "the" is a token of its own.
    """
    return tuple(_TOKEN.findall(text.lower() if lowercase else text))


NEWLINE = "[newline]"
"""The token that ends a row of patches, in the text of a model that reads a picture in tiles."""


class Piece(str):
    """A token that knows whether it `joins` the word of the token before it, and by which `rule`, in words (`attention.base.pieces.WordRule.meaning`)."""

    joins: bool
    rule: str

    def __new__(cls, text: str, joins: bool | None = None, rule: str = "") -> Self:
        """A token; without `joins`, it joins as `text` does, which may be a piece."""
        token = super().__new__(cls, text)
        token.joins = getattr(text, "joins", False) if joins is None else joins
        token.rule = rule or getattr(text, "rule", "")
        return token

    def __getnewargs__(self) -> tuple[str, bool, str]:  # type: ignore[override]  # str's own gives its text alone
        return str(self), self.joins, self.rule


class Generated(Piece):
    """A token that a model generated; pictures mark it."""


class PairToken(Piece):
    """A token of one of the two texts that a model reads as a pair: `of` "A" or "B"."""

    of: str

    def __new__(cls, token: str, of: str) -> Self:
        """The token of a text."""
        result = super().__new__(cls, token)
        result.of = of
        return result

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]  # Piece's own gives its text alone
        return Piece(self), self.of


def pair_spans(tokens: Sequence[str]) -> dict[str, slice]:
    """The positions of each text of a pair, from its first token to its last; empty if the tokens are of no pair."""
    places: dict[str, list[int]] = {}
    for position, token in enumerate(tokens):
        if isinstance(token, PairToken):
            places.setdefault(token.of, []).append(position)
    return {of: slice(positions[0], positions[-1] + 1) for of, positions in places.items()}


class ClassName(str):
    """The name of a class that a model predicts for a picture; it keeps its blanks."""


class PatchPlace(NamedTuple):
    """Where a patch is: the index of its picture, its row and column in the grid of patches, and its box in pixels (left, top, right, bottom)."""

    picture: int
    row: int
    column: int
    box: tuple[int, int, int, int]


class Placed(str):
    """A token with a `place`: which part of another input than text it stands for, in the units of its medium."""

    place: Any


class Residue(NamedTuple):
    """Where a residue of a chain is, such as an amino acid of a protein: its number, from 1 as biologists count, and its letter."""

    number: int
    letter: str


class Letter(Placed):
    """A token that is one residue of a chain: its text is the letter, its label also has the number, "K4"."""

    place: Residue

    def __new__(cls, letter: str, number: int) -> Letter:
        """The token of a letter, or of a mask in its place."""
        token = super().__new__(cls, letter)
        token.place = Residue(number, str(letter))
        return token

    def __getnewargs__(self) -> tuple[str, int]:  # type: ignore[override]  # str's own gives its text alone
        return str(self), self.place.number


class Patch(Placed):
    """A token that is a patch of what a model saw (`SeenPicture`): of a picture, of the spectrogram of a sound, of the lines of a series.

    Its text is that of its medium, such as "0.52–0.54 s"; in a picture "patch row 3, column 7", and after the first picture
    "patch row 3, column 7 of picture 1".

    Attributes:
        place: in the units of its medium, which may have a `short` name of it; of a picture, the four below as one value.
        picture: the index of the picture in `Trace.pictures`.
        row: of the grid of patches, from zero at the top.
        column: of the grid of patches, from zero at the left.
        box: left, top, right and bottom of the patch in the pixels that the model saw; right and bottom are outside.
    """

    picture: int
    row: int
    column: int
    box: tuple[int, int, int, int]

    def __new__(
        cls, picture: int, row: int, column: int, box: tuple[int, int, int, int], text: str = "", place: Any = None
    ) -> Patch:
        """The token of one patch; without a `text` and a `place` it is one of a picture."""
        own = f"patch row {row}, column {column}" + f" of picture {picture}" * bool(picture)
        token = super().__new__(cls, text or own)
        token.picture, token.row, token.column, token.box = in_picture = PatchPlace(picture, row, column, box)
        token.place = in_picture if place is None else place
        return token

    def __getnewargs__(self) -> tuple[Any, ...]:
        return self.picture, self.row, self.column, self.box, str(self), self.place

    @property
    def is_of_picture(self) -> bool:
        """Whether its place is a row and a column, and not in the units of another medium."""
        return isinstance(self.place, PatchPlace)


_OBJECT_SCORE = 0.5


class BoxPlace(NamedTuple):
    """Where a model sees an object: the index of the picture, the box in pixels that the model saw (left, top, right, bottom), and how likely it is there, from 0 to 1."""

    picture: int
    box: tuple[float, float, float, float]
    score: float


class BoxToken(Placed):
    """A token at which a model predicts a box on a picture, with the box as its place: an object query, such as "query 17: cat 0.93", or a detection token."""

    place: BoxPlace

    @property
    def is_object(self) -> bool:
        """Whether the model is sure enough of an object: a score above 0.5, as in the post-processing of transformers."""
        return self.place.score > _OBJECT_SCORE

    def __new__(cls, text: str, place: BoxPlace) -> BoxToken:
        """The token with this text."""
        token = super().__new__(cls, text)
        token.place = place
        return token

    def __getnewargs__(self) -> tuple[str, BoxPlace]:  # type: ignore[override]  # str's own gives its text alone
        return str(self), self.place


def label(token: str, longest: int = 0, escape: bool = True) -> str:
    """The label of a token in pictures, without invisible characters, and escaped for HTML unless not asked to.

    A space is ·, a newline ⏎, a tab ⇥, an empty token ∅; another invisible character is shown as its code point, and a
    combining mark without a letter on ◌. ▸ precedes a generated token, and "A: " or "B: " a token of a pair. A token with a place and a class keep their blanks; a residue has its number, as in K4.
    A label of more than `longest` characters (0: no limit) ends with an ellipsis, and that of a patch is "patch 3,7", or "patch1 3,7" of picture 1.
    """
    text = str(token) if isinstance(token, Placed | ClassName) and token else "".join(map(_visible, token)) or "∅"
    if isinstance(token, Letter):
        text += str(token.place.number)
    if unicodedata.category(text[0]) == "Mn":
        text = "◌" + text  # a combining mark without a letter
    elif token.strip() and not any(map(_is_visible, token)):
        text = " ".join(f"U+{ord(character):04X}" for character in token)
    if isinstance(token, Generated):
        text = "▸" + text
    elif isinstance(token, PairToken):
        text = f"{token.of}: {text}"
    if isinstance(token, Patch) and 0 < longest < len(text):
        of_picture = f"patch{token.picture or ''} {token.row},{token.column}"
        text = of_picture if token.is_of_picture else getattr(token.place, "short", text)
    if longest and len(text) > longest:
        text = text[: longest - 1] + "…"
    return html.escape(text, quote=False) if escape else text


def isolated(text: str) -> str:
    """A text that keeps the order of the numbers beside it: between two invisible marks, if any of its letters runs from right to left."""
    runs_left = any(unicodedata.bidirectional(character) in ("R", "AL", "AN") for character in text)
    return f"\u2068{text}\u2069" if runs_left else text


def any_patch(tokens: Sequence[str] | None) -> bool:
    """Whether any token of an axis is a `Patch`; false for an axis without tokens."""
    return any(isinstance(token, Patch) for token in tokens or ())


NO_PATCH = -1
"""Picture, row and column of a token that is no patch."""


def patch_places(tokens: Sequence[str]) -> Tensor:
    """The picture, row and column of each token, [pos 3]; `NO_PATCH` for one that is no patch."""
    import torch

    none = (NO_PATCH,) * 3
    places = [(token.picture, token.row, token.column) if isinstance(token, Patch) else none for token in tokens]
    return torch.tensor(places, dtype=torch.int64).reshape(-1, 3)


def shows_several_pictures(tokens: Sequence[str]) -> bool:
    """Whether patches of more than the first picture are among the tokens, so that a row and a column do not say which patch it is."""
    return any(isinstance(token, Patch) and token.is_of_picture and token.picture > 0 for token in tokens)


def place_label(token: str, with_picture: bool) -> str:
    """`label` of a token; with `with_picture`, a patch of the first picture also has its picture, as others have: "patch row 3, column 7 of picture 0"."""
    is_of_first = isinstance(token, Patch) and token.is_of_picture and token.picture == 0
    return f"{label(token)} of picture 0" if with_picture and is_of_first else label(token)


def labels(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """`label` of every token, in order."""
    return tuple(map(label, tokens))


def _visible(character: str) -> str:
    symbol = {" ": "·", "\n": "⏎", "\t": "⇥"}.get(character)
    if symbol:
        return symbol
    is_invisible = unicodedata.category(character) in ("Cc", "Cs", "Co", "Cn", "Zs", "Zl", "Zp")
    return f"U+{ord(character):04X}" if is_invisible else character


def _is_visible(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CZ"
