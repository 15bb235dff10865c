"""The pieces of a real tokenizer in readable form."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

_SENTENCEPIECE_BLANK = "▁"


def readable_tokens(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """Each token in readable form: ·the with a leading blank, ##ing, ⏎ for a new line, <0xE6> for a byte that is not a character.

    Args:
        tokenizer: a transformers tokenizer.
        ids: the token ids.
    """
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    # A model may have more rows than its tokenizer has pieces.
    pieces = [f"<{token_id}>" if piece is None else str(piece) for token_id, piece in zip(ids, pieces, strict=True)]
    special = set(tokenizer.all_special_tokens)
    bytewise = is_bytewise(tokenizer)
    return tuple(piece if piece in special else _readable(piece, bytewise) for piece in pieces)


def is_bytewise(tokenizer: Any) -> bool:
    """Whether the tokenizer works on bytes, as GPT-2's does."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    parts = "" if backend is None else f"{backend.pre_tokenizer!r} {backend.decoder!r}"
    return "ByteLevel" in parts


def _readable(piece: str, bytewise: bool) -> str:
    text = _decode_bytes(piece) if bytewise else piece.replace(_SENTENCEPIECE_BLANK, " ")
    return text.replace(" ", "·").replace("\n", "⏎")


def _decode_bytes(piece: str) -> str:
    """The characters of a byte-level piece; incomplete characters as <0x…> byte by byte."""
    byte_of = _byte_of_letter()
    if any(letter not in byte_of for letter in piece):
        return piece  # added to the vocabulary as plain text
    raw = bytes(byte_of[letter] for letter in piece)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("utf-8", errors="labbytes")


def _as_hex(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"<0x{byte:02X}>" for byte in error.object[error.start : error.end]), error.end


@cache
def _byte_of_letter() -> dict[str, int]:
    """The byte of each letter in GPT-2's vocabulary (the inverse of `bytes_to_unicode`).

    Source: Radford et al. 2019, GPT-2, `bytes_to_unicode`: printable bytes map to themselves, the others to letters from 256 on.
    """
    import codecs

    codecs.register_error("labbytes", _as_hex)
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    unprintable = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(unprintable)}
