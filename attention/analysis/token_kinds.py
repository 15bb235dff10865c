"""What a token stands for where a model reads a picture: a patch, a register, [CLS], another special token, or a word."""

from __future__ import annotations

import re
from collections.abc import Collection

from attention.tokens import NEWLINE, Patch

PATCH, REGISTER, CLS, SPECIAL, WORD = "patch", "register", "cls", "special", "word"
"""The kinds of tokens. The end of a row of patches is special; the distillation token of DeiT counts as [CLS], since a classifier reads it as that one."""

_REGISTER = re.compile(r"\[register \d+\]")
_CLS = frozenset(("[CLS]", "[distillation]"))
_SPECIAL = re.compile(r"\[[A-Z]+\d*\]|<(?!0x)[|/A-Za-z][^<>\s]*>")


def kind_of(token: str, special: Collection[str] = ()) -> str:
    """The kind of a token.

    Args:
        token: a readable token.
        special: the special tokens of the tokenizer; if empty, a token such as [SEP] or </s> counts as special.
    """
    if isinstance(token, Patch):
        return PATCH
    if _REGISTER.fullmatch(token):
        return REGISTER
    if token in _CLS:
        return CLS
    if token == NEWLINE:
        return SPECIAL
    return SPECIAL if (token in special if special else _SPECIAL.fullmatch(token)) else WORD


def is_special(token: str, special: Collection[str] = ()) -> bool:
    """Whether a token is neither a patch nor a word; `special` as for `kind_of`."""
    kind = kind_of(token, special)
    # A tokenizer that names its special tokens decides what [CLS] is.
    return token in special if special and kind == CLS else kind in (REGISTER, CLS, SPECIAL)
