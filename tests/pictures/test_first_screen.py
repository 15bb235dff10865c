"""The first screen has the numbers of `explain` and of the layer, for every source and formula, whole or in blocks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import examples_of
from margins import approx

from attention import AttentionConfig, Cell, Source, Trace, TypedText, explain
from attention.base.tokens import Generated, Patch, Piece
from attention.pictures.first_screen import _FEW, About, _term_steps, first_screen
from attention.pictures.message_contract import Screen
from attention.sources.matrices import Matrices

pytestmark = pytest.mark.quick

TEXT = "the owl asked the moon and the moon blinked"
LONG = " ".join(f"w{i}" for i in range(150))


def typed(text: str = TEXT, **config: object) -> TypedText:
    return TypedText(text, AttentionConfig(**config))


SOURCES: dict[str, Source] = {
    "plain": typed(),
    "causal": typed(mask="causal", temperature=0.5),
    "two texts": TypedText(TEXT, text2="a second text"),
    "rope": typed(positions="rope"),
    "grouped": typed(n_kv_heads=2),
    "cosine": typed(score="cosine"),
    "additive": typed(score="additive", cap=2.0),
    "sigmoid": typed(normalizer="sigmoid", mask="window"),
    "unscaled": typed(scaled=False),
    "alibi": typed(positions="alibi"),
    "one token": typed("owl"),
    "long": typed(LONG, mask="causal"),
    **examples_of("tutorials"),
}


def screens(trace: Trace) -> tuple[Cell, Screen]:
    layer = trace.layers[0]
    cell = Cell(0, "weights", layer.n_heads - 1, len(layer.tokens) // 2, 0)
    key = len(layer.key_tokens) // 3
    return cell, first_screen(trace, cell, (cell.row, key), About("here"))


@pytest.mark.parametrize("name", SOURCES)
def test_every_term_says_what_explain_says(name: str) -> None:
    trace = SOURCES[name].trace()
    cell, screen = screens(trace)
    layer = trace.layers[0]
    assert {term["name"]: term["step"] for term in screen["terms"]} == _term_steps(layer)
    for term in screen["terms"]:
        column = screen["column"] if term["name"] == "collect" else screen["k"]
        explanation = explain(trace, term["step"], 0, cell.head, screen["q"], column)
        assert (term["shown"], term["sign"], term["short"]) == (
            explanation.displayed_value,
            explanation.sign,
            explanation.short,
        )
        matrix = layer.matrix(term["step"], cell.head).numpy()
        finite = np.where(np.isfinite(matrix), matrix, np.nan)
        sent, whole = (term["row"], finite[screen["q"]]) if "block" in term else (term["z"], finite)
        np.testing.assert_array_equal(sent, whole)
        assert term["limit"] >= np.nanmax(np.abs(finite)) or term["name"] != "share"


@pytest.mark.parametrize("name", SOURCES)
def test_vectors_give_the_score_of_the_pair(name: str) -> None:
    trace = SOURCES[name].trace()
    cell, screen = screens(trace)
    if screen["score"] != "dot" or "query" not in screen["vectors"]:
        pytest.skip("no product of two vectors")
    places = {"query": screen["q"], "key": screen["k"]}
    pair = []
    for vector, position in places.items():
        sent = screen["vectors"][vector]
        pair.append(sent["rows"][sent["at"].index(position) if "strip" in sent else position])
    score = trace.layers[0].matrix("scores", cell.head)[screen["q"], screen["k"]]
    assert float(np.dot(*(each.astype(np.float64) for each in pair))) == approx(float(score))


def test_a_mask_is_sent_with_why_it_hides() -> None:
    trace = typed(mask="causal").trace()
    screen = first_screen(trace, Cell(0, "weights", 0, 2, 5), (2, 5), About("here"))
    np.testing.assert_array_equal(screen["hidden"], ~np.tri(9, dtype=bool))
    assert screen["hides"] == "the causal mask: key 5 comes after query 2"
    assert first_screen(trace, Cell(0, "weights", 0, 5, 2), (5, 2), About("here"))["hides"] == ""


def test_a_cell_of_the_keys_keeps_the_chosen_query() -> None:
    screen = first_screen(typed().trace(), Cell(0, "key", 0, 3, 5), (6, 3), About("here"))
    assert (screen["q"], screen["k"], screen["step"]) == (6, 3, "key")


def test_many_tokens_are_blocks_whose_numbers_are_in_the_matrix() -> None:
    trace = typed(LONG, mask="causal").trace()
    _, screen = screens(trace)
    assert len(screen["queries"]) > _FEW
    assert screen["hidden"] is None
    for term in screen["terms"]:
        matrix, (down, across) = trace.layers[0].matrix(term["step"], 3).numpy(), term["block"]
        for row, column in ((0, 0), (3, 2), (len(term["z"]) - 1, 1)):
            place = int(term["offsets"][row, column])
            number = matrix[row * down + place // across, column * across + place % across]
            shown = term["z"][row, column]
            assert shown == number or (np.isnan(shown) and not np.isfinite(number))
    weights = trace.layers[0].matrix("weights", 3)[screen["q"]]
    assert set(weights.topk(4).indices.tolist()) <= set(screen["vectors"]["value"]["at"])


def test_of_many_tokens_the_page_is_sent_no_matrix_that_it_computes() -> None:
    trace = typed(LONG, mask="causal").trace()
    screens_of = [
        first_screen(trace, Cell(0, "weights", 3, 75, 50), (75, 50), About("here"), computable=steps)
        for steps in ((), ("scores", "weights"))
    ]
    for whole, term in zip(*(screen["terms"] for screen in screens_of), strict=True):
        computed = term["step"] in ("scores", "weights")
        assert term.keys() == (whole.keys() - {"limit", "z", "offsets", "row"} if computed else whole.keys())
        assert all(term[key] == whole[key] for key in ("name", "shown", "sign", "short", "block"))


def test_a_source_without_queries_has_the_terms_that_it_has() -> None:
    trace = Matrices(scores=((8.0, 2.0), (4.0, 0.0)), value=((1.0,), (2.0,))).trace()
    screen = first_screen(trace, Cell(0, "weights", 0, 1, 0), (1, 0), About("here"))
    assert {term["name"] for term in screen["terms"]} >= {"match", "share", "collect"}
    assert screen["vectors"].keys() == {"value"}


def test_words_are_said_without_the_mark_of_their_blank() -> None:
    tokens = (Piece("·the"), Piece("·"), Generated("·end"), Patch(0, 3, 7, (0, 0, 1, 1)))
    trace = typed("a b c d").trace()
    layer = replace(trace.layers[0], tokens=tokens, key_tokens=tokens)
    screen = first_screen(
        replace(trace, layers=(layer,), tokens=tokens), Cell(0, "weights", 0, 0, 0), (0, 0), About("here")
    )
    assert screen["queries"] == ["the", "·", "▸·end", "patch 3,7"]
    assert screen["keys"] == []
