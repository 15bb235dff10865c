"""Texts that take long to read: their cost is known before, and what was read of them once is the same as they are."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch

from attention.base.errors import FileError
from attention.files.matrix import ParsedText
from attention.files.matrix_text import _parse_head, _parse_own, format_matrix, parse_text, read_file, reading_cost
from attention.files.reading_cost import of_text
from attention.sources import file as source

SIDE = 130  # so that the weights are a map, not a description
WEIGHTS = np.full((2, SIDE, SIDE), 1 / SIDE)
TOKENS = [f"t{index}" for index in range(SIDE)]
TEXTS = {
    "x.csv": "\n".join(",".join(map(str, row)) for row in WEIGHTS[0]),
    "x.json": json.dumps({"tokens": TOKENS, "layers": [{"weights": WEIGHTS.tolist()}, {"weights": WEIGHTS.tolist()}]}),
    "y.json": json.dumps({"tokens": TOKENS, "weights": WEIGHTS.tolist(), "uneven": [[1, 2], [3]]}),
}


@pytest.mark.parametrize("name", TEXTS)
def test_parsed_file_has_the_trace_of_its_text(name: str) -> None:
    content = TEXTS[name].encode()
    arguments = content, name, 2**30, 4096, False
    text, parsed = source.parsed_file(*arguments, True), source.parsed_file(*arguments, False)
    assert (text.content, parsed.content) == (content, b"")
    assert text == parsed
    parsed = pickle.loads(pickle.dumps(parsed))  # as it comes from a process
    assert parsed.nbytes == sum(entry.nbytes for entry in text._archive().arrays.values())
    ours, theirs = parsed.trace(), text.trace()
    assert (ours.tokens, ours.notes, len(ours.layers)) == (theirs.tokens, theirs.notes, len(theirs.layers))
    for layer, other in zip(ours.layers, theirs.layers, strict=True):
        assert torch.equal(layer.weights, other.weights)
    assert len(pickle.dumps(parsed)) < parsed.nbytes + 20_000, "its lists of numbers have gone"


def test_what_cannot_be_used_is_refused_before_it_is_kept() -> None:
    with pytest.raises(FileError, match="would take"):
        source.parsed_file(TEXTS["x.csv"].encode(), "x.csv", 2**10, 4096, False, False)


def test_cost_is_that_of_numbers_not_of_bytes() -> None:
    few, many = b"0." + b"1" * 10_000, b"1," * 200_000
    assert of_text(few).is_light
    assert not of_text(many).is_light
    assert not reading_cost(many, "x.csv").is_light
    assert not of_text(b"x" * 2**23).is_light, "words are more work than digits"
    assert source.reading_cost("x.npz", many).is_light, "arrays are read where they lie"
    assert not source.reading_cost("x.json", many).is_light


@pytest.mark.parametrize("text", ["1,0;0,1", "1;2;3", "1.5,-2e-7;3,1e22", "0.1234,0.5678;0.9101,0.1121"])
def test_own_form_of_a_matrix_is_read_as_any_other(text: str) -> None:
    own = _parse_own(text, "X")
    assert own is not None
    assert own.choices == _parse_head(text, "X").choices
    assert format_matrix(own.choose(None, "X")) == text


@pytest.mark.parametrize("text", ["1,2;3", "1,,2;3,4", "1,5", "a;b", "1;2;", "2 heads: 1;2 / 3;4"])
def test_other_texts_are_no_own_form(text: str) -> None:
    assert _parse_own(text, "X") is None


def test_file_of_a_matrix_becomes_its_own_form() -> None:
    text, reading = read_file(b"0.5,1.0\n2,1e-9\n", "x.csv", "X")
    assert (text, type(reading)) == ("0.5,1;2,1e-9", ParsedText)
    assert parse_text(text, "X").choices == reading.choices
    ambiguous, reading = read_file(b"0,1\n0.5,0.25\n", "x.csv", "X")
    assert reading.question
    assert ambiguous == "0,1\n0.5,0.25\n"
