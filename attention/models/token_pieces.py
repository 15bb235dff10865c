"""The pieces of a real tokenizer in readable form, each of which knows whether it continues the word of the piece before it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from attention.base.pieces import CONTINUES, EACH, ENCODED, ENDS, GOES_ON, LATIN, LETTERS, TEXT, WordRule
from attention.base.tokens import Letter, Piece
from attention.media import MOST_LETTERS, Residues, residues_among

_RULES: WeakKeyDictionary[Any, WordRule] = WeakKeyDictionary()


def readable_tokens(tokenizer: Any, ids: Sequence[int], texts: Sequence[str] = ()) -> tuple[Piece, ...]:
    """Each token in readable form: ·the with a leading blank, ##ing, ⏎ for a new line, <0xE6> for a byte that is not a character.

    The tokens know which of them are one word, by `word_rule`; special tokens, and those that a user has added, are words of their own.

    `texts` are those of the ids, in order, where they are known: the pieces of some tokenizers have no marks.
    """
    pieces, is_alone = _raw(tokenizer, ids)
    rule = word_rule(tokenizer)
    return rule.read(pieces, is_alone, _word_ids(tokenizer, ids, texts) if rule.kind == ENCODED else ())


def residues_of(tokenizer: Any) -> Residues | None:
    """The residues whose letters are the vocabulary of a tokenizer; None for one of words."""
    return residues_among(tokenizer.get_vocab()) if len(tokenizer) <= MOST_LETTERS else None


def text_of_letters(tokenizer: Any, letters: Sequence[str]) -> str:
    """The text of which a tokenizer makes these letters: side by side, or with blanks between them where it reads words otherwise."""
    pair = tokenizer(letters[0] * 2, add_special_tokens=False)["input_ids"]
    return ("" if len(pair) == 2 and tokenizer.unk_token_id not in pair else " ").join(letters)


def numbered(tokenizer: Any, ids: Sequence[int], tokens: tuple[str, ...]) -> tuple[str, ...]:
    """The tokens of a text; where it is a chain of residues, these with their numbers. A mask stands for one, and other special tokens do not."""
    if residues_of(tokenizer) is None:
        return tokens
    apart, number = {*tokenizer.all_special_ids} - {tokenizer.mask_token_id, tokenizer.unk_token_id}, count(1)
    named = zip(ids, tokens, strict=True)
    return tuple(each if id_ in apart else Letter(each.lstrip("·"), next(number)) for id_, each in named)


def vocabulary_names(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """The same for tokens that are no text, such as the likeliest next tokens: none continues the one before it."""
    rule = word_rule(tokenizer)
    return tuple(rule.read([piece], [alone])[0] for piece, alone in zip(*_raw(tokenizer, ids), strict=True))


def _raw(tokenizer: Any, ids: Sequence[int]) -> tuple[list[str], list[bool]]:
    """The pieces as the tokenizer has them, and whether each is special or added."""
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    # A model may have more rows than its tokenizer has pieces.
    pieces = [f"<{token_id}>" if piece is None else str(piece) for token_id, piece in zip(ids, pieces, strict=True)]
    backend = getattr(tokenizer, "backend_tokenizer", None)
    alone = {*tokenizer.all_special_tokens, *map(str, getattr(tokenizer, "added_tokens_decoder", {}).values())}
    alone.add(getattr(getattr(backend, "model", None), "unk_token", None) or "")
    return pieces, [piece in alone for piece in pieces]


def word_rule(tokenizer: Any) -> WordRule:
    """How a transformers tokenizer shows which of its pieces are one word; decided once for each."""
    if tokenizer not in _RULES:
        backend = getattr(tokenizer, "backend_tokenizer", None)
        _RULES[tokenizer] = _rule_of_python(tokenizer) if backend is None else _rule_of_backend(backend)
    return _RULES[tokenizer]


def _rule_of_backend(backend: Any) -> WordRule:
    """The rule of a tokenizer of the package tokenizers: by the marks of its model, or by what its pre-tokenizer does with a blank."""
    alphabet = LETTERS if "ByteLevel" in f"{backend.normalizer!r} {backend.pre_tokenizer!r} {backend.decoder!r}" else ""
    if prefix := getattr(backend.model, "continuing_subword_prefix", None):
        return WordRule(CONTINUES, prefix, alphabet)
    if suffix := getattr(backend.model, "end_of_word_suffix", None):
        return WordRule(ENDS, suffix, alphabet)
    blank = _blank(backend)
    if blank:
        return WordRule(TEXT, blank, alphabet)
    return WordRule(EACH if type(backend.model).__name__ == "WordLevel" else ENCODED, "", alphabet)


def _blank(backend: Any) -> str:
    """What stands for the blank between two words in the pieces; empty if they have none."""
    probe = "x x"
    with suppress(Exception):  # a part written in Python can raise anything
        text = backend.normalizer.normalize_str(probe) if backend.normalizer else probe
        parts = backend.pre_tokenizer.pre_tokenize_str(text) if backend.pre_tokenizer else [(text, None)]
        between = re.search("x(.*)x", "".join(part for part, _ in parts), re.IGNORECASE | re.DOTALL)
        return between[1][-1:] if between else ""
    return ""


def _rule_of_python(tokenizer: Any) -> WordRule:
    """The rule of a tokenizer written in Python: by how it puts pieces together again."""

    def joined(*pieces: str) -> str:
        with suppress(Exception):  # of a package that is missing, or because it knows no such pieces
            return str(tokenizer.convert_tokens_to_string(list(pieces))).strip()
        return ""

    if joined("ab", "##cd") == "abcd":
        return WordRule(CONTINUES, "##")
    if joined("ab@@", "cd") == "abcd":
        return WordRule(GOES_ON, "@@")
    if joined("ab", "cd</w>") == "abcd":
        return WordRule(ENDS, "</w>")
    for blank, alphabet in (("Ġ", LETTERS), ("▁", "")):
        if joined(f"{blank}ab", f"{blank}cd") == "ab cd" or (blank == "▁" and hasattr(tokenizer, "sp_model")):
            return WordRule(TEXT, blank, alphabet)
    if joined("a", "b") == "ab":
        return WordRule(TEXT, " ", LATIN if joined("Ã", "©") == "é" else "")
    return WordRule(EACH)


def _word_ids(tokenizer: Any, ids: Sequence[int], texts: Sequence[str]) -> list[int | None]:
    """The number of the word of each token, by the encoding of the texts; None where the ids are of no text, such as generated ones."""
    result: list[int | None] = [None] * len(ids)
    start = first = 0
    for text in texts:
        encoded = tokenizer(text, add_special_tokens=False, verbose=False)
        of_text, words = encoded["input_ids"], encoded.word_ids()
        places = range(start, len(ids) if of_text else start)
        at = next((i for i in places if list(ids[i : i + len(of_text)]) == of_text[: len(ids) - i]), None)
        if at is None:
            continue
        start = min(len(ids), at + len(of_text))
        result[at:start] = [None if word is None else first + word for word in words[: start - at]]
        first += 1 + max((word for word in words if word is not None), default=0)
    return result if any(word is not None for word in result) else []
