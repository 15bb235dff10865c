"""Published worked examples, from the pasted text to the printed digits."""

import json
from pathlib import Path

import pytest
from margins import approx

from attention import AttentionConfig, Matrices, MatrixError
from attention.files.matrix_text import format_matrix, parse_matrix, parse_text

pytestmark = pytest.mark.quick

PUBLISHED = json.loads((Path(__file__).with_name("published.json")).read_text(encoding="utf-8"))


def matrix_of(piece):
    """The matrix of a pasted piece, as on a page: parsed, written in short form and parsed again."""
    matrix = parse_matrix("\n".join(piece["text"]), pick=piece.get("pick"))
    assert parse_matrix(format_matrix(matrix)) == matrix
    return matrix


@pytest.mark.parametrize("example", PUBLISHED, ids=[example["source"] for example in PUBLISHED])
def test_published_example_gives_the_published_digits(example):
    matrices = {name: matrix_of(piece) for name, piece in example["given"].items()}
    layer = Matrices(**matrices, config=AttentionConfig(**example["config"])).trace().layers[0]
    assert example["printed"]
    for step, piece in example["printed"].items():
        actual = matrices["query"] if step == "input_as_read" else layer.matrix(step)
        assert actual == approx(matrix_of(piece), step=2 * example["atol"]), step


@pytest.mark.parametrize("example", PUBLISHED, ids=[example["source"] for example in PUBLISHED])
def test_ambiguous_published_text_is_asked_about_not_guessed(example):
    for piece in (*example["given"].values(), *example["printed"].values()):
        text = "\n".join(piece["text"])
        reading = parse_text(text)
        assert bool(reading.question) == ("pick" in piece)
        if reading.question:
            with pytest.raises(MatrixError, match="needs an answer to “Which"):
                parse_matrix(text)
