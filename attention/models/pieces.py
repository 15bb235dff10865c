"""The pieces that a real tokenizer makes, as a person reads them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

_BLANK = "▁"  # of sentence-piece tokenizers


def readable(tokenizer: Any, ids: Sequence[int]) -> tuple[str, ...]:
    """Each token as it is read: ·the with the blank before it, ##ing, ⏎ for a new line, <0xE6> for a byte that is no character.

    Args:
        tokenizer: of transformers.
        ids: of the tokens.
    """
    pieces = tokenizer.convert_ids_to_tokens(list(ids))
    # A model may have more rows than its tokenizer has pieces.
    pieces = [f"<{one}>" if piece is None else str(piece) for one, piece in zip(ids, pieces, strict=True)]
    special = set(tokenizer.all_special_tokens)
    bytewise = is_bytewise(tokenizer)
    return tuple(piece if piece in special else _read(piece, bytewise) for piece in pieces)


def is_bytewise(tokenizer: Any) -> bool:
    """Whether its pieces are written byte by byte, as GPT-2's."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    said = "" if backend is None else f"{backend.pre_tokenizer!r} {backend.decoder!r}"
    return "ByteLevel" in said


def _read(piece: str, bytewise: bool) -> str:
    text = _of_bytes(piece) if bytewise else piece.replace(_BLANK, " ")
    return text.replace(" ", "·").replace("\n", "⏎")


def _of_bytes(piece: str) -> str:
    """The characters of a byte-level piece; what is not whole characters byte by byte."""
    known = _bytes()
    if any(letter not in known for letter in piece):
        return piece  # one that was added to the vocabulary as it is
    raw = bytes(known[letter] for letter in piece)
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return raw.decode("utf-8", errors="labbytes")


def _as_hex(error: UnicodeError) -> tuple[str, int]:
    assert isinstance(error, UnicodeDecodeError)
    return "".join(f"<0x{byte:02X}>" for byte in error.object[error.start : error.end]), error.end


@cache
def _bytes() -> dict[str, int]:
    """The letter that stands for each byte in GPT-2's vocabulary, the other way round.

    Source: Radford et al. 2019, GPT-2, `bytes_to_unicode`: printable bytes stand for themselves, the others for letters from 256 on.
    """
    import codecs

    codecs.register_error("labbytes", _as_hex)
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    others = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(others)}
