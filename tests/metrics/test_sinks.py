"""Attention sinks and their share, against plain torch on the whole matrix."""

from __future__ import annotations

import pytest
import torch
from margins import approx

from attention import AttentionConfig, ConfigError, Layer, Trace, TypedText, metrics

pytestmark = pytest.mark.quick


def trace_of(weights: torch.Tensor) -> Trace:
    tokens = tuple(f"t{i}" for i in range(weights.shape[1]))
    return Trace(tokens, (Layer(tokens=tokens, recorded={"weights": weights}),))


def test_the_first_token_is_a_sink_of_the_head_that_rests_there() -> None:
    """The mean weight of the first token is that of `calculate_sink_rate`, a function of the training of open models (threshold 0.3)."""
    n = 40
    even = torch.ones(n, n).double().tril() / torch.arange(1, n + 1)[:, None]
    resting = 0.2 * even
    resting[:, 0] += 0.8
    weights = torch.stack([even, resting])
    table = metrics.sinks(trace_of(weights))
    means = weights[:, :, 0].mean(dim=1)
    assert table["first_token"].tolist() == approx(means.tolist())
    assert (means > 0.3).tolist() == [False, True]
    assert table["sinks"].tolist() == [(), (0,)]
    assert table["tokens"].tolist() == [(), ("t0",)]
    assert table["share"].tolist() == approx([0, float(means[1])])


def test_a_later_sink_counts_the_queries_that_see_it() -> None:
    n, at = 24, 9
    weights = torch.eye(n).double()
    weights[at + 1 :] = 0
    weights[at + 1 :, at], weights[at + 1 :, 0] = 0.6, 0.4
    layer = Layer(
        tokens=tuple("abcdefghijklmnopqrstuvwx"),
        recorded={"weights": weights[None], "mask": torch.ones(n, n).tril().bool()},
    )
    (row,) = metrics.sinks(Trace(layer.tokens, (layer,))).to_dict("records")
    received = weights.sum(dim=0) / torch.arange(n, 0, -1)
    # Of the last keys, one or two queries would decide.
    expected = [key for key in range(n) if received[key] > 0.3 and 8 * (n - key) >= n]
    assert row["sinks"] == tuple(expected) == (at,)
    assert row["tokens"] == ("j",)
    assert row["share"] == approx(float(weights[:, at].sum()) / n)
    assert metrics.sinks(Trace(layer.tokens, (layer,)), threshold=0.7)["sinks"].tolist() == [()]


def test_every_head_of_a_source_has_a_row_and_its_share_is_that_of_the_matrix() -> None:
    trace = TypedText("a b c d e f g h", AttentionConfig(mask="causal", n_heads=3, d_model=24)).trace()
    table = metrics.sinks(trace, 0.2)
    weights, seen = trace.layers[0].weights.double(), torch.arange(8, 0, -1)
    assert table[["layer", "head"]].values.tolist() == [[0, 0], [0, 1], [0, 2]]
    for head, keys in enumerate(table["sinks"]):
        received = weights[head].sum(dim=0)
        assert keys == tuple((received / seen > 0.2).nonzero()[:, 0].tolist())
        assert table["share"][head] == approx(float(received[list(keys)].sum() / received.sum()))


def test_a_threshold_that_is_no_mean_weight_is_refused() -> None:
    with pytest.raises(ConfigError, match="threshold is a mean weight from 0 to 1; got 30"):
        metrics.sinks(trace_of(torch.eye(3)[None]), 30)
