"""Text to tokens, and tokens to labels that a person can read."""

from __future__ import annotations

import hashlib
import html
import sys
import unicodedata
from threading import Lock

import regex
from cachetools import LRUCache, cached

# A word keeps its inner apostrophes and hyphens (don't, self-contradictory), a number its inner
# points (3.14, 2024-01-15). Han and kana are written without spaces: one token a character. The
# rest is punctuation: \X is what a reader sees as one character, such as a family emoji. A flag is two letters of its own
# kind; it stands before \X, which would count all such letters before it to know which two belong together.
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
    """The bytes of a list of tokens in Python's memory."""
    return 1000 + sum(map(sys.getsizeof, tokens)) + 8 * len(tokens)


def _key(text: str, lowercase: bool = True) -> tuple[bytes, bool]:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest(), lowercase


@cached(LRUCache(16 * 2**20, getsizeof=_weight), key=_key, lock=Lock())
def tokenize(text: str, lowercase: bool = True) -> tuple[str, ...]:
    """The words and punctuation marks of a text, in the order in which they stand in it.

    Repeated words stay repeated: the second "the" is a token of its own.
    """
    return tuple(_TOKEN.findall(text.lower() if lowercase else text))


class Generated(str):
    """A token that a model has said itself: the same text, which a picture marks."""


def label(token: str, longest: int = 0, escape: bool = True) -> str:
    """A token as a picture shows it: nothing in it is invisible, nothing is read as HTML.

    A space is ·, a newline ⏎, a tab ⇥, an empty token ∅, any other character that would not be
    seen its code point, a mark with no letter of its own sits on ◌; ▸ stands before what a model has said itself. With `longest`,
    a token of more characters ends in an ellipsis.
    """
    shown = "".join(map(_visible, token)) or "∅"
    if unicodedata.category(shown[0]) == "Mn":
        shown = "◌" + shown  # a mark with no letter to sit on
    elif token.strip() and not any(map(_has_ink, token)):
        shown = " ".join(f"U+{ord(character):04X}" for character in token)
    if isinstance(token, Generated):
        shown = "▸" + shown
    if longest and len(shown) > longest:
        shown = shown[: longest - 1] + "…"
    return html.escape(shown, quote=False) if escape else shown


def labels(tokens: tuple[str, ...]) -> tuple[str, ...]:
    """`label` of every token, in order."""
    return tuple(map(label, tokens))


def _visible(character: str) -> str:
    named = {" ": "·", "\n": "⏎", "\t": "⇥"}.get(character)
    if named:
        return named
    unseen = unicodedata.category(character) in ("Cc", "Cs", "Co", "Cn", "Zs", "Zl", "Zp")
    return f"U+{ord(character):04X}" if unseen else character


def _has_ink(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CZ"
