"""The metrics of heads, on patterns whose numbers are known in closed form."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
import torch
from margins import approx

from attention import AttentionConfig, Layer, Model, Trace, TypedText, metrics
from attention.base import cache
from attention.explanation import derived
from attention.metrics import patterns
from attention.metrics.patterns import Pattern, TokenTexts

pytestmark = pytest.mark.quick

SIZES = (2, 3, 5, 8, 16)


def layer_of(weights: torch.Tensor, tokens: tuple[str, ...] = (), **recorded: torch.Tensor) -> Layer:
    """A layer with only weights, [head query_pos key_pos] or of one head."""
    stack = weights if weights.ndim == 3 else weights[None]
    tokens = tokens or tuple(f"t{i}" for i in range(stack.shape[1]))
    return Layer(tokens=tokens, recorded={"weights": stack.double(), **recorded})


def numbers(layer: Layer) -> dict[str, float]:
    table = metrics.of(Trace(layer.tokens, (layer,)))
    return dict(zip(metrics.all_metrics(), table.values[0, 0].tolist(), strict=True))


def counts(layer: Layer) -> dict[str, int]:
    table = metrics.of(Trace(layer.tokens, (layer,)))
    return dict(zip(metrics.all_metrics(), table.counts[0, 0].tolist(), strict=True))


def causal(n: int) -> torch.Tensor:
    return torch.ones(n, n).double().tril() / torch.arange(1, n + 1)[:, None]


def back(n: int) -> torch.Tensor:
    return torch.eye(n).double()[[0, *range(n - 1)]]


def harmonic(n: int) -> float:
    return math.fsum(1 / k for k in range(1, n + 1))


def near(actual: float, expected: float) -> None:
    assert actual == approx(expected, scale=1)


@pytest.mark.parametrize("n", SIZES)
def test_metrics_match_closed_forms_of_simple_patterns(n: int) -> None:
    even, values = n % 2 == 0, numbers(layer_of(torch.full((n, n), 1 / n, dtype=torch.float64)))
    near(values["entropy"], 1)
    near(values["distance"], (n * n - 1) / (3 * n))
    for name in ("previous", "next", "first token", "self", "largest weight"):
        near(values[name], 1 / n)

    values = numbers(layer_of(causal(n)))  # causal without a mask: no weight lies above the diagonal
    near(values["entropy"], 1)
    near(values["distance"], (n - 1) / 4)
    near(values["previous"], (harmonic(n) - 1) / (n - 1))
    near(values["first token"], (harmonic(n) - 1) / (n - 1))
    near(values["self"], harmonic(n) / n)
    near(values["largest weight"], harmonic(n) / n)
    assert math.isnan(values["next"])

    values = numbers(layer_of(torch.eye(n)))
    assert [values[name] for name in ("entropy", "distance", "previous", "first token", "self", "largest weight")] == [0, 0, 0, 0, 1, 1]  # fmt: skip

    values = numbers(layer_of(back(n)))
    near(values["distance"], (n - 1) / n)
    near(values["first token"], 1 / (n - 1))
    near(values["self"], 1 / n)
    assert (values["entropy"], values["previous"], values["largest weight"]) == (0, 1, 1)

    values = numbers(layer_of(torch.eye(n).flip(0)))
    near(values["distance"], (n * n - n % 2) / (2 * n))
    near(values["previous"], even / (n - 1))
    near(values["first token"], 1 / (n - 1))
    near(values["self"], (not even) / n)


@pytest.mark.parametrize("n", SIZES)
def test_induction_and_duplicate_scores_match_their_definitions_for_repeated_text(n: int) -> None:
    words = tuple(f"w{i}" for i in range(n)) * 2
    layer = layer_of(causal(2 * n), words)
    near(numbers(layer)["induction"], (harmonic(2 * n) - harmonic(n)) / n)
    near(numbers(layer)["duplicate token"], (harmonic(2 * n) - harmonic(n)) / n)
    assert counts(layer)["induction"] == counts(layer)["duplicate token"] == n  # counting all rows would halve it
    perfect = torch.eye(2 * n)
    perfect[n:] = torch.eye(2 * n)[1 : n + 1]
    assert numbers(layer_of(perfect, words))["induction"] == 1


def test_undefined_metric_has_no_value_and_no_queries() -> None:
    """Undefined, not 0: a text without repeated words does not show induction, a causal mask hides the next token."""
    trace = TypedText("a b c d", AttentionConfig(mask="causal")).trace()
    table = metrics.of(trace)
    for name in ("next", "induction", "duplicate token"):
        assert np.isnan(table.column(name)).all()
        assert table.count(name) == (0, 0)
        assert table.rank(name, 0, 0) is None
    assert table.count("entropy") == (3, 3)  # the first query sees one key only
    assert table.count("previous") == (3, 3)
    assert table.count("self") == (4, 4)
    assert np.isnan(
        metrics.of(Trace(("a",), (Layer(tokens=("a",), recorded={"input": torch.ones(1, 2)}),))).values
    ).all()


def test_metrics_skip_blind_rows_and_padding_rows() -> None:
    config = AttentionConfig(mask="custom", cells="", seed=3)
    padded = TypedText("a b c d e f\na b", config, sequence=1, pad=True).trace()
    assert counts(padded.layers[0])["self"] == 2
    hidden = layer_of(torch.tensor([[0.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]]))
    assert counts(hidden)["self"] == 2
    near(numbers(hidden)["self"], 0.5)
    sunk = layer_of(
        torch.tensor([[0.1, 0.3], [0.2, 0.2]], dtype=torch.float64)
    )  # rows that do not sum to 1: a sink has the remaining weight
    near(numbers(sunk)["previous"], 0.2)
    near(numbers(sunk)["distance"], (0.75 + 0.5) / 2)


def test_position_metrics_are_undefined_for_two_texts() -> None:
    layer = TypedText("a b c", AttentionConfig(n_heads=2), text2="x y z a").trace().layers[0]
    query_counts = counts(layer)
    assert [
        query_counts[name] for name in ("distance", "previous", "next", "self", "induction", "duplicate token")
    ] == [0] * 6
    assert [query_counts[name] for name in ("entropy", "first token", "largest weight")] == [3] * 3
    same = TypedText("a b c", AttentionConfig(n_heads=2), text2="a b c").trace().layers[0]
    assert counts(same)["self"] == 0


def test_layers_may_differ_in_tokens_and_heads() -> None:
    traces = [
        TypedText(text, AttentionConfig(n_heads=heads, seed=heads)).trace()
        for heads, text in ((2, "a b c a b c"), (4, "one two"), (1, "x y z"))
    ]
    table = metrics.of(Trace(traces[0].tokens, tuple(trace.layers[0] for trace in traces)))
    assert table.values.shape == table.counts.shape == (3, 4, len(metrics.all_metrics()))
    assert table.n_heads == (2, 4, 1)
    assert table.heads[2] == (1, 0)
    assert len(table.heads) == 7
    for i, trace in enumerate(traces):
        np.testing.assert_array_equal(table.values[i, : table.n_heads[i]], metrics.of(trace).values[0])
    assert np.isnan(table.values[0, 2:]).all()
    assert not table.counts[0, 2:].any()
    order = table.sorted_by("entropy")
    assert [table.rank("entropy", *head) for head in order] == [(i + 1, 7) for i in range(7)]
    assert {head[0] for head in table.sorted_by("induction")[:2]} == {0}  # undefined ones last


def test_uniform_attention_is_the_baseline_of_each_metric() -> None:
    trace = TypedText("a b c a b c", AttentionConfig(mask="causal", n_heads=2)).trace()
    even = metrics.of(TypedText("a b c a b c", AttentionConfig(mask="causal", n_heads=2, temperature=math.inf)).trace())
    known = [i for i, name in enumerate(metrics.all_metrics()) if not name.startswith("norm")]
    assert metrics.of(trace).uniform[0][known] == approx(even.values[0, 0][known], nan=True)


def test_metrics_of_heads_computed_singly_are_equal_and_uncached(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    config = AttentionConfig(mask="causal", n_heads=4, n_kv_heads=2, positions="rope")
    source = TypedText("the owl asked the moon and the moon blinked at the owl", config)
    complete = metrics.of(source.trace())
    monkeypatch.setattr("attention.sources.typed_text._MAX_TOKENS_ALL_HEADS", 4)
    monkeypatch.setattr(patterns, "BLOCK_CELLS", 40)  # a head in several blocks of rows
    layer = source.trace().layers[0]
    assert not layer.materialize_all_heads
    table = metrics.of(Trace(layer.tokens, (layer,)))
    assert table.values == approx(complete.values, nan=True)
    np.testing.assert_array_equal(table.counts, complete.counts)
    heads = [key for key in cache.CACHE.cache if isinstance(key, tuple) and key[0] == layer.uid]
    assert all(key[1] in ("metrics", "reach") or key[1][0].startswith(("rotated", "mask")) for key in heads)


def test_divergence_of_two_heads_matches_its_definition() -> None:
    n = 8
    pair = Trace(
        ("t",), (layer_of(torch.stack([back(n), torch.eye(n), torch.full((n, n), 1 / n, dtype=torch.float64)])),)
    )
    divergences = {(difference[0], difference[1]): difference[2:] for difference in metrics.similar_heads(pair, 0, 0)}
    near(divergences[0, 1][0], (n - 1) / n)
    middle = [(1 + 1 / n) / 2, *[1 / (2 * n)] * (n - 1)]
    near(divergences[0, 2][0], -math.fsum(m * math.log2(m) for m in middle) - math.log2(n) / 2)
    assert divergences[0, 1][1] == n
    assert [difference[:2] for difference in metrics.similar_heads(pair, 0, 1)] == [(0, 2), (0, 0)]
    near(metrics.similar_heads(Trace(("t",), (layer_of(torch.stack([back(n)] * 2)),)), 0, 0)[0][2], 0)


def test_norm_weighted_metric_equals_the_norms_of_the_vectors() -> None:
    """With values of length 1 and an orthogonal W_O it equals the weight; a short value lowers the first token."""
    n, generator = 6, torch.Generator().manual_seed(1)
    weights = torch.rand(1, n, n, generator=generator, dtype=torch.float64).softmax(-1)
    value = torch.nn.functional.normalize(torch.randn(1, n, 4, generator=generator, dtype=torch.float64), dim=-1)
    w_o = torch.eye(4, dtype=torch.float64)[None]
    same = numbers(layer_of(weights, value=value, w_o=w_o))
    near(same["norm-weighted first token"], same["first token"])
    value = value.clone()
    value[0, 0] /= 100
    layer = layer_of(weights, value=value, w_o=w_o)
    vectors = weights[0, :, :, None] * (value[0] @ w_o[0])
    lengths = vectors.norm(dim=-1)
    near(numbers(layer)["norm-weighted first token"], float((lengths[1:, 0] / lengths[1:].sum(-1)).mean()))
    assert numbers(layer)["norm-weighted first token"] < 0.1 * same["first token"]
    assert derived.contribution_lengths(layer.without("w_o")) is None
    assert counts(layer.without("w_o"))["norm-weighted first token"] == 0


def bound(text: str, n_keys: int) -> float:
    """The number of a metric's minimum or maximum, such as "keys − 1"."""
    return float(eval(text.replace("−", "-").replace("∞", "inf"), {"keys": n_keys, "inf": np.inf, "log": np.log}))


