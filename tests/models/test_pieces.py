"""Readable pieces of three kinds of tokenizers: one per id, for any text."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny_models import SENTENCES, TOKENIZERS, TinyModels

from attention import Model
from attention.models.token_pieces import readable_tokens

ODD = (
    "👨‍👩‍👧 é 🙂",
    "\ufffd\u200b",
    "a<s>b </s>[CLS]",
    "\t\n \r\n",
    "   ",
    "\x00\x7f",
    "ﷺ İ ß",
    "x" * 20_000,
    "🙂" * 5_000,
    "<b>&amp;$x$",
)


@cache
def tokenizer(kind: str) -> Any:
    return TOKENIZERS[kind](SENTENCES)


def pieces(kind: str, text: str) -> tuple[str, ...]:
    return readable_tokens(tokenizer(kind), tokenizer(kind)(text)["input_ids"])


@pytest.mark.parametrize(
    ("kind", "text", "read"),
    [
        ("byte-level", "the owl\n é", ("the", "·owl", "⏎", "·", "<0xC3>", "<0xA9>")),
        ("byte-level", "the<s> owl", ("the", "<s>", "·owl")),
        ("sentence-piece", "owl é", ("·o", "w", "l", "·", "<0xC3>", "<0xA9>")),
        ("sentence-piece", "o<s>w", ("·o", "<s>", "·w")),
        ("word-piece", "the owl 🙂", ("[CLS]", "the", "o", "##w", "##l", "[UNK]", "[SEP]")),
        ("word-piece", "  ", ("[CLS]", "[SEP]")),
    ],
)
def test_pieces_are_read_with_their_blanks_and_bytes(kind: str, text: str, read: tuple[str, ...]) -> None:
    assert pieces(kind, text) == read


@pytest.mark.parametrize("kind", TOKENIZERS)
@settings(max_examples=60)
@given(text=st.sampled_from(ODD) | st.text(max_size=80))
def test_typed_text_has_a_piece_for_every_id(kind: str, text: str) -> None:
    ids = tokenizer(kind)(text)["input_ids"]
    read = readable_tokens(tokenizer(kind), ids)
    assert len(read) == len(ids)
    assert all(read)
    assert not any(mark in piece for piece in read for mark in ("Ġ", "▁", " ", "\n") if mark not in text)


def test_id_without_a_piece_shows_its_number() -> None:
    assert readable_tokens(tokenizer("word-piece"), [2, 10_000]) == ("[CLS]", "<10000>")


@pytest.mark.sample(3)
@pytest.mark.parametrize("text", ODD)
def test_model_reads_odd_texts(tiny: TinyModels, text: str) -> None:
    if text.strip():
        trace = Model(str(tiny("GPT-2")), text).trace()
        assert len(trace.tokens) == trace.layers[0].shape("weights")[1] <= 64
        assert bool(trace.notes) == (len(text) > 1000)
