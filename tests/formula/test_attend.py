import math

import pytest
import torch
import torch.nn.functional as F
from hypothesis import example, given, settings
from hypothesis import strategies as st
from margins import approx
from torch import nn

from attention import ShapeError
from attention.formula import mask_tensor
from attention.formula.functions import project, project_output, scale_scores
from attention.formula.mask import Mask
from attention.formula.normalizers import NORMALIZERS
from attention.formula.positions import sinusoidal
from attention.formula.scores import SCORES
from attention.trace.attend import attend

pytestmark = pytest.mark.quick

softmax_weights = NORMALIZERS["softmax"].weights


HIDDEN = -math.inf
quick = settings(max_examples=60)


def rand(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def some_mask(n_queries, n_keys, seed=0):
    return torch.rand(n_queries, n_keys, generator=torch.Generator().manual_seed(seed)) < 0.5


@st.composite
def attentions(draw, masked=True):
    n_heads, n_queries, n_keys, d_k, d_v = (draw(st.integers(1, top)) for top in (3, 7, 7, 5, 5))
    seed = draw(st.integers(0, 10_000))
    size = draw(st.sampled_from([0.01, 1.0, 30.0]))
    query, key, value = (
        rand(n_heads, n_queries, d_k, seed=seed) * size,
        rand(n_heads, n_keys, d_k, seed=seed + 1),
        rand(n_heads, n_keys, d_v, seed=seed + 2),
    )
    mask = draw(
        st.sampled_from(
            [
                None,
                some_mask(n_queries, n_keys, seed),
                mask_tensor.causal(n_queries, n_keys),
                Mask("window", 1).build(n_queries, n_keys),
            ]
        )
    )
    return query, key, value, mask if masked else None


# -- parity with torch ------------------------------------------------------------------------


@pytest.mark.parametrize(("n_queries", "n_keys"), [(6, 6), (4, 7), (7, 4), (1, 1), (1, 9)])
def test_attend_equals_torch_sdpa_without_a_mask(n_queries, n_keys):
    query, key, value = rand(3, n_queries, 5), rand(3, n_keys, 5, seed=1), rand(3, n_keys, 2, seed=2)
    assert attend(query, key, value).head_output == approx(F.scaled_dot_product_attention(query, key, value))


@pytest.mark.parametrize(("n_queries", "n_keys"), [(6, 6), (4, 7), (7, 4)])
def test_attend_equals_torch_sdpa_with_custom_mask_and_blind_rows(n_queries, n_keys):
    query, key, value = rand(3, n_queries, 5), rand(3, n_keys, 5, seed=1), rand(3, n_keys, 2, seed=2)
    mask = some_mask(n_queries, n_keys)
    mask[1] = False
    result = attend(query, key, value, mask).head_output
    assert result == approx(F.scaled_dot_product_attention(query, key, value, attn_mask=mask))
    assert result[:, 1].eq(0).all()


@pytest.mark.parametrize(("n_queries", "n_keys"), [(6, 6), (4, 7), (7, 4)])
def test_attend_equals_torch_sdpa_when_causal_with_unequal_lengths(n_queries, n_keys):
    query, key, value = rand(3, n_queries, 5), rand(3, n_keys, 5, seed=1), rand(3, n_keys, 2, seed=2)
    result = attend(query, key, value, mask_tensor.causal(n_queries, n_keys)).head_output
    assert result == approx(F.scaled_dot_product_attention(query, key, value, is_causal=True))


def test_unscaled_and_temperature_attend_equal_torch_sdpa_with_that_scale():
    query, key, value = rand(2, 4, 9), rand(2, 5, 9, seed=1), rand(2, 5, 3, seed=2)
    assert attend(query, key, value, scaled=False).head_output == approx(
        F.scaled_dot_product_attention(query, key, value, scale=1)
    )
    assert attend(query, key, value, temperature=2.5).head_output == approx(
        F.scaled_dot_product_attention(query, key, value, scale=1 / 7.5)
    )


@pytest.mark.parametrize(("n_queries", "n_keys", "masked"), [(6, 6, False), (6, 6, True), (3, 7, True), (7, 3, True)])
def test_attend_equals_torch_multihead_attention_with_equal_weights(n_queries, n_keys, masked):
    d_model, n_heads = 12, 3
    module = nn.MultiheadAttention(d_model, n_heads, bias=False, dtype=torch.float64)
    module.load_state_dict(
        {"in_proj_weight": rand(3 * d_model, d_model, seed=1), "out_proj.weight": rand(d_model, d_model, seed=2)}
    )
    w_q, w_k, w_v = (w.T.unflatten(1, (n_heads, -1)).transpose(0, 1) for w in module.in_proj_weight.detach().chunk(3))
    w_o = module.out_proj.weight.detach().T.unflatten(0, (n_heads, -1))
    x, memory = rand(n_queries, d_model, seed=3), rand(n_keys, d_model, seed=4)
    mask = some_mask(n_queries, n_keys) if masked else torch.ones(n_queries, n_keys, dtype=torch.bool)
    mask[:, 0] = True  # a blind row is NaN in nn.MultiheadAttention

    layer = attend(project(x, w_q), project(memory, w_k), project(memory, w_v), mask, w_o=w_o)
    with torch.no_grad():  # True hides in torch's module, and shows in ours
        output, weights = module(x, memory, memory, attn_mask=~mask, need_weights=True, average_attn_weights=False)
    assert layer.weights == approx(weights)
    assert layer.output == approx(output)


def test_true_in_a_mask_means_visible():
    query, key, value = rand(1, 2, 3), rand(1, 2, 3, seed=1), rand(1, 2, 3, seed=2)
    mask = torch.tensor([[True, False], [False, True]])
    assert attend(query, key, value, mask).weights.tolist() == [[[1, 0], [0, 1]]]


# -- every step -------------------------------------------------------------------------------


def test_attend_steps_follow_the_formula():
    query, key, value, w_o = rand(2, 3, 4), rand(2, 5, 4, seed=1), rand(2, 5, 6, seed=2), rand(2, 6, 7, seed=3)
    mask = mask_tensor.causal(3, 5)
    layer = attend(query, key, value, mask, temperature=0.5, w_o=w_o)
    assert layer.scores == approx(torch.einsum("hqd,hkd->hqk", query, key))
    assert layer.scaled_scores == approx(layer.scores / (math.sqrt(4) * 0.5))
    assert layer.masked_scores == approx(
        torch.where(mask, layer.scaled_scores, torch.tensor(HIDDEN, dtype=torch.float64))
    )
    assert layer.weights == approx(layer.masked_scores.softmax(dim=-1))
    assert layer.head_output == approx(torch.einsum("hqk,hkv->hqv", layer.weights, value))
    assert layer.output == approx(torch.einsum("hqv,hvm->qm", layer.head_output, w_o))


def test_attend_steps_do_not_share_memory():
    query, key, value, mask = rand(2, 3, 4), rand(2, 3, 4, seed=1), rand(2, 3, 4, seed=2), mask_tensor.causal(3, 3)
    originals = [tensor.clone() for tensor in (query, key, value, mask)]
    layer = attend(query, key, value, mask, w_o=rand(2, 4, 4))
    assert all(torch.equal(tensor, old) for tensor, old in zip((query, key, value, mask), originals, strict=True))
    assert layer.scaled_scores.isfinite().all()
    assert layer.masked_scores.isinf().any()


def test_scores_are_scaled_by_root_d_k_not_d_model():
    scores = attend(rand(4, 3, 16), rand(4, 3, 16, seed=1), rand(4, 3, 16))
    assert scores.divisor == 4
    assert scores.scaled_scores * 4 == approx(scores.scores)


def test_softmax_normalizes_over_keys_not_queries():
    weights = attend(rand(1, 3, 4), rand(1, 5, 4, seed=1), rand(1, 5, 2)).weights
    assert weights.sum(dim=-1) == approx(torch.ones(1, 3, dtype=torch.float64))
    assert weights.sum(dim=-2) != approx(torch.ones(1, 5, dtype=torch.float64))


def test_project_output_concatenates_heads_in_order():
    head_output, w_o = rand(3, 2, 4), rand(3, 4, 5, seed=1)
    side_by_side = torch.cat([head_output[0], head_output[1], head_output[2]], dim=1)
    assert project_output(head_output, w_o) == approx(side_by_side @ torch.cat([w_o[0], w_o[1], w_o[2]]))


def test_attend_without_w_o_has_no_output():
    layer = attend(rand(1, 2, 3), rand(1, 2, 3), rand(1, 2, 3))
    assert layer.output is None
    assert layer.head_output is not None


def test_mismatched_axes_are_named_before_torch_fails():
    with pytest.raises(ShapeError, match=r"^key_pos is 4 in key but 5 in value: one axis has one size in a layer\.$"):
        attend(rand(1, 2, 3), rand(1, 4, 3), rand(1, 5, 3))
    with pytest.raises(ShapeError, match="d_k is 3 in query but 2 in key"):
        attend(rand(1, 2, 3), rand(1, 4, 2), rand(1, 4, 3))
    with pytest.raises(ShapeError, match="query_pos is 2 in query but 4 in mask"):
        attend(rand(1, 2, 3), rand(1, 4, 3), rand(1, 4, 3), mask_tensor.causal(4, 4))


# -- properties -------------------------------------------------------------------------------


@quick
@given(attentions(), st.sampled_from([0, 1e-300, 1e-30, 0.05, 1.0, 10.0, 1e30, math.inf]))
def test_weight_rows_sum_to_one_or_zero_without_hidden_keys(given_, temperature):
    query, key, value, mask = given_
    layer = attend(query, key, value, mask, temperature=temperature)
    visible = torch.ones(query.shape[1], key.shape[1], dtype=torch.bool) if mask is None else mask
    sees = visible.any(dim=-1)
    sums = layer.weights.sum(dim=-1)
    assert sums[:, sees] == approx(torch.ones_like(sums[:, sees]), scale=1)
    assert sums[:, ~sees].eq(0).all()
    assert layer.weights[:, ~visible].eq(0).all()
    assert layer.weights.ge(0).all()
    assert layer.head_output[:, ~sees].eq(0).all()
    assert layer.masked_scores[:, ~visible].eq(HIDDEN).all()
    assert layer.scaled_scores.isfinite().all()
    assert layer.head_output.isfinite().all()


def test_row_without_a_visible_key_is_zero_not_uniform():
    mask = torch.tensor([[True, True], [False, False]])
    layer = attend(rand(1, 2, 3), rand(1, 2, 3, seed=1), rand(1, 2, 3, seed=2), mask, w_o=rand(1, 3, 3))
    assert layer.weights[0, 1].tolist() == [0, 0]
    assert layer.head_output[0, 1].tolist() == [0, 0, 0]
    assert layer.output[1].tolist() == [0, 0, 0]


@quick
@given(attentions(masked=False), st.integers(0, 6))
def test_causal_outputs_do_not_depend_on_later_tokens(given_, position):
    query, key, value, _ = given_
    mask = mask_tensor.causal(query.shape[1], key.shape[1])
    expected = attend(query, key, value, mask).head_output
    changed = [tensor.clone() for tensor in (query, key, value)]
    for tensor in changed:
        tensor[:, position + 1 :] = -7 * tensor[:, position + 1 :] + 3
    outputs = attend(*changed, mask).head_output
    assert torch.equal(outputs[:, : position + 1], expected[:, : position + 1])


@quick
@given(attentions(), st.randoms(use_true_random=False))
def test_permuted_keys_permute_columns_and_keep_the_output(given_, random):
    query, key, value, mask = given_
    order = list(range(key.shape[1]))
    random.shuffle(order)
    base = attend(query, key, value, mask)
    permuted = attend(query, key[:, order], value[:, order], None if mask is None else mask[:, order])
    for name in ("scores", "scaled_scores", "masked_scores", "weights"):
        assert permuted[name] == approx(base[name][..., order])
    assert permuted.head_output == approx(base.head_output)


@quick
@given(attentions(), st.floats(-50, 50))
def test_adding_a_constant_to_every_score_keeps_the_weights(given_, shift):
    layer = attend(*given_)
    assert softmax_weights(layer.masked_scores + shift) == approx(layer.weights)


def test_softmax_does_not_overflow_for_the_largest_floats():
    scores = torch.tensor([[[3e38, -3e38, HIDDEN], [HIDDEN, HIDDEN, HIDDEN], [-3e38, -3e38, HIDDEN]]])
    assert softmax_weights(scores).tolist() == [[[1, 0, 0], [0, 0, 0], [0.5, 0.5, 0]]]


# -- temperature ------------------------------------------------------------------------------


@quick
@given(attentions())
@example((torch.ones(1, 1, 2), torch.ones(1, 3, 2), torch.ones(1, 3, 1), torch.tensor([[True, False, True]])))
def test_temperature_zero_is_argmax_with_ties_split_evenly(given_):
    query, key, value, mask = given_
    layer = attend(query, key, value, mask, temperature=0)
    highest = layer.masked_scores.amax(dim=-1, keepdim=True)
    winners = ((layer.masked_scores == highest) & (layer.masked_scores > HIDDEN)).double()
    assert layer.weights.double() == approx(winners / winners.sum(dim=-1, keepdim=True).clamp_min(1), scale=1)
    assert layer.temperature == 0


def test_ties_at_temperature_zero_include_visible_keys_only():
    scores = torch.tensor(
        [
            [
                [2.0, 5.0, 5.0, HIDDEN],
                [1.0, 1.0, 1.0, 1.0],
                [HIDDEN, HIDDEN, HIDDEN, HIDDEN],
                [HIDDEN, -9.0, HIDDEN, HIDDEN],
            ]
        ]
    )
    assert NORMALIZERS["softmax"].limit(scores, torch.zeros_like(scores)).tolist() == [
        [[0, 0.5, 0.5, 0], [0.25] * 4, [0] * 4, [0, 1, 0, 0]]
    ]


@pytest.mark.parametrize("n_keys", [2, 5, 7, 11, 19])
def test_equal_keys_tie_at_any_position(n_keys):
    query, key = rand(4, 3, 16, dtype=torch.float32), rand(4, 1, 16, seed=1, dtype=torch.float32).expand(4, n_keys, 16)
    weights = attend(query, key, key, temperature=0).weights
    assert weights.eq(weights[0, 0, 0]).all()


@quick
@given(attentions())
def test_infinite_temperature_is_uniform_over_visible_keys(given_):
    query, key, value, mask = given_
    layer = attend(query, key, value, mask, temperature=math.inf)
    visible = torch.ones(query.shape[1], key.shape[1], dtype=torch.float64) if mask is None else mask.double()
    uniform = visible / visible.sum(dim=-1, keepdim=True).clamp_min(1)
    assert layer.weights == approx(uniform.expand_as(layer.weights), scale=1)
    assert layer.scaled_scores.eq(0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-40, 1e-30])