def test_every_metric_is_documented_and_within_its_range() -> None:
    text = TypedText("the cat sat, on the cat.", AttentionConfig(seed=2)).trace()
    of_text = metrics.of(text)
    for metric in metrics.all_metrics().values():
        assert all((metric.meaning, metric.formula, metric.averaged_over, metric.paper))
        if metric.of_pictures or not metric.compute:
            continue  # see test_patch_metrics; of the parameters: test_copying
        low, high = (bound(end, len(text.tokens)) for end in (metric.minimum, metric.maximum))
        column = of_text.column(metric.name)
        assert (column >= low).all()
        assert (column <= high).all()


def test_distant_induction_ignores_a_head_of_previous_tokens() -> None:
    words, previous = ("x", "y", "x", "z", "x", "y"), torch.eye(6).roll(1, 0)[None]
    previous[:, 0] = 0
    values, query_counts = numbers(layer_of(previous, words)), counts(layer_of(previous, words))
    # "induction" holds where the earlier x is two positions back; three other queries see a token after an earlier occurrence.
    assert values["induction"] == approx(2 / 3)
    assert values["distant induction"] == 0
    assert query_counts["distant induction"] == 2


def test_punctuation_and_local_weights_are_sums_over_their_cells() -> None:
    words, uniform = ("·Yes", ",", "it", "is", ".", "…", "a."), torch.full((1, 7, 7), 1 / 7)
    values = numbers(layer_of(uniform, words))
    assert values["punctuation"] == approx(3 / 7)
    assert values["local"] == approx((4 + 5 + 6 + 7 + 6 + 5 + 4) / 49)


