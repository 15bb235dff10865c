"""Aggregates of heads and the norm-weighted view: their numbers in closed form, and the arithmetic of their cells."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from margins import approx

from attention import AttentionConfig, Cell, Layer, MissingError, ShapeError, Trace, TypedText
from attention.explanation import derived
from attention.explanation.derived import DerivedMap
from attention.metrics import aggregates

pytestmark = pytest.mark.quick

TEXT = "the owl asked the moon and the moon blinked"


def trace(*seeds: int, **knobs: Any) -> Trace:
    """A trace with one layer of typed text per seed."""
    config: dict[str, Any] = {"n_heads": 4, "mask": "causal", **knobs}
    layers = tuple(
        TypedText(TEXT, AttentionConfig(seed=seed, **config)).trace().layers[0] for seed in seeds or (0, 1, 2)
    )
    return Trace(layers[0].tokens, layers)


def stacked(*patterns: torch.Tensor) -> Trace:
    """A trace with a layer of one head for each pattern."""
    tokens = tuple(f"t{i}" for i in range(len(patterns[0])))
    return Trace(
        tokens, tuple(Layer(tokens=tokens, recorded={"weights": pattern[None].double()}) for pattern in patterns)
    )


@pytest.mark.parametrize("n", [2, 5, 8])
@pytest.mark.parametrize("n_layers", [1, 2, 6])
def test_rollout_equals_its_closed_forms(n: int, n_layers: int) -> None:
    rollout = aggregates.find_aggregate("rollout")
    even = torch.full((n, n), 1 / n, dtype=torch.float64)
    result = rollout.matrix(stacked(*[even] * n_layers), n_layers - 1)
    assert result == approx(2.0**-n_layers * torch.eye(n) + (1 - 2.0**-n_layers) * even)
    assert rollout.matrix(stacked(*[torch.eye(n)] * n_layers), n_layers - 1).equal(torch.eye(n).double())
    causal = torch.ones(n, n).double().tril() / torch.arange(1, n + 1)[:, None]
    result = rollout.matrix(stacked(*[causal] * n_layers), n_layers - 1)
    assert result.diag() == approx([((1 + 1 / k) / 2) ** n_layers for k in range(1, n + 1)])
    back = torch.eye(n)[[0, *range(n - 1)]]
    result = rollout.matrix(stacked(*[back] * n_layers), n_layers - 1)
    for row in range(n_layers, n):
        wanted = [math.comb(n_layers, row - at) / 2**n_layers if 0 <= row - at <= n_layers else 0 for at in range(n)]
        assert result[row] == approx(wanted)


def test_mean_and_max_match_heads_and_rollout_rows_are_normalized() -> None:
    sample = trace()
    weights = sample.layers[1].weights
    assert weights is not None
    assert aggregates.find_aggregate("mean").matrix(sample, 1) == approx(weights.mean(dim=0))
    assert aggregates.find_aggregate("max").matrix(sample, 1).equal(weights.amax(dim=0))
    hidden = stacked(torch.tensor([[0.0, 0.0], [0.4, 0.4]]), torch.tensor([[0.5, 0.5], [0.1, 0.2]]))
    for layer in range(2):  # a row that sees no key, and rows that lost weight to a sink
        assert aggregates.find_aggregate("rollout").matrix(hidden, layer).sum(-1) == approx(1)
    assert aggregates.find_aggregate("rollout").matrix(hidden, 0)[0].tolist() == [1, 0]
    assert "every path leads back" in aggregates.find_aggregate("rollout").warning(sample, 0)
    assert aggregates.find_aggregate("rollout").warning(trace(mask="none"), 0) == ""
    with pytest.raises(MissingError, match="an aggregate is one of mean, max, rollout; got 'median'"):
        aggregates.find_aggregate("median")


@pytest.mark.parametrize("reading", [*aggregates.AGGREGATES, derived.NORMS], ids=lambda reading: reading.name)
@pytest.mark.parametrize("n_layers", [1, 3])
def test_aggregate_arithmetic_gives_the_value_of_every_cell(reading: DerivedMap, n_layers: int) -> None:
    sample = trace(*range(n_layers), n_heads=16)
    layer = n_layers - 1
    for row, column in ((0, 0), (5, 2), (8, 8), (1, 7)):
        explanation = reading.explain(sample, Cell(layer, "weights", 3, row, column))
        matrix = reading.matrix(sample, layer, 3)
        assert explanation.value == approx(float(matrix[row, column]), scale=1)
        assert explanation.cell == Cell(layer, reading.name, 3, row, column)
        assert explanation.lines
        assert explanation.short
        if explanation.terms:
            assert explanation.result == approx(explanation.value, scale=1)
    with pytest.raises(MissingError, match=f"query_pos of {reading.name} counts from 0 to 8; got 9"):
        reading.explain(sample, Cell(layer, "weights", 0, 9, 0))


def test_aggregates_refuse_bad_input_in_one_sentence() -> None:
    crossed = TypedText("a b c", text2="x y").trace()
    with pytest.raises(ShapeError, match=r"Rollout follows one text .* choose mean or max, or another layer"):
        aggregates.find_aggregate("rollout").matrix(crossed, 0)
    assert aggregates.find_aggregate("mean").matrix(crossed, 0).shape == (3, 2)
    alone = Trace(crossed.tokens, (crossed.layers[0].without("w_o"),))
    with pytest.raises(MissingError, match="The norm-weighted view needs values and W_O"):
        derived.NORMS.matrix(alone, 0)
    bare = Trace(("a",), (Layer(tokens=("a",), recorded={"input": torch.ones(1, 2)}),))
    with pytest.raises(MissingError, match="mean reads the weights, which this layer does not have"):
        aggregates.find_aggregate("mean").matrix(bare, 0)


def test_rollout_uses_only_layers_of_one_text() -> None:
    """An encoder, a decoder and its cross-attention: each has its own tokens."""
    encoder, decoder = (TypedText(text).trace().layers[0] for text in ("a b c", "x y"))
    crossed = TypedText("x y", text2="a b c").trace().layers[0]
    stack = Trace(encoder.tokens, (encoder, encoder, decoder, crossed, decoder))
    rollout = aggregates.find_aggregate("rollout")
    assert rollout.layers(stack, 1) == (0, 1)
    assert rollout.layers(stack, 4) == (2, 4)
    assert rollout.matrix(stack, 4).shape == (2, 2)


def test_norm_weighted_map_is_the_length_of_each_vector() -> None:
    sample = trace(0, n_heads=4, n_kv_heads=2)
    layer = sample.layers[0]
    weights, value, w_o = layer.weights, layer.value, layer.w_o
    assert weights is not None
    assert value is not None
    assert w_o is not None
    vectors = weights[3][:, :, None] * (value[1] @ w_o[3])[None]
    assert derived.NORMS.matrix(sample, 0, 3) == approx(vectors.norm(dim=-1))
