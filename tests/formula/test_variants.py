"""Variants of positions, scores, caps and normalisations give the numbers of PyTorch and transformers."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from contract import variants
from hypothesis import given, settings
from hypothesis import strategies as st
from margins import approx

from attention import AttentionConfig, Cell, ConfigError, Layer, ShapeError, Trace, TypedText, explain
from attention.base.knobs import knobs_of
from attention.formula.formula import Formula
from attention.formula.functions import cap_scores
from attention.formula.mask import Mask
from attention.formula.normalizers import NORMALIZERS
from attention.formula.positions import POSITIONS, rotate
from attention.formula.scores import BUCKETS, SCORES, bucket, slopes
from attention.trace.attend import attend

pytestmark = pytest.mark.quick

CAT = "the cat sat on the mat"
VARIANTS = variants()


def rand(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# -- the same numbers as others -------------------------------------------------------------------


@pytest.mark.parametrize("kv_heads", [1, 2, 4])
def test_grouped_query_heads_equal_torch(kv_heads: int) -> None:
    query, key, value = rand(4, 5, 8), rand(kv_heads, 7, 8, seed=1), rand(kv_heads, 7, 6, seed=2)
    expected = F.scaled_dot_product_attention(query[None], key[None], value[None], enable_gqa=True)[0]
    layer = attend(query, key, value)
    assert layer["head_output"] == approx(expected)
    assert layer.shape("key") == (kv_heads, 7, 8)
    for head in range(4):
        assert torch.equal(layer.matrix("key", head), key[head // (4 // kv_heads)])


def test_additive_bias_equals_torchs_float_mask() -> None:
    query, key, value, bias = rand(2, 5, 8), rand(2, 7, 8, seed=1), rand(2, 7, 6, seed=2), rand(2, 5, 7, seed=3)
    layer = attend(query, key, value, formula=Formula(divisor=math.sqrt(8), bias="given")).with_tensors(bias=bias)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=bias)
    assert layer["head_output"] == approx(expected)
    assert layer["biased_scores"] == approx(layer["scaled_scores"] + bias)


def test_rope_multiplies_by_powers_of_i() -> None:
    rows = rand(2, 9, 8)
    pairs = torch.complex(rows[..., :4], rows[..., 4:])
    theta = 10_000 ** (-torch.arange(4, dtype=torch.float64) * 2 / 8)
    expected = pairs * torch.polar(
        torch.ones(9, 4, dtype=torch.float64), torch.arange(9.0, dtype=torch.float64)[:, None] * theta
    )
    assert rotate(rows, 10_000.0) == approx(torch.cat([expected.real, expected.imag], dim=-1))


@pytest.mark.parametrize("n_heads", [1, 2, 4, 8, 16])
def test_alibi_slopes_match_the_paper(n_heads: int) -> None:
    assert slopes(n_heads).tolist() == [2 ** (-8 * (head + 1) / n_heads) for head in range(n_heads)]


def test_alibi_slopes_of_other_head_counts_take_every_second_one() -> None:
    assert slopes(6).tolist() == [*slopes(4).tolist(), *slopes(8)[::2][:2].tolist()]
    assert slopes(12).tolist() == [*slopes(8).tolist(), *slopes(16)[::2][:4].tolist()]


def test_t5_buckets_separate_near_distances_and_share_far_ones() -> None:
    groups = bucket(torch.arange(-300, 301)).tolist()
    assert groups[300] == 0
    assert groups[292:300] == [8, 7, 6, 5, 4, 3, 2, 1]  # 8 … 1 keys before the query
    assert groups[301:308] == [17, 18, 19, 20, 21, 22, 23]
    assert set(groups) == set(range(BUCKETS)) - {16}
    assert groups[0] == groups[300 - 128] == 15


def test_score_cap_is_a_scaled_tanh() -> None:
    scores = rand(2, 3, 4) * 40
    assert cap_scores(scores, 30.0) == approx(torch.tanh(scores / 30.0) * 30.0)
    assert cap_scores(scores, 30.0).abs().max() < 30
    layer = attend(rand(1, 3, 4) * 9, rand(1, 3, 4, seed=1), rand(1, 3, 4), formula=Formula(temperature=0.0, cap=2.0))
    assert set(layer["capped_scores"].flatten().tolist()) <= {-2.0, 0.0, 2.0}
    assert layer["weights"].sum(dim=-1) == approx(torch.ones(1, 3, dtype=torch.float64))


# -- the same arithmetic as transformers ----------------------------------------------------------


@pytest.mark.slow
def test_rope_equals_llama() -> None:
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

    query, key = rand(4, 40, 16).float(), rand(2, 40, 16, seed=1).float()
    config = LlamaConfig(hidden_size=64, num_attention_heads=4, num_key_value_heads=2, head_dim=16)
    cos, sin = LlamaRotaryEmbedding(config)(query[None], torch.arange(40)[None])
    expected = apply_rotary_pos_emb(query[None], key[None], cos, sin)
    for rows, expected_rows in zip((query, key), expected, strict=True):
        assert rotate(rows, 10_000.0) == approx(expected_rows[0])


@pytest.mark.slow
@pytest.mark.parametrize("n_heads", [1, 4, 6, 12, 16])
def test_alibi_equals_bloom_up_to_a_constant_per_row(n_heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor

    expected = build_alibi_tensor(torch.ones(1, 9), n_heads, torch.float64)[
        :, 0
    ]  # [head key_pos]: a softmax sees differences
    causal = torch.ones(9, 9).tril().bool()
    layer = attend(rand(n_heads, 9, 4), rand(n_heads, 9, 4), rand(n_heads, 9, 4), formula=Formula(bias="alibi"))
    apart = expected[:, None, :] - expected[:, :, None]
    assert layer["bias"][:, causal] == approx(apart[:, causal], dtype="float32")  # its slopes are single


@pytest.mark.slow
def test_t5_distance_buckets_equal_t5() -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    distances = torch.arange(-600, 601)
    expected = T5Attention._relative_position_bucket(distances, bidirectional=True, num_buckets=32, max_distance=128)
    assert torch.equal(bucket(distances), expected)


@pytest.mark.slow
def test_score_cap_equals_gemma_2() -> None:
    from types import SimpleNamespace

    from transformers.models.gemma2.modeling_gemma2 import eager_attention_forward

    query, key, value = rand(1, 4, 6, 8) * 3, rand(1, 2, 6, 8, seed=1) * 3, rand(1, 2, 6, 8, seed=2)
    module: Any = SimpleNamespace(head_dim=8, num_key_value_groups=2, training=False)
    expected, weights = eager_attention_forward(module, query, key, value, None, scaling=8**-0.5, softcap=5.0)
    layer = attend(query[0], key[0], value[0], formula=Formula(divisor=math.sqrt(8), cap=5.0))
    # It takes the softmax in single precision.
    assert layer["weights"] == approx(weights[0], dtype="float32")
    assert layer["head_output"].transpose(0, 1) == approx(expected[0], dtype="float32")


def test_cosine_scores_equal_torch() -> None:
    query, key = rand(2, 3, 8), rand(2, 5, 8, seed=1)
    expected = F.cosine_similarity(query[:, :, None], key[:, None], dim=-1)
    assert SCORES["cosine"].scores(query, key) == approx(expected)
    assert SCORES["cosine"].scores(torch.zeros(1, 1, 4), torch.ones(1, 1, 4)).tolist() == [[[0.0]]]


def test_additive_scores_are_a_weighted_sum_of_tanh() -> None:
    query, key, weights = rand(2, 300, 3), rand(2, 5, 3, seed=1), rand(2, 3, seed=2)
    expected = torch.einsum("hqkd,hd->hqk", torch.tanh(query[:, :, None] + key[:, None]), weights)
    assert SCORES["additive"].scores(query, key, weights) == approx(expected)


def simplex(row: list[float]) -> list[float]:
    """The nearest point of the simplex, by bisection."""
    low, high = min(row) - 1, max(row)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if sum(max(x - middle, 0) for x in row) > 1 else (low, middle)
    return [max(x - low, 0) for x in row]


@settings(deadline=None)
@given(st.lists(st.floats(-30, 30), min_size=1, max_size=12))
def test_sparsemax_is_the_projection_onto_the_simplex(row: list[float]) -> None:
    weights = NORMALIZERS["sparsemax"].weights(torch.tensor([row], dtype=torch.float64))[0]
    assert weights.numpy() == approx(simplex(row), dtype="float32")


def test_softmax1_equals_softmax_with_an_extra_zero_score() -> None:
    scores = rand(2, 3, 5) * 50
    expected = torch.softmax(F.pad(scores, (0, 1)), dim=-1)[..., :-1]
    assert NORMALIZERS["softmax1"].weights(scores) == approx(expected)


def test_sigmoid_subtracts_the_log_of_the_number_of_keys() -> None:
    scores = rand(2, 3, 5)
    assert NORMALIZERS["sigmoid"].weights(scores) == approx(torch.sigmoid(scores - math.log(5)))


# -- what is always so ----------------------------------------------------------------------------


def learned(share: str) -> dict[str, torch.Tensor]:
    """What two heads have learned where a way to share out needs it."""
    parameter = NORMALIZERS[share].parameter
    return {parameter: torch.tensor([0.5, -1.0], dtype=torch.float64)} if parameter else {}


@pytest.mark.parametrize("share", NORMALIZERS)
@pytest.mark.parametrize("kind", ["none", "causal", "window", "prefix"])
def test_weights_of_a_row_sum_as_this_test_says_and_hidden_keys_get_zero(share: str, kind: str) -> None:
    real = (True, True, True, True, False)
    layer = attend(
        rand(2, 5, 4),
        rand(2, 5, 4, seed=1),
        rand(2, 5, 4),
        formula=Formula(normalizer=share, mask=Mask(kind, 1, 2, real=real)),
    ).with_tensors(**learned(share))
    weights, mask = layer["weights"], layer["mask"]
    assert weights[:, ~mask].eq(0).all()
    sums = weights.sum(dim=-1)[:, mask.any(dim=-1)]
    match share:
        case "softmax" | "sparsemax":
            assert sums == approx(torch.ones_like(sums))
        case "softmax1" | "sinks":
            assert ((sums > 0) & (sums < 1)).all()
        case "sigmoid":
            assert ((sums > 0) & (sums < 5)).all()
        case _:
            pytest.fail(f"say here what the weights of a row of {share} sum to")
    assert weights.sum(dim=-1)[:, ~mask.any(dim=-1)].eq(0).all()


@pytest.mark.parametrize("share", NORMALIZERS)
def test_row_without_a_visible_key_is_zero_not_nan(share: str) -> None:
    blind = torch.full((1, 2, 3), -math.inf, dtype=torch.float64)
    assert NORMALIZERS[share].weights(blind).eq(0).all()
    assert NORMALIZERS[share].limit(blind, torch.zeros_like(blind)).eq(0).all()


@pytest.mark.parametrize("share", NORMALIZERS)
def test_temperature_zero_is_the_limit_of_small_temperatures(share: str) -> None:
    query, key, value = rand(2, 4, 4), rand(2, 5, 4, seed=1), rand(2, 5, 3)
    key[:, 1] = key[:, 0]  # a tie
    cold, colder = (
        attend(query, key, value, formula=Formula(normalizer=share, temperature=temperature)).with_tensors(
            **learned(share)
        )
        for temperature in (0.0, 1e-9)
    )
    assert cold["weights"] == approx(colder["weights"])


@pytest.mark.parametrize("share", NORMALIZERS)
def test_bias_breaks_ties_of_scores_at_temperature_zero(share: str) -> None:
    query, value, bias = (
        torch.ones(1, 1, 2, dtype=torch.float64),
        torch.eye(3, dtype=torch.float64)[None],
        rand(1, 1, 3),
    )
    key = torch.tensor([[[1.0, 1.0], [1.0, 1.0], [-1.0, -1.0]]], dtype=torch.float64)
    layers = [
        attend(
            query, key, value, formula=Formula(normalizer=share, temperature=temperature, bias="given")
        ).with_tensors(bias=bias, **{name: tensor[:1] for name, tensor in learned(share).items()})
        for temperature in (0.0, 1e-9)
    ]
    assert layers[0]["weights"] == approx(layers[1]["weights"], dtype="float32")


@settings(deadline=None, max_examples=20)
@given(st.integers(0, 40), st.integers(0, 2**31))
def test_rope_depends_on_distances_only(shift: int, seed: int) -> None:
    query, key = rand(1, 1, 8, seed=seed % 1000), rand(1, 1, 8, seed=seed % 1000 + 1)

    def score(at: int, other: int) -> float:
        rows = [
            torch.cat([torch.zeros(1, place, 8, dtype=torch.float64), row], dim=1)
            for place, row in ((at, query), (other, key))
        ]
        return float(rotate(rows[0], 10_000.0)[0, -1] @ rotate(rows[1], 10_000.0)[0, -1])

    assert score(7, 3) == approx(score(7 + shift, 3 + shift))


@pytest.mark.sample(6)
@pytest.mark.slow
@pytest.mark.parametrize("name", VARIANTS)
@pytest.mark.parametrize("mask", ["none", "causal"])
def test_every_cell_is_explained_by_arithmetic_that_gives_its_value(name: str, mask: str) -> None:
    trace = TypedText(CAT, AttentionConfig(mask=mask, **VARIANTS[name])).trace()
    layer = trace.layers[0]
    for step in layer.steps:
        rows, columns = layer.shape(step.name)[-2:]
        for head in (0, layer.n_heads - 1):
            for row, column in ((0, 0), (rows - 1, 0), (rows // 2, columns - 1), (rows - 1, columns - 1)):
                explanation = explain(trace, step.name, 0, head, row, column)
                assert "recorded" not in explanation.words, (step.name, row, column, explanation.words)
                if explanation.terms and math.isfinite(explanation.value) and explanation.operation:
                    assert explanation.result == approx(explanation.value, scale=1), (
                        step.name,
                        explanation,
                    )
                assert "nan" not in f"{explanation.lines} {explanation.short}"


@pytest.mark.parametrize("name", VARIANTS)
def test_heads_computed_singly_equal_heads_computed_jointly(name: str) -> None:
    from dataclasses import replace

    source = TypedText(" ".join(f"w{i % 70}" for i in range(300)), AttentionConfig(**VARIANTS[name]))
    complete, single = source.trace().layers[0], replace(source, max_bytes=source.memory_bytes() - 1).trace().layers[0]
    assert (complete.materialize_all_heads, single.materialize_all_heads) == (True, False)
    for step in complete.steps:
        assert single.matrix(step.name, 3) == approx(complete.matrix(step.name, 3), terms=1024), step.name
        assert single.finite_range(step.name) == approx(complete.finite_range(step.name))


def test_explanation_with_wrong_terms_is_withheld() -> None:
    """A softmax-1 layer that is said to be a softmax: the wrong arithmetic is not stated, the number is."""
    correct = attend(rand(1, 2, 3), rand(1, 2, 3, seed=1), rand(1, 2, 3), formula=Formula(normalizer="softmax1"))
    wrong = Layer(recorded={**correct.recorded, "weights": correct["weights"]}, formula=Formula(normalizer="softmax"))
    explanation = explain(Trace(("a", "b"), (wrong,)), "weights", q=1, k=0)
    assert explanation.words == "The weights as the source recorded it; what made it is not known."
    assert explanation.result == explanation.value == float(correct["weights"][0, 1, 0])
    assert explain(Trace(("a", "b"), (correct,)), "weights", q=1, k=0).short.startswith("e^(")


def test_layer_without_a_formula_keeps_its_recorded_tensors() -> None:
    computed = attend(rand(1, 2, 3), rand(1, 2, 3, seed=1), rand(1, 2, 3))
    layer = Layer(recorded={name: computed[name] for name in ("query", "key", "scores", "weights")})
    assert [step.name for step in layer.steps] == ["query", "key", "scores", "weights"]
    for step in ("scores", "weights"):
        assert explain(Trace(("a", "b"), (layer,)), step).came_from == ()


# -- what is refused ------------------------------------------------------------------------------

KNOBS = {knob.name: knob for knob in knobs_of(AttentionConfig)}


@pytest.mark.parametrize(
    ("knobs", "sentence"),
    [
        ({"n_kv_heads": 3}, "4 heads of queries cannot share 3 heads of keys in equal groups: choose 1, 2 or 4."),
        ({"positions": "rope", "d_k": 3}, 'positions "rope" rotates pairs of columns, so d_k is even; got 3'),
        (
            {"normalizer": "no such"},
            f"normalizer is {KNOBS['normalizer'].range.expected}; got 'no such': choose one of them.",
        ),
        ({"score": "no such"}, f"score is {KNOBS['score'].range.expected}; got 'no such'"),
        ({"cap": -1}, "cap is a number from 0.05 to 1000; got -1"),
        ({"positions": "no such"}, f"positions is {KNOBS['positions'].range.expected}; got 'no such'"),
    ],
)
def test_invalid_variant_is_refused_in_one_sentence(knobs: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigError) as error:
        AttentionConfig(**knobs)
    assert sentence in str(error.value)


def test_heads_that_do_not_share_equally_are_refused() -> None:
    with pytest.raises(ShapeError, match="2 must divide 3"):
        attend(rand(3, 2, 4), rand(2, 2, 4), rand(2, 2, 4))


def test_too_many_tanh_are_refused_in_advance() -> None:
    with pytest.raises(ConfigError, match="Additive scores take at most 268,435,456 tanh here"):
        TypedText("w " * 2048, AttentionConfig(score="additive", d_model=128), max_tokens=2048).trace()


@pytest.mark.parametrize("table", [POSITIONS, SCORES, NORMALIZERS], ids=["positions", "scores", "shares"])
def test_every_variant_documents_its_change_and_its_users(table: dict[str, Any]) -> None:
    for name, way in table.items():
        assert way.name == name
        assert way.words.endswith(".")
        assert way.paper or name == "none"
    assert Cell(0, "weights", 0, 0, 0).step == "weights"
