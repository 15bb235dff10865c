"""Worked examples as their authors print them, from the pasted text to the digits they show."""

import json
from pathlib import Path

import numpy as np
import pytest

from attention import AttentionConfig, Matrices, MatrixError
from attention.sources.reading.text import look, parse, write

PUBLISHED = json.loads((Path(__file__).parent / "data" / "published.json").read_text(encoding="utf-8"))


def read(piece):
    """The matrix of one pasted piece, as a page takes it: it is written the short way and read again."""
    picked = parse("\n".join(piece["text"]), pick=piece.get("pick"))
    assert parse(write(picked)) == picked
    return picked


@pytest.mark.parametrize("example", PUBLISHED, ids=[example["source"] for example in PUBLISHED])
def test_published_example_gives_the_published_digits(example):
    given = {name: read(piece) for name, piece in example["given"].items()}
    layer = Matrices(**given, config=AttentionConfig(**example["config"])).trace().layers[0]
    assert example["printed"]
    for step, piece in example["printed"].items():
        ours = given["query"] if step == "input_as_read" else layer.matrix(step)
        np.testing.assert_allclose(ours, read(piece), rtol=3e-7, atol=example["atol"], err_msg=step)


@pytest.mark.parametrize("example", PUBLISHED, ids=[example["source"] for example in PUBLISHED])
def test_ambiguous_published_text_is_asked_about_not_guessed(example):
    for piece in (*example["given"].values(), *example["printed"].values()):
        text = "\n".join(piece["text"])
        reading = look(text)
        assert bool(reading.question) == ("pick" in piece)
        if reading.question:
            with pytest.raises(MatrixError, match="needs an answer to “Which"):
                parse(text)
