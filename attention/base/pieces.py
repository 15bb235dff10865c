"""Which pieces of a text are one word: by the marks that a tokenizer puts on its pieces, or by the text that they make."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

import regex

from attention.base.tokens import Patch, Piece, label

CONTINUES, ENDS, GOES_ON, TEXT, ENCODED, EACH = "continues", "ends", "goes on", "text", "encoded", "each"
LETTERS, LATIN = "letters", "latin-1"

_MEANINGS = {
    CONTINUES: "a piece with {} before it continues a word",
    ENDS: "a word ends at {}",
    GOES_ON: "a word goes on after a piece with {} at its end",
    TEXT: "letters and numbers that touch are one word; Chinese and Japanese stay in pieces",
    ENCODED: "the word_ids of the tokenizer",
    EACH: "each token is a word",
}

# Letters, their marks and numbers, with the invisible characters inside of words (joiners, soft hyphens, marks of
# direction); not the zero-width space, which Thai and Khmer put between words. Nothing shows where a Chinese or Japanese
# word ends, so one is never longer than a piece. \udc80 … are bytes of a character that is cut off.
_WORD = regex.compile(
    r"""(?V1)
      [\p{Han}\p{Hiragana}\p{Katakana}]\p{M}*
    | [[\p{L}\p{M}\p{N}]--[\p{Han}\p{Hiragana}\p{Katakana}]]
      [[\p{L}\p{M}\p{N}\p{Cf}]--[\p{Han}\p{Hiragana}\p{Katakana}\u200b]]*
    | [\uDCC2-\uDCF4][\uDC80-\uDCBF]*
    | \p{RI}{2}[\p{GCB=Extend}\p{GCB=ZWJ}\p{GCB=SpacingMark}]*
    | (?!\s)\X
    """,
    regex.VERBOSE,
)
_CLUSTER = regex.compile(r"\X")
_BYTES = regex.compile(r"((?:<0x[0-9A-F]{2}>)+)")


@dataclass(frozen=True)
class WordRule:
    """How a tokenizer shows which of its pieces are one word.

    Attributes:
        kind: `CONTINUES`: a mark at the beginning of a piece that continues a word, as ##ing of WordPiece; `ENDS`: a mark at the end of
            a word, as CLIP's cat</w>; `GOES_ON`: a mark at the end of a piece whose word goes on, as CTRL's re@@; `TEXT`: the pieces
            have all characters of the text, so its letters and numbers that touch are a word; `ENCODED`: only the tokenizer knows,
            while it reads the text; `EACH`: each token is a word.
        mark: the mark; of `TEXT`, what stands for a blank.
        alphabet: what the characters of a piece stand for: `LETTERS` for bytes as in GPT-2, `LATIN` for bytes as in ByT5, otherwise
            for themselves.
    """

    kind: str
    mark: str = ""
    alphabet: str = ""

    @property
    def meaning(self) -> str:
        """What a word is, in words; not escaped for HTML."""
        return _MEANINGS[self.kind].format(label(self.mark, 20, escape=False))

    @classmethod
    def of_marks(cls, tokens: Iterable[str]) -> WordRule:
        """The rule by the marks that are on some tokens, whose tokenizer is unknown; without a mark each token is a word."""
        marked = [token for token in tokens if len(token) > 1]
        for blank in "·▁Ġ":
            if any(token.startswith(blank) or token.endswith(blank) for token in marked):
                return cls(TEXT, blank, LETTERS if blank == "Ġ" else "")
        if any(token.startswith("##") and token.strip("#") for token in marked):
            return cls(CONTINUES, "##")
        for kind, mark in ((ENDS, "</w>"), (GOES_ON, "@@")):
            if any(token.endswith(mark) and token != mark for token in marked):
                return cls(kind, mark)
        return cls(EACH)

    def read(
        self, raw: Sequence[str], is_alone: Sequence[bool], word_ids: Sequence[int | None] = ()
    ) -> tuple[Piece, ...]:
        """The pieces in readable form: ·the with a leading blank, ##ing that continues a word by a mark, ⏎ for a new line, <0xE6> for a byte that is not a character.

        Args:
            raw: the pieces as the tokenizer has them.
            is_alone: whether each is a token that is no part of a text, such as [CLS], and stays as it is.
            word_ids: the number of the word of each piece, for `ENCODED`; empty: unknown, so that each piece is a word.
        """  # fmt: skip
        bare = [piece if alone else self._without_mark(piece) for piece, alone in zip(raw, is_alone, strict=True)]
        texts = [piece if alone else self._text(piece) for piece, alone in zip(bare, is_alone, strict=True)]
        joins = self._joins(raw, bare, is_alone, word_ids)
        meaning = self.meaning if self.kind != ENCODED or word_ids else _MEANINGS[EACH]
        result, was_alone = list[Piece](), True
        for i, text in enumerate(texts):
            joined = joins[i] and not is_alone[i] and not was_alone
            has_mark = joined if self.kind in (ENDS, GOES_ON) else bare[i] != raw[i]
            shown = text if is_alone[i] else "##" * has_mark + text.replace(" ", "·").replace("\n", "⏎")
            result.append(Piece(shown, joined, meaning))
            was_alone = is_alone[i]
        return tuple(result)

    def _without_mark(self, piece: str) -> str:
        if self.kind == CONTINUES:
            return piece.removeprefix(self.mark) if piece != self.mark else piece
        return piece.removesuffix(self.mark) if self.kind in (ENDS, GOES_ON) and piece != self.mark else piece

    def _joins(
        self, raw: Sequence[str], bare: Sequence[str], is_alone: Sequence[bool], word_ids: Sequence[int | None]
    ) -> list[bool]:
        """Whether each piece continues the word of the piece before it, whatever is alone."""
        parts = [b"\n" if alone else self._bytes(piece) for piece, alone in zip(bare, is_alone, strict=True)]
        if self.kind == TEXT:
            # A blank that is a piece of its own belongs to the word after it, as in ·the.
            pairs = zip((b"", *parts), parts, _inside(_WORD, parts), strict=False)
            return [inside or (before == b" " and bool(part[:1].strip())) for before, part, inside in pairs]
        if self.kind == CONTINUES:
            marked = [piece != without for piece, without in zip(raw, bare, strict=True)]
        elif self.kind in (ENDS, GOES_ON):
            marked = [piece.endswith(self.mark) == (self.kind == GOES_ON) for piece in ("", *raw[:-1])]
        else:
            marked = joins_of_ids(word_ids or [None] * len(raw))
        if all(map(bytes.isascii, parts)):
            return marked
        # Some tokenizers end a word before a vowel sign, or inside of an emoji.
        return [mark or inside for mark, inside in zip(marked, _inside(_CLUSTER, parts), strict=True)]

    def _text(self, piece: str) -> str:
        return _show_bytes(self._bytes(piece)) if self.alphabet else piece.replace(self._blank, " ")

    @property
    def _blank(self) -> str:
        return self.mark if self.kind == TEXT and self.mark else " "

    def _bytes(self, piece: str) -> bytes:
        """The UTF-8 of a piece, which may be a part of a character."""
        letters = _byte_of_letter()
        if self.alphabet == LETTERS and all(letter in letters for letter in piece):
            return bytes(letters[letter] for letter in piece)
        if self.alphabet == LATIN and all(letter <= "\xff" for letter in piece):
            return piece.encode("latin-1")
        text = piece.replace(self._blank, " ").replace("⏎", "\n")
        parts = _BYTES.split(text) if "<0x" in text else (text,)  # texts, and between them bytes
        encoded = (_bytes_of(part) if i % 2 else part.encode("utf-8", "surrogatepass") for i, part in enumerate(parts))
        return b"".join(encoded)


def joins_of_ids(word_ids: Sequence[int | None]) -> list[bool]:
    """Whether each token has the word of the token before it, by the numbers of their words; None: a token of no word."""
    return [each is not None and each == before for each, before in zip(word_ids, [None, *word_ids], strict=False)]


def ids_of_words(tokens: Sequence[str]) -> list[int] | None:
    """The number of the word of each token, counted from 0; None if the tokens do not know it."""
    if not any(isinstance(token, Piece) for token in tokens):
        return None
    return [number - 1 for number in accumulate(not getattr(token, "joins", False) for token in tokens)]


def pieces_of(tokens: Sequence[str], is_alone: Sequence[bool]) -> Sequence[str]:
    """The tokens, each of which knows whether it continues a word: by its tokenizer, otherwise by the marks of these tokens."""
    if any(isinstance(token, Piece) for token in tokens):
        return tokens
    alone = [special or isinstance(token, Patch) for token, special in zip(tokens, is_alone, strict=True)]
    rule = WordRule.of_marks(token for token, apart in zip(tokens, alone, strict=True) if not apart)
    whole_words = [Piece(token, False, rule.meaning) for token in tokens]
    pieces = whole_words if rule.kind == EACH else rule.read(tokens, alone)
    return [token if apart else piece for token, piece, apart in zip(tokens, pieces, alone, strict=True)]


def join_pieces(pieces: Sequence[str]) -> str:
    """The text of a word: its pieces without marks; byte pieces that form a character become that character."""
    word = "".join(piece.removeprefix("##") if i else piece for i, piece in enumerate(pieces))
    return _BYTES.sub(lambda match: _show_bytes(_bytes_of(match[0])), word)


def _bytes_of(shown: str) -> bytes:
    return bytes.fromhex(shown.replace("<0x", "").replace(">", ""))


def _show_bytes(text: bytes) -> str:
    """The characters of UTF-8; bytes that are no character as <0xE6>."""
    decoded = text.decode("utf-8", "surrogateescape")
    return "".join(f"<0x{ord(c) - 0xDC00:02X}>" if "\udc80" <= c <= "\udcff" else c for c in decoded)


def _inside(pattern: regex.Pattern[str], parts: Sequence[bytes]) -> list[bool]:
    """Whether each part of a text begins inside of a match."""
    text = b"".join(parts).decode("utf-8", "surrogateescape")
    sizes = (1 if character < "\x80" else len(character.encode("utf-8", "surrogateescape")) for character in text)
    starts = [0, *accumulate(sizes)]
    match_of = [-1] * (starts[-1] + 1)  # the first byte of the match of each byte
    for match in pattern.finditer(text):
        first, last = starts[match.start()], starts[match.end()]
        match_of[first:last] = [first] * (last - first)
    return [-1 < match_of[start] < start for start, _ in zip([0, *accumulate(map(len, parts))], parts, strict=False)]


@cache
def _byte_of_letter() -> dict[str, int]:
    """The byte of each letter in GPT-2's vocabulary (the inverse of `bytes_to_unicode`).

    Source: Radford et al. 2019, GPT-2, `bytes_to_unicode`: printable bytes map to themselves, the others to letters from 256 on.
    """
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    unprintable = [byte for byte in range(256) if byte not in plain]
    return {chr(byte): byte for byte in plain} | {chr(256 + i): byte for i, byte in enumerate(unprintable)}
