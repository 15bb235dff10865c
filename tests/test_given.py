"""Matrices that are carried over from another source, or made to fit each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from attention import NOTEBOOKS, AttentionConfig, AttentionError, Layer, Matrices, Notebook, Trace, TypedText, WhatIf
from attention.formula.formula import Formula
from attention.sources.cutting import SYMBOLS
from attention.sources.given import Carried, carried, fitted, said
from attention.sources.reading.text import look, parse, write

CARRIED_STEPS = ("query", "key", "value", "scores", "scaled_scores", "masked_scores", "weights", "head_output")


def shown_again(found: Carried) -> Matrices:
    """The source that a page makes of it: the matrices as texts, the labels as one."""
    given = {name: parse(write(matrix), SYMBOLS[name]) for name, matrix in found.matrices.items()}
    knobs = dict(found.knobs)
    tokens, divisor = tuple(knobs.pop("labels").split()), knobs.pop("divisor")
    return Matrices(**given, tokens=tokens, config=AttentionConfig(**knobs), divisor=divisor)


def assert_same(before: Layer, after: Layer, rounding: float) -> None:
    assert after.n_heads == before.n_heads
    steps = [step.name for step in before.steps]
    for step in CARRIED_STEPS:
        if not before.has(step) or not after.has(step):
            continue
        for head in range(before.n_heads):
            turned = f"rotated_{step}" if f"rotated_{step}" in steps else step
            ours, theirs = after.matrix(step, head).numpy(), before.matrix(turned, head).numpy()
            np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=rounding, err_msg=step)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_continues_with_all_heads_to_the_same_digits(name: str) -> None:
    for sequence in range(Notebook(name).n_sequences):
        trace = Notebook(name, sequence).trace()
        before = trace.layers[0]
        # The notebook rounds its queries to single precision, here they are kept as they are.
        rounding = 2e-6 * max(1.0, float(before["scores"].abs().max()))
        found = carried(trace, 0)
        assert found is not None
        made = shown_again(found).trace()
        assert [token.replace(" ", "_") for token in trace.tokens] == list(made.tokens)
        there = before.without() if before.has("weights") else before.without("value")
        assert_same(there, made.layers[0], rounding)


def test_continuing_reports_what_does_not_carry_over() -> None:
    unscaled = carried(Notebook("heatmaps-unscaled").trace(), 0)
    assert unscaled is not None
    assert unscaled.knobs["scaled"] is False
    assert "no softmax" in unscaled.lost[0]
    for name in ("multi-head", "averaging-trick", "self-attention-class"):
        found = carried(Notebook(name).trace(), 0)
        assert found is not None
        assert found.lost == ()
    assert carried(Trace(("a",), (Layer(recorded={"weights": torch.ones(1, 1, 1)}),)), 0) is None


def test_overridden_notebook_continues_with_its_overrides() -> None:
    trace = Notebook("multi-head", 0, WhatIf(mask="window", window=1, temperature=0.5, scaled=False)).trace()
    found = carried(trace, 0)
    assert found is not None
    knobs = {name: found.knobs[name] for name in ("mask", "window", "temperature", "scaled", "divisor")}
    assert knobs == {"mask": "window", "window": 1, "temperature": 0.5, "scaled": False, "divisor": None}
    assert_same(trace.layers[0], shown_again(found).trace().layers[0], 4e-6)


@pytest.mark.parametrize(
    "knobs",
    [
        {"mask": "window", "window": 1},
        {"n_kv_heads": 1, "positions": "rope", "cap": 2.0, "share": "softmax1"},
        {"n_kv_heads": 2, "positions": "alibi", "mask": "causal"},
        {"score": "cosine", "temperature": 0.5},
    ],
)
def test_several_heads_keep_their_output_and_their_normalizer(knobs: dict[str, Any]) -> None:
    trace = TypedText("a b c d", AttentionConfig(d_model=8, n_heads=4, **knobs)).trace()
    found = carried(trace, 0)
    assert found is not None
    assert bool(found.lost) == ("positions" in knobs and knobs["positions"] == "rope")
    after = shown_again(found).trace().layers[0]
    assert_same(trace.layers[0], after, 4e-6)
    np.testing.assert_allclose(after["output"].numpy(), trace.layers[0]["output"].numpy(), atol=4e-6)


def test_padding_and_a_custom_divisor_carry_over() -> None:
    padded = TypedText(
        "a b c d\na b", AttentionConfig(d_model=4, n_heads=1, mask="causal"), sequence=1, pad=True
    ).trace()
    found = carried(padded, 0)
    assert found is not None
    assert found.knobs["mask"] == "custom"
    assert torch.equal(shown_again(found).trace().layers[0]["mask"], padded.layers[0]["mask"])
    layer = padded.layers[0]
    other = replace(layer, formula=replace(layer.formula or Formula(), divisor=3.0))
    found = carried(replace(padded, layers=(other,)), 0)
    assert found is not None
    assert (found.knobs["divisor"], found.knobs["scaled"]) == (3.0, True)
    assert_same(other, shown_again(found).trace().layers[0], 4e-6)


def test_matrix_per_head_is_written_compactly_and_read_back() -> None:
    stack = (((1.0, 0.5), (0.0, 1.0)), ((2.0, 0.0), (0.0, 2.0)))
    assert write(stack) == "2 heads: 1,0.5;0,1 / 2,0;0,2"
    assert parse(write(stack), "W_Q") == stack
    assert said({"w_q": stack}).replace("\xa0", " ") == "W_Q 2 × 2 × 2"
    assert fitted({"x": X, "w_q": stack}) == {"x": X, "w_q": stack}


def test_ambiguous_head_stack_is_asked_about_not_guessed() -> None:
    text = "Q = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]"
    reading = look(text, "Q")
    assert reading.question == "Are these 2 matrices, 2 × 2 × 2, the heads, or a batch, of which one is meant?"
    assert list(reading.choices) == ["Q, 2 heads", "Q[0]", "Q[1]"]
    heads = reading.chosen("Q, 2 heads", "Q")
    assert heads == (((1, 2), (3, 4)), ((5, 6), (7, 8)))
    assert list(look(text, "X").choices) == ["Q[0]", "Q[1]"], "X is one for all heads"
    assert next(iter(look(f"[{text[4:]}, {text[4:]}]", "Q").choices)) == "[0][0]", "a batch of heads is a batch"
    layer = Matrices(query=heads, key=heads, value=heads).trace().layers[0]
    assert layer.shape("weights") == (2, 2, 2)


X = ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
W = ((1.0, 2.0), (3.0, 4.0))


def test_matrices_are_resized_to_fit_x_and_keep_their_numbers() -> None:
    made = fitted({"x": X, "w_q": W, "w_k": ((9.0,),), "w_v": W, "w_o": W})
    assert made["x"] is X
    assert made["w_q"] == ((1, 2), (3, 4), (0, 0))
    assert made["w_k"] == ((9, 0), (0, 0), (0, 0))
    assert made["w_o"] == W
    Matrices(**made).trace()
    assert said(made).replace("\xa0", " ") == "X 2 × 3 · W_Q 3 × 2 · W_K 3 × 2 · W_V 3 × 2 · W_O 2 × 2"


def test_biases_and_x2_are_resized_too() -> None:
    given = {"x": X, "w_q": W, "w_k": W, "w_v": W, "memory": W, "b_q": ((1.0,),), "b_v": W, "bias": W}
    made = fitted(given)
    assert (made["memory"], made["b_q"]) == (((1, 2, 0), (3, 4, 0)), ((1, 0),))
    assert (made["b_v"], made["bias"]) == (W, W)
    assert fitted({"scores": W, "value": X, "w_o": ()}) == {"scores": W, "value": X, "w_o": ()}


def test_matrices_are_resized_to_fit_q() -> None:
    made = fitted({"query": X, "key": W, "value": ((1.0,),), "w_o": ()})
    assert made == {"query": X, "key": ((1, 2, 0), (3, 4, 0)), "value": ((1,), (0,)), "w_o": ()}
    Matrices(**made).trace()


@pytest.mark.parametrize("seed", range(20))
def test_matrices_of_any_size_can_be_resized_to_fit(seed: int) -> None:
    random = np.random.default_rng(seed)
    names = ("x", "w_q", "w_k", "w_v", "w_o") if seed % 2 else ("query", "key", "value", "w_o")
    given = {name: tuple(map(tuple, random.random(random.integers(1, 5, 2)).tolist())) for name in names}
    made = fitted(given)
    Matrices(**made).trace()
    assert fitted(made) == made
    try:
        Matrices(**given).trace()
    except AttentionError:
        assert made != given
    else:
        assert made == given
