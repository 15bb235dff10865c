"""Text to tokens, and tokens to labels that a person can read."""

from __future__ import annotations

import html
import unicodedata
from functools import lru_cache

import regex

# A word keeps its inner apostrophes and hyphens (don't, self-contradictory), a number its inner
# points (3.14, 2024-01-15). Han and kana are written without spaces: one token a character. The
# rest is punctuation: \X is what a reader sees as one character, such as a flag or a family emoji.
_TOKEN = regex.compile(
    r"""(?V1)
      [\p{Han}\p{Hiragana}\p{Katakana}]\p{M}*
    | \p{N}+(?:[.,:/\-]\p{N}+)+(?!\w)
    | (?:[\w--[\p{Han}\p{Hiragana}\p{Katakana}]]\p{M}*)+(?:[-'’](?:[\w--[\p{Han}\p{Hiragana}\p{Katakana}]]\p{M}*)+)*
    | (?!\s)\X
    """,
    regex.VERBOSE,
)


@lru_cache(maxsize=256)
def tokenize(text: str, lowercase: bool = True) -> tuple[str, ...]:
    """The words and punctuation marks of a text, in the order in which they stand in it.

    Repeated words stay repeated: the second "the" is a token of its own.
    """
    return tuple(_TOKEN.findall(text.lower() if lowercase else text))


def label(token: str, longest: int = 0, escape: bool = True) -> str:
    """A token as a picture shows it: nothing in it is invisible, nothing is read as HTML.

    A space is ·, a newline ⏎, a tab ⇥, an empty token ∅, any other character that would not be
    seen its code point, a mark with no letter of its own sits on ◌. With `longest`, a token of more characters ends in an ellipsis.
    """
    shown = "".join(map(_visible, token)) or "∅"
    if unicodedata.category(shown[0]) == "Mn":
        shown = "◌" + shown  # a mark with no letter to sit on
    elif token.strip() and not any(map(_has_ink, token)):
        shown = " ".join(f"U+{ord(character):04X}" for character in token)
    if longest and len(shown) > longest:
        shown = shown[: longest - 1] + "…"
    return html.escape(shown, quote=False) if escape else shown


def labels(tokens: tuple[str, ...], longest: int = 0) -> tuple[str, ...]:
    """`label` of every token, in order."""
    return tuple(label(token, longest) for token in tokens)


def _visible(character: str) -> str:
    named = {" ": "·", "\n": "⏎", "\t": "⇥"}.get(character)
    if named:
        return named
    unseen = unicodedata.category(character) in ("Cc", "Cs", "Co", "Cn", "Zs", "Zl", "Zp")
    return f"U+{ord(character):04X}" if unseen else character


def _has_ink(character: str) -> bool:
    return unicodedata.category(character)[0] not in "CZ"