def test_tiny_temperature_is_finite_argmax(temperature, dtype):
    query, key, value = (rand(2, 4, 3, seed=seed, dtype=dtype) for seed in range(3))
    query[0, 0] = 0  # a score of exactly 0 over a divisor that rounds to 0 would be NaN
    layer = attend(query, key, value, mask_tensor.causal(4, 4), temperature=temperature)
    assert layer.scaled_scores.isfinite().all()
    assert torch.equal(layer.weights, attend(query, key, value, mask_tensor.causal(4, 4), temperature=0).weights)


def test_temperature_that_underflows_is_recorded_as_zero():
    query, key, value = (rand(2, 4, 3, seed=seed, dtype=torch.float32) for seed in range(3))
    assert attend(query, key, value, temperature=1e-300).temperature == 0
    assert attend(query, key, value, temperature=1e-3).temperature == 1e-3


def test_low_temperature_sharpens_and_high_temperature_flattens():
    query, key, value = rand(1, 1, 4), rand(1, 6, 4, seed=1), rand(1, 6, 2)
    largest = [
        float(attend(query, key, value, temperature=t).weights.max()) for t in (0, 0.05, 0.5, 1, 2, 10, math.inf)
    ]
    assert largest == sorted(largest, reverse=True)
    assert largest[0] == 1
    assert largest[-1] == approx(1 / 6)


def test_temperature_zero_keeps_the_scaling_by_root_d_k():
    assert scale_scores(torch.tensor([6.0]), 2.0, 0).tolist() == [3.0]


# -- positions --------------------------------------------------------------------------------


@pytest.mark.parametrize("d_model", [1, 2, 7, 64])
def test_sinusoidal_positions_match_the_paper(d_model):
    wave = [math.sin, math.cos]
    expected = [[wave[i % 2](pos / 10000 ** (i // 2 * 2 / d_model)) for i in range(d_model)] for pos in range(500)]
    assert sinusoidal(500, d_model) == approx(torch.tensor(expected))


def test_equal_rows_have_equal_scores_in_single_precision():
    word = rand(1, 1, 64, dtype=torch.float32).expand(1, 11, 64)
    scores = SCORES["dot"].scores(rand(1, 3, 64, seed=1, dtype=torch.float32), word)
    assert scores.eq(scores[..., :1]).all()