def pattern_of(weights: torch.Tensor, visible: torch.Tensor, tokens: tuple[str, ...]) -> Pattern:
    """The pattern of some heads [head query_pos key_pos] over one text."""
    n, ids = len(tokens), torch.tensor([tokens.index(token) for token in tokens])
    every = torch.ones(n, dtype=torch.bool)
    return Pattern(
        weights.double(), visible[None], torch.arange(n), (ids, ids), every, False, None, TokenTexts((tokens,))
    )


WORDS = tuple(f"w{random.Random(i).randrange(15)}" for i in range(40))  # words come again at many distances


@pytest.mark.parametrize("is_causal", [False, True])
def test_even_and_positional_heads_are_their_own_null(is_causal: bool) -> None:
    """Weights that depend on distances alone, and on a sink, are what distances alone would give, for any cells."""
    n, generator = len(WORDS), torch.Generator().manual_seed(1)
    visible = torch.ones(n, n, dtype=torch.bool).tril(0 if is_causal else n)
    offsets = torch.arange(n) - torch.arange(n)[:, None]
    bias = torch.stack([torch.zeros(2 * n), torch.randn(2 * n, generator=generator)])
    scores = bias[:, offsets + n]
    scores[:, :, 0] += 3  # the first token is a sink
    pattern = pattern_of(scores.masked_fill(~visible, -math.inf).softmax(-1), visible, WORDS)
    for cells in (torch.rand(n, n, generator=generator) < 0.1, pattern.is_earlier_occurrence, offsets == -2):
        expected = pattern.weight_by_distance(cells)
        assert expected == approx(
            pattern.weight_on(cells), nan=True, within=0.002, why="the mean over distances is estimated"
        )


