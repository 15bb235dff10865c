"""Matrices that are carried over from another source, or resized to fit each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from margins import approx

from attention import AttentionConfig, AttentionError, Layer, Matrices, TypedText
from attention.files.matrix_text import format_matrix, parse_matrix, parse_text
from attention.formula.formula import Formula
from attention.sources.matrices import SYMBOLS
from attention.sources.matrix_fields import _LayerAsMatrices, describe_sizes, matrices_of_layer, resize_to_fit

pytestmark = pytest.mark.quick

CARRIED_STEPS = ("query", "key", "value", "scores", "scaled_scores", "masked_scores", "weights", "head_output")


def continued(carried_over: _LayerAsMatrices) -> Matrices:
    """The source that a page creates from carried matrices: written as texts and parsed again."""
    fields = {
        name: parse_matrix(format_matrix(matrix), SYMBOLS[name]) for name, matrix in carried_over.matrices.items()
    }
    knobs = dict(carried_over.knobs)
    tokens, divisor = tuple(knobs.pop("labels").split()), knobs.pop("divisor")
    return Matrices(**fields, tokens=tokens, config=AttentionConfig(**knobs), divisor=divisor)


def assert_same(original: Layer, copy: Layer) -> None:
    scale = max(1.0, float(original["scores"].abs().max()))  # of which weights have the error
    assert copy.n_heads == original.n_heads
    steps = [step.name for step in original.steps]
    for step in CARRIED_STEPS:
        if not original.has(step) or not copy.has(step):
            continue
        for head in range(original.n_heads):
            name = f"rotated_{step}" if f"rotated_{step}" in steps else step
            actual, expected = copy.matrix(step, head).numpy(), original.matrix(name, head).numpy()
            assert actual == approx(expected, scale=scale, dtype="float32"), step


@pytest.mark.parametrize(
    "knobs",
    [
        {"mask": "window", "window": 1},
        {"n_kv_heads": 1, "positions": "rope", "cap": 2.0, "normalizer": "softmax1"},
        {"n_kv_heads": 2, "positions": "alibi", "mask": "causal"},
        {"score": "cosine", "temperature": 0.5},
    ],
)
def test_several_heads_keep_their_output_and_their_normalizer(knobs: dict[str, Any]) -> None:
    trace = TypedText("a b c d", AttentionConfig(d_model=8, n_heads=4, **knobs)).trace()
    carried_over = matrices_of_layer(trace.layers[0])
    assert carried_over is not None
    assert bool(carried_over.omissions) == ("positions" in knobs and knobs["positions"] == "rope")
    copy = continued(carried_over).trace().layers[0]
    assert_same(trace.layers[0], copy)
    assert copy["output"].numpy() == approx(trace.layers[0]["output"].numpy())


def test_padding_and_a_custom_divisor_carry_over() -> None:
    padded = TypedText(
        "a b c d\na b", AttentionConfig(d_model=4, n_heads=1, mask="causal"), sequence=1, pad=True
    ).trace()
    carried_over = matrices_of_layer(padded.layers[0])
    assert carried_over is not None
    assert carried_over.knobs["mask"] == "custom"
    assert torch.equal(continued(carried_over).trace().layers[0]["mask"], padded.layers[0]["mask"])
    layer = padded.layers[0]
    other = replace(layer, formula=replace(layer.formula or Formula(), divisor=3.0))
    carried_over = matrices_of_layer(other)
    assert carried_over is not None
    assert (carried_over.knobs["divisor"], carried_over.knobs["scaled"]) == (3.0, True)
    assert_same(other, continued(carried_over).trace().layers[0])


def test_matrix_per_head_is_written_compactly_and_read_back() -> None:
    stack = (((1.0, 0.5), (0.0, 1.0)), ((2.0, 0.0), (0.0, 2.0)))
    assert format_matrix(stack) == "2 heads: 1,0.5;0,1 / 2,0;0,2"
    assert parse_matrix(format_matrix(stack), "W_Q") == stack
    assert describe_sizes({"w_q": stack}).replace("\xa0", " ") == "W_Q 2 × 2 × 2"
    assert resize_to_fit({"x": X, "w_q": stack}) == {"x": X, "w_q": stack}


def test_ambiguous_head_stack_is_asked_about_not_guessed() -> None:
    text = "Q = [[[1, 2], [3, 4]], [[5, 6], [7, 8]]]"
    reading = parse_text(text, "Q")
    assert reading.question == "Are these 2 matrices (2 × 2 × 2) the heads, or is one of them meant?"
    assert list(reading.choices) == ["Q, 2 heads", "Q[0]", "Q[1]"]
    heads = reading.choose("Q, 2 heads", "Q")
    assert heads == (((1, 2), (3, 4)), ((5, 6), (7, 8)))
    assert list(parse_text(text, "X").choices) == ["Q[0]", "Q[1]"], "all heads share one X"
    assert next(iter(parse_text(f"[{text[4:]}, {text[4:]}]", "Q").choices)) == "[0][0]", "a batch of heads is a batch"
    layer = Matrices(query=heads, key=heads, value=heads).trace().layers[0]
    assert layer.shape("weights") == (2, 2, 2)


X = ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
W = ((1.0, 2.0), (3.0, 4.0))


def test_matrices_are_resized_to_fit_x_and_keep_their_numbers() -> None:
    resized = resize_to_fit({"x": X, "w_q": W, "w_k": ((9.0,),), "w_v": W, "w_o": W})
    assert resized["x"] is X
    assert resized["w_q"] == ((1, 2), (3, 4), (0, 0))
    assert resized["w_k"] == ((9, 0), (0, 0), (0, 0))
    assert resized["w_o"] == W
    Matrices(**resized).trace()
    assert describe_sizes(resized).replace("\xa0", " ") == "X 2 × 3 · W_Q 3 × 2 · W_K 3 × 2 · W_V 3 × 2 · W_O 2 × 2"


def test_biases_and_x2_are_resized_too() -> None:
    fields = {"x": X, "w_q": W, "w_k": W, "w_v": W, "memory": W, "b_q": ((1.0,),), "b_v": W, "bias": W}
    resized = resize_to_fit(fields)
    assert (resized["memory"], resized["b_q"]) == (((1, 2, 0), (3, 4, 0)), ((1, 0),))
    assert (resized["b_v"], resized["bias"]) == (W, W)
    assert resize_to_fit({"scores": W, "value": X, "w_o": ()}) == {"scores": W, "value": X, "w_o": ()}


def test_matrices_are_resized_to_fit_q() -> None:
    resized = resize_to_fit({"query": X, "key": W, "value": ((1.0,),), "w_o": ()})
    assert resized == {"query": X, "key": ((1, 2, 0), (3, 4, 0)), "value": ((1,), (0,)), "w_o": ()}
    Matrices(**resized).trace()


@pytest.mark.parametrize("seed", range(20))
def test_matrices_of_any_size_can_be_resized_to_fit(seed: int) -> None:
    random = np.random.default_rng(seed)
    names = ("x", "w_q", "w_k", "w_v", "w_o") if seed % 2 else ("query", "key", "value", "w_o")
    fields = {name: tuple(map(tuple, random.random(random.integers(1, 5, 2)).tolist())) for name in names}
    resized = resize_to_fit(fields)
    Matrices(**resized).trace()
    assert resize_to_fit(resized) == resized
    try:
        Matrices(**fields).trace()
    except AttentionError:
        assert resized != fields
    else:
        assert resized == fields
