"""The arithmetic of a difference gives its number, for whatever two states."""

from __future__ import annotations

import pytest
import torch
from margins import approx
from test_explain import plain_value
from test_stated import altered, near, some_cells, traced

from attention import Cell, Layer, Trace
from attention.comparison.comparison import compare, explain_difference


@pytest.mark.parametrize("name", ["default", "causal, sinusoidal", "dropout"])
def test_difference_equals_the_arithmetic_of_its_line(name: str) -> None:
    a = traced(name)
    for step, layer in altered(a.layers[0]):
        b = Trace(a.tokens, (layer,), a.key_tokens)
        for one in (
            one
            for one in (step, "weights", "masked_scores", "output")
            if layer.has(one) and one in {s.name for s in layer.steps}
        ):
            comparison = compare(a, b, one)
            for q, k in some_cells(a.layers[0], one, 0):
                explanation = explain_difference(comparison, Cell(0, one, 0, q, k))
                number_a, number_b = (float(trace.layers[0].matrix(one)[q, k]) for trace in (a, b))
                if explanation is not None:
                    assert [term.value for term in explanation.terms] == [number_b, -number_a]
                    assert near(
                        float(plain_value(explanation.short)), explanation.value, abs(number_a) + abs(number_b)
                    ), explanation
                    assert near(explanation.result, explanation.value, abs(number_a) + abs(number_b)), explanation


@pytest.mark.quick
def test_difference_of_few_digits_is_rounded_like_its_dtype() -> None:
    a, b = (
        Layer("", ("a", "b"), recorded={"scores": torch.tensor([[[1.0, 0.3], [2.0, 7.0]]]).mul(by).bfloat16()})
        for by in (1, 1.07)
    )
    comparison = compare(Trace(("a", "b"), (a,)), Trace(("a", "b"), (b,)), "scores")
    explanation = explain_difference(comparison, Cell(0, "scores", 0, 1, 1))
    assert explanation is not None
    assert explanation.result == approx(explanation.value)