def test_head_that_matches_words_exceeds_its_distances() -> None:
    """Half of the weight of a head lies on matches, the rest is even; without the match, the even share is left, or little more."""
    n = len(WORDS)
    visible = torch.ones(n, n, dtype=torch.bool)
    matches = pattern_of(torch.full((1, n, n), 1 / n), visible, WORDS).follows_earlier_occurrence.double()
    n_matches = matches.sum(-1, keepdim=True)
    weights = torch.where(n_matches > 0, 0.5 / n + 0.5 * matches / n_matches.clamp_min(1), 1 / n)
    pattern, metric = pattern_of(weights[None], visible, WORDS), metrics.find("induction")
    assert float(metric.compute(pattern).nanmean()) > 0.5
    even = float((n_matches[n_matches > 0] / n).mean())
    assert 0.5 * even < float(metric.under_null(pattern).nanmean()) < 2 * even < 0.2


def test_rule_of_one_distance_is_its_own_null() -> None:
    n = len(WORDS)
    weights = torch.rand(2, n, n, generator=torch.Generator().manual_seed(0)).softmax(-1)
    rule = metrics.FindRule.parse("from any to offset -3").metric
    pattern = pattern_of(weights, torch.ones(n, n, dtype=torch.bool), ("[CLS]", *WORDS[1:]))
    assert rule.under_null(pattern).nanmean(-1).tolist() == approx(rule.compute(pattern).nanmean(-1).tolist())
    one = metrics.FindRule.parse('from "w4" to offset -3').metric  # what other words have at this distance
    assert one.under_null(pattern).nanmean(-1).tolist() == approx([1 / n] * 2, within=0.03, why="drawn at random")


def test_special_token_is_compared_with_words_at_its_distance() -> None:
    weights = torch.full((1, 6, 6), 0.1)
    weights[:, :, 0] = 0.5
    tokens = ("[CLS]", "a", "b", "c", "d", "e")
    rule = metrics.FindRule.parse("from any to special").metric
    for first, null in (("[CLS]", 0.1), ("x", 0.5)):  # a first word is a sink, which keeps its weight
        pattern = pattern_of(weights, torch.ones(6, 6, dtype=torch.bool), (first, *tokens[1:]))
        cells = torch.zeros(6, 6, dtype=torch.bool)
        cells[1:4, 0] = True
        assert pattern.weight_by_distance(cells)[0, 1:4].tolist() == approx([null] * 3)
    assert bool(rule.under_null(pattern).isnan().all())


def test_distances_are_no_null_between_two_texts() -> None:
    layer = TypedText("the cat the", text2="a cat the a").trace().layers[0]
    for _, _, pattern in patterns.iterate_patterns(layer):
        assert bool(pattern.weight_by_distance(torch.ones(1, 1, dtype=torch.bool)).isnan().all())


TEXTS = (
    "The animal didn't cross the street because it was too tired.",
    "The quick brown fox jumps over the lazy dog and the owl asked the moon.",
    "It was the best of times, it was the worst of times, it was the age of wisdom.",
    "The bank raised its rates, so she took her money out of the bank.",
)


@pytest.mark.slow
def test_heads_of_a_real_model_behave_as_published() -> None:
    """All-MiniLM-L6-v2 as measured independently of this program; the norm-weighted metric differs clearly from the weight."""
    tables = [metrics.of(Model("all-MiniLM-L6-v2", text).trace()) for text in TEXTS]
    values = np.mean([table.values for table in tables], axis=0)

    def mean(name: str, layer: int, head: int) -> float:
        return float(values[layer, head, [*metrics.all_metrics()].index(name)])

    assert mean("previous", 0, 2) == approx(1, within=0.001, why="a head of a real model looks almost only there")
    assert 0.61 < mean("next", 1, 8) < 0.77
    assert 0.78 < mean("first token", 4, 5) < 0.88
    assert 0.13 < mean("norm-weighted first token", 4, 5) < 0.23
    assert 0.88 < mean("entropy", 0, 3) < 0.98
    assert 0.06 < mean("duplicate token", 2, 9) < 0.71
    for name, share in (("first token", 0.41), ("norm-weighted first token", 0.06)):
        assert share - 0.02 < np.mean([table.column(name) for table in tables]) < share + 0.02
    for table in tables:
        assert table.sorted_by("previous")[0] == (0, 2)
        assert (4, 5) in table.sorted_by("first token")[:3]
