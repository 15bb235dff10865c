"""Matrices that are carried over from another source, or made to fit each other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attention import NOTEBOOKS, AttentionConfig, AttentionError, Matrices, Notebook, TypedText
from attention.sources.given import Carried, carried, fitted, said
from attention.sources.reading.text import parse, write

CARRIED_STEPS = ("query", "key", "value", "scores", "scaled_scores", "masked_scores", "weights", "head_output")


def shown_again(found: Carried) -> Matrices:
    """The source that a page makes of it: the matrices as texts, the labels as one."""
    given = {name: parse(write(matrix)) for name, matrix in found.matrices.items()}
    knobs = dict(found.knobs)
    return Matrices(**given, tokens=tuple(knobs.pop("labels").split()), config=AttentionConfig(**knobs))


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_continues_to_the_same_digits(name: str) -> None:
    for sequence in range(Notebook(name).n_sequences):
        trace = Notebook(name, sequence).trace()
        before = trace.layers[0]
        # The notebook rounds its queries to single precision, here they are kept as they are.
        rounding = 2e-6 * max(1.0, float(before.scores.abs().max()))  # type: ignore[union-attr]  # all have scores
        for head in range(before.n_heads):
            found = carried(trace, 0, head)
            assert found is not None
            made = shown_again(found).trace()
            after = made.layers[0]
            assert [token.replace(" ", "_") for token in trace.tokens] == list(made.tokens)
            for step in CARRIED_STEPS:
                if getattr(before, step) is None or (before.weights is None and step == "head_output"):
                    continue
                ours, theirs = after.matrix(step, 0).numpy(), before.matrix(step, head).numpy()
                np.testing.assert_allclose(ours, theirs, rtol=2e-6, atol=rounding, err_msg=step)


def test_what_does_not_carry_over_is_said() -> None:
    many = carried(Notebook("multi-head").trace(), 0, 2)
    assert many is not None
    assert many.lost == (
        "One head is carried over, head 2 of 4.",
        "W_O is left out: it mixes the outputs of all heads.",
    )
    assert "w_o" not in many.matrices
    unscaled = carried(Notebook("heatmaps-unscaled").trace(), 0, 0)
    assert unscaled is not None
    assert unscaled.knobs["scaled"] is False
    assert "no softmax" in unscaled.lost[0]
    assert carried(Notebook("self-attention-class").trace(), 0, 0)[2] == ()  # type: ignore[index]  # it is there


def test_one_head_keeps_its_output_projection_and_any_mask() -> None:
    trace = TypedText("a b c d", AttentionConfig(d_model=4, n_heads=1, mask="window", window=1)).trace()
    found = carried(trace, 0, 0)
    assert found is not None
    assert (found.knobs["mask"], found.knobs["window"], found.lost) == ("window", 1, ())
    after = shown_again(found).trace().layers[0]
    np.testing.assert_allclose(after.output.numpy(), trace.layers[0].output.numpy(), atol=2e-6)
    padded = TypedText(
        "a b c d\na b", AttentionConfig(d_model=4, n_heads=1, mask="causal"), sequence=1, pad=True
    ).trace()
    found = carried(padded, 0, 0)
    assert found is not None
    assert found.knobs["mask"] == "custom"
    assert torch.equal(shown_again(found).trace().layers[0].mask, padded.layers[0].mask)


X = ((1.0, 2.0, 3.0), (4.0, 5.0, 6.0))
W = ((1.0, 2.0), (3.0, 4.0))


def test_the_others_are_made_to_fit_x_and_keep_their_numbers() -> None:
    made = fitted({"x": X, "w_q": W, "w_k": ((9.0,),), "w_v": W, "w_o": W})
    assert made["x"] is X
    assert made["w_q"] == ((1, 2), (3, 4), (0, 0))
    assert made["w_k"] == ((9, 0), (0, 0), (0, 0))
    assert made["w_o"] == W
    Matrices(**made).trace()
    assert said(made).replace("\xa0", " ") == "X 2 × 3 · W_Q 3 × 2 · W_K 3 × 2 · W_V 3 × 2 · W_O 2 × 2"


def test_biases_and_x2_are_made_to_fit_too() -> None:
    given = {"x": X, "w_q": W, "w_k": W, "w_v": W, "memory": W, "b_q": ((1.0,),), "b_v": W, "bias": W}
    made = fitted(given)
    assert (made["memory"], made["b_q"]) == (((1, 2, 0), (3, 4, 0)), ((1, 0),))
    assert (made["b_v"], made["bias"]) == (W, W)
    assert fitted({"scores": W, "value": X, "w_o": ()}) == {"scores": W, "value": X, "w_o": ()}


def test_the_others_are_made_to_fit_q() -> None:
    made = fitted({"query": X, "key": W, "value": ((1.0,),), "w_o": ()})
    assert made == {"query": X, "key": ((1, 2, 0), (3, 4, 0)), "value": ((1,), (0,)), "w_o": ()}
    Matrices(**made).trace()


@pytest.mark.parametrize("seed", range(20))
def test_matrices_of_any_size_can_be_made_to_fit_and_fitting_ones_stay(seed: int) -> None:
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
