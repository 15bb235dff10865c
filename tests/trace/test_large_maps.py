"""Maps that are too large to keep: a row, the top keys, block maxima and statistics equal those of the whole matrix."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from conftest import ROOT
from margins import approx

from attention import Layer, MissingError, Model, metrics
from attention.explanation.explanation import explain
from attention.formula.formula import Formula
from attention.formula.mask import Mask
from attention.pictures.downsample import pool_for_screen
from attention.pictures.heatmap import heatmap_json
from attention.trace import layer as layers
from attention.trace.attend import attend
from attention.trace.large_map import BlockMaxima, RowsOnDemand, pool_blocks
from attention.trace.trace import Trace

pytestmark = pytest.mark.quick

MAPS = ("scores", "scaled_scores", "masked_scores", "weights")
T = 600


def layer_of(n: int = T, mask: Mask | None = None, **formula: object) -> Layer:
    """Two query heads that share keys and values, of which one is a sink at key 0."""
    random = torch.Generator().manual_seed(1)
    query, key, value = (torch.randn(heads, n, 8, generator=random) for heads in (2, 1, 1))
    key[0, 0] = 6 * query[1].mean(dim=0)
    tokens = tuple(f"t{i}" for i in range(n))
    rule = Formula(divisor=8**0.5, mask=mask or Mask("causal"), **formula)  # type: ignore[arg-type]
    return replace(attend(query, key, value, formula=rule), tokens=tokens, key_tokens=tokens)


@pytest.fixture
def never_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layers, "MOST_KEPT_CELLS", 0)


def in_rows(layer: Layer) -> Layer:
    return replace(layer, materialize_all_heads=False)


RULES = [
    Mask("causal"),
    Mask("none"),
    Mask("causal window", window=40),
    Mask("window", window=3, window_right=90),
    Mask("causal", query_offset=-5),  # the first queries see no key
    Mask("causal", real=(True,) * (T - 7) + (False,) * 7),
]


@pytest.mark.parametrize("mask", RULES, ids=lambda mask: f"{mask.kind} {mask.query_offset} {bool(mask.real)}")
def test_rows_top_keys_and_maxima_are_those_of_the_whole_matrix(mask: Mask, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = layer_of(mask=mask)
    dense = {name: whole[name].clone() for name in (*MAPS, "head_output")}
    stats = {name: whole.stats(name) for name in MAPS}
    visible, hides, blind = whole.visible_cells(1), whole.hides_keys, whole.n_blind_queries
    monkeypatch.setattr(layers, "MOST_KEPT_CELLS", 0)
    layer = in_rows(whole)
    assert not layer.keeps_maps
    assert torch.equal(torch.cat([layer.mask_rows(slice(i, i + 250)) for i in range(0, T, 250)]), visible)
    assert (layer.hides_keys, layer.n_blind_queries) == (hides, blind)
    assert blind == int((~visible.any(dim=1)).sum())
    for name in MAPS:
        for query in (0, 1, 299, T - 1):
            assert layer.row(1, query, name) == approx(dense[name][1, query], scale=1)
        maxima = layer.block_maxima(1, name)
        matrix = dense[name][1].numpy()
        expected = pool_blocks(matrix, 3, 3)
        assert (maxima.down, maxima.across, maxima.numbers.shape) == (3, 3, (200, 200))
        finite = np.isfinite(expected)
        assert maxima.numbers[finite] == approx(expected[finite])
        assert matrix[maxima.places][finite] == approx(maxima.numbers[finite])
        facts = layer.stats(name)
        assert facts.zero_rows == stats[name].zero_rows
        assert facts.finite_range == approx(stats[name].finite_range)
    assert layer.matrix("head_output", 1) == approx(dense["head_output"][1])
    assert layer.matrix("weights", 0) == approx(dense["weights"][0])


def test_top_keys_are_in_the_order_of_their_weights_and_of_the_text(never_kept: None) -> None:
    layer = in_rows(layer_of(64, temperature=float("inf")))  # equal weights
    top = layer.top(0, 5, 4)
    assert top.keys.tolist() == [0, 1, 2, 3]
    assert top.values.tolist() == approx([1 / 6] * 4)
    layer = layer_of(64)  # as a user makes it
    row = layer.row(1, 63)
    top = layer.top(1, 63, 100)
    assert sorted(top.keys.tolist()) == list(range(64))
    assert top.values.tolist() == sorted(row.tolist(), reverse=True)
    assert torch.equal(top.values, row[top.keys])


def test_what_is_not_there_is_named(never_kept: None) -> None:
    layer = in_rows(layer_of(64))
    with pytest.raises(MissingError, match="rows of weights count from 0 to 63; got 64"):
        layer.row(0, 64)
    with pytest.raises(MissingError, match="heads count from 0 to 1; got 2"):
        layer.top(2, 0, 1)
    with pytest.raises(MissingError, match="block maxima are of a query × key matrix; value is none"):
        layer.block_maxima(0, "value")


def test_joined_maxima_are_those_of_larger_blocks() -> None:
    matrix = np.random.default_rng(0).normal(size=(23, 31)).astype(np.float32)
    matrix[:6, :10] = -np.inf
    fine = BlockMaxima.of(matrix, 2, 3)
    joined, expected = fine.joined(3, 2), pool_blocks(matrix, 6, 6)
    assert (joined.down, joined.across) == (6, 6)
    finite = np.isfinite(expected)
    assert np.array_equal(joined.numbers[finite], expected[finite])
    assert np.array_equal(matrix[joined.places][finite], expected[finite])


@pytest.mark.parametrize("window", [None, [100, 190, 40, 120], [0, 600, 0, 300]])
def test_a_map_that_is_not_kept_is_drawn_as_one_that_is(
    window: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    layer = layer_of()
    kept = pool_for_screen(heatmap_json(Trace(layer.tokens, (layer,)), "weights", head=1), window)
    monkeypatch.setattr(layers, "MOST_KEPT_CELLS", 0)
    trace = Trace(layer.tokens, (in_rows(layer),))
    spec = heatmap_json(trace, "weights", head=1)
    assert isinstance(spec["data"][0]["z"], RowsOnDemand)
    drawn = pool_for_screen(spec, window)
    for ours, theirs in zip(drawn["data"], kept["data"], strict=True):
        assert ours["z"] == approx(theirs["z"], nan=True)
    assert drawn["layout"]["meta"]["blocks"] == kept["layout"]["meta"]["blocks"]
    assert ("overview" in drawn["layout"]["meta"]) == (window is not None)
    if window:
        whole = layer.weights[1].numpy()
        overview = drawn["layout"]["meta"]["overview"]
        assert overview == approx(pool_blocks(whole, 10, 10))
    assert np.asarray(spec["data"][0]["z"]) == approx(layer.weights[1])


def test_a_number_is_explained_from_its_row_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    layer = layer_of()
    expected = explain(Trace(layer.tokens, (layer,)), "weights", head=1, q=500, k=7)
    monkeypatch.setattr(layers, "MOST_KEPT_CELLS", 0)
    trace = Trace(layer.tokens, (in_rows(layer),))

    def refuse(*_: object) -> None:
        raise AssertionError("no whole map is computed")

    monkeypatch.setattr(Layer, "_compute", refuse)
    explained = explain(trace, "weights", head=1, q=500, k=7)
    assert (explained.short, explained.words) == (expected.short, expected.words)


@pytest.mark.long  # a pass of 2,048 tokens through a real model
@pytest.mark.skipif(not (ROOT / "models" / "SmolLM2-135M-Instruct").is_dir(), reason="run make models ALL=1")
def test_rows_of_a_real_model_are_those_of_plain_torch(never_kept: None) -> None:
    trace = Model("SmolLM2-135M-Instruct", " ".join(f"the {word} and" for word in range(500))).trace()
    n = len(trace.tokens)
    assert n == 2048
    for index, head in ((0, 0), (18, 6)):
        layer = trace.layers[index]
        query, key = layer["query"][head].double(), layer["key"][head // 3].double()
        scores = (query @ key.T / 8).masked_fill(torch.ones(n, n).triu(1).bool(), -torch.inf)
        weights = torch.softmax(scores, dim=-1)
        for at in (0, 1000, n - 1):
            assert layer.row(head, at).double() == approx(weights[at])
            top = layer.top(head, at, 5)
            assert top.values.double() == approx(weights[at].sort(descending=True).values[:5])
        maxima = layer.block_maxima(head)
        assert maxima.down == maxima.across == 8
        assert maxima.numbers == approx(pool_blocks(weights.numpy(), 8, 8))
        assert weights.numpy()[maxima.places] == approx(maxima.numbers)
    shares = metrics.sinks(replace(trace, layers=(layer,)))
    assert shares["first_token"][head] == approx(float(weights[:, 0].mean()))
