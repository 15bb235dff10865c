"""Matrices with several heads, biases, X₂, input scores, a float mask, a divisor and valid lengths, compared with other libraries."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from margins import approx
from test_code import check
from torch import Tensor, nn

from attention import AttentionConfig, AttentionError, Matrices, ShapeError, TypedText, explain, find_step
from attention.explanation import glossary
from attention.formula.normalizers import NORMALIZERS
from attention.formula.steps import declared
from attention.sources.matrix_fields import matrices_of_layer

pytestmark = pytest.mark.quick

INF = math.inf


def rand(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rows(tensor: Tensor) -> Any:
    """A tensor as nested tuples."""

    def tuples(value: Any) -> Any:
        return tuple(map(tuples, value)) if isinstance(value, list) else value

    return tuples(tensor.tolist())


X, X2 = rand(5, 6), rand(7, 6, seed=1)
W = {name: rows(rand(6, 8, seed=at)) for at, name in enumerate(("w_q", "w_k", "w_v"), 2)}
QKV = {"query": rows(rand(5, 8)), "key": rows(rand(7, 8, seed=1)), "value": rows(rand(7, 4, seed=2))}
STACKS = {
    name: rows(rand(2, *shape, seed=at))
    for at, (name, shape) in enumerate({"query": (5, 4), "key": (7, 4), "value": (7, 3)}.items())
}
BIAS = rand(5, 7, seed=9).masked_fill(rand(5, 7, seed=10) > 1, -INF)
BIAS[3] = -INF

GIVEN: dict[str, Matrices] = {
    "heads": Matrices(rows(X), **W, n_heads=2, w_o=rows(rand(8, 3))),
    "everything": Matrices(
        rows(X),
        **W,
        memory=rows(X2),
        w_o=rows(rand(8, 6)),
        n_heads=4,
        b_q=rows(rand(8)),
        b_k=rows(rand(1, 8)),
        b_v=rows(rand(4, 2)),
        b_o=rows(rand(6)),
        bias=rows(BIAS),
        divisor=3.0,
        valid=5,
        config=AttentionConfig(mask="causal", temperature=2.0),
    ),
    "stacks": Matrices(**STACKS, bias=rows(rand(2, 5, 7)), w_o=rows(rand(2, 3, 5))),
    "shared keys": Matrices(query=rows(rand(4, 5, 3)), key=rows(rand(2, 7, 3)), value=rows(rand(2, 7, 3))),
    "scores": Matrices(scores=rows(rand(5, 7)), value=QKV["value"], config=AttentionConfig(temperature=0.5)),
    "scores of heads": Matrices(scores=rows(rand(2, 5, 7)), value=QKV["value"], n_heads=2, divisor=2.0),
    "scores side by side": Matrices(scores=rows(rand(5, 14)), value=QKV["value"], bias=rows(rand(5, 14)), n_heads=2),
    "X alone": Matrices(rows(X), w_o=rows(rand(6, 2))),
    "X alone and X₂": Matrices(rows(X), memory=rows(X2), valid=3),
    "a float mask": Matrices(**QKV, bias=rows(BIAS)),
    "a float mask at temperature 0": Matrices(
        **QKV, bias=rows(BIAS[:3].repeat(2, 1)[:5]), config=AttentionConfig(temperature=0)
    ),
    "unscaled": Matrices(**QKV, divisor=9.0, config=AttentionConfig(scaled=False)),
}


# -- parity with other libraries -------------------------------------------------------------------


@pytest.mark.parametrize("n_heads", [1, 2, 4])
@pytest.mark.parametrize("crossed", [False, True])
def test_heads_are_split_like_torch_multihead_attention(n_heads: int, crossed: bool) -> None:
    torch.manual_seed(0)
    module = nn.MultiheadAttention(8, n_heads, batch_first=True, dtype=torch.float64)
    nn.init.normal_(module.in_proj_bias)
    nn.init.normal_(module.out_proj.bias)
    x, other = rand(5, 8), rand(3, 8, seed=1) if crossed else rand(5, 8)
    with torch.no_grad():
        output, weights = module(x[None], other[None], other[None], average_attn_weights=False)
        w, b = module.in_proj_weight.T.chunk(3, dim=1), module.in_proj_bias.chunk(3)
    source = Matrices(
        rows(x),
        *map(rows, w),
        rows(module.out_proj.weight.T),
        memory=rows(other) if crossed else (),
        n_heads=n_heads,
        **{name: rows(bias) for name, bias in zip(("b_q", "b_k", "b_v"), b, strict=True)},
        b_o=rows(module.out_proj.bias),
    )
    layer = source.trace().layers[0]
    assert layer.n_heads == n_heads
    assert layer["weights"] == approx(weights[0], scale=1)
    assert layer["output"] == approx(output[0])


@pytest.mark.parametrize("scale", [None, 0.25])
def test_float_mask_and_scale_equal_torch(scale: float | None) -> None:
    query, key, value, bias = rand(2, 5, 4), rand(2, 7, 4, seed=1), rand(2, 7, 3, seed=2), rand(2, 5, 7, seed=3)
    bias[:, :, 4:] = -INF
    divisor = None if scale is None else 1 / scale
    layer = (
        Matrices(query=rows(query), key=rows(key), value=rows(value), bias=rows(bias), divisor=divisor)
        .trace()
        .layers[0]
    )
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, scale=scale)
    assert layer["head_output"] == approx(expected)


def test_valid_lengths_equal_masked_softmax_of_d2l() -> None:
    scores = rand(4, 6)
    padded = scores.masked_fill(torch.arange(6) >= 2, -1e6)
    layer = Matrices(scores=rows(scores), value=rows(rand(6, 3)), valid=2).trace().layers[0]
    assert layer["weights"][0] == approx(torch.softmax(padded, dim=-1))
    assert "padding" in str(layer.formula) or not layer["mask"][:, 2:].any()


def test_d2l_prints_means_of_the_valid_values() -> None:
    """Chapter 11.3: equal keys, values 0 … 39 in ten rows, valid_lens 2 and 6."""
    value = torch.arange(40, dtype=torch.float64).reshape(10, 4)
    for valid, printed in ((2, [2.0, 3.0, 4.0, 5.0]), (6, [10.0, 11.0, 12.0, 13.0])):
        layer = (
            Matrices(query=rows(rand(1, 2)), key=rows(torch.ones(10, 2)), value=rows(value), valid=valid)
            .trace()
            .layers[0]
        )
        assert layer.matrix("head_output")[0].tolist() == approx(printed)


def test_stacked_heads_equal_the_einsums_of_keras() -> None:
    """Keras keeps [d_model head d_k] and adds [head d_k]; a stack has the heads in front."""
    w = {name: rand(6, 2, 3, seed=at) for at, name in enumerate(("w_q", "w_k", "w_v"))}
    b = {name: rand(2, 3, seed=at) for at, name in enumerate(("b_q", "b_k", "b_v"), 5)}
    w_o = rand(2, 3, 6, seed=8)
    query, key, value = (
        torch.einsum("td,dhk->htk", X, weight) + b[f"b_{name[-1]}"][:, None] for name, weight in w.items()
    )
    weights = torch.softmax(torch.einsum("hqk,hpk->hqp", query, key) / math.sqrt(3), dim=-1)
    output = torch.einsum("hqp,hpk,hkd->qd", weights, value, w_o)
    stacks = {name: rows(weight.transpose(0, 1)) for name, weight in w.items()} | {
        name: rows(bias) for name, bias in b.items()
    }
    layer = Matrices(rows(X), **stacks, w_o=rows(w_o)).trace().layers[0]
    assert layer["output"] == approx(output)
    flat = {name: rows(weight.flatten(1)) for name, weight in w.items()} | {
        name: rows(bias.flatten()) for name, bias in b.items()
    }
    side_by_side = Matrices(rows(X), **flat, w_o=rows(w_o.flatten(0, 1)), n_heads=2).trace().layers[0]
    assert all(torch.equal(tensor, layer[step.name]) for step, tensor in side_by_side)


def test_x_alone_serves_as_q_k_and_v() -> None:
    layer = GIVEN["X alone"].trace().layers[0]
    assert torch.equal(layer["query"], layer["key"])
    assert torch.equal(layer["value"][0], X)
    assert explain(GIVEN["X alone"].trace(), "value").words == "No projection: V is X itself."
    crossed = GIVEN["X alone and X₂"].trace().layers[0]
    assert torch.equal(crossed["key"][0], X2)


def test_glossary_gives_the_output_width_of_w_o() -> None:
    layer = GIVEN["heads"].trace().layers[0]
    assert glossary.shape_text(declared("w_o"), layer) == "head 2 · d_v 4 · d_model 3"
    assert glossary.shape_text(declared("w_q"), layer) == "head 2 · d_model 6 · d_k 4"


def test_divisor_is_used_wherever_scores_are_scaled() -> None:
    layer = GIVEN["everything"].trace().layers[0]
    assert layer["scaled_scores"] == approx(layer["scores"] / 6)
    assert GIVEN["unscaled"].trace().layers[0].divisor == 1
    assert "S / (3 · temperature)" in {layer.formula_of(step) for step in layer.steps}


# -- invariants ----------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", GIVEN)
def test_every_cell_is_explained_by_arithmetic_that_gives_its_value(name: str) -> None:
    trace = GIVEN[name].trace()
    layer = trace.layers[0]
    for step in layer.steps:
        for head in range(layer.n_heads if step.per_head else 1):
            matrix = layer.matrix(step.name, head).numpy()
            for q, k in np.ndindex(*matrix.shape):
                explanation = explain(trace, step.name, head=head, q=q, k=k)
                assert "recorded" not in explanation.words, (step.name, explanation.words)
                assert explanation.value == float(matrix[q, k])
                assert explanation.result == explanation.value or explanation.result == approx(explanation.value), (
                    step.name,
                    explanation,
                )
                assert "nan" not in f"{explanation.lines} {explanation.short}"


@pytest.mark.parametrize("name", GIVEN)
def test_copied_python_gives_the_same_numbers(name: str) -> None:
    check(GIVEN[name])


@pytest.mark.parametrize("share", [name for name, normalizer in NORMALIZERS.items() if not normalizer.parameter])
@pytest.mark.parametrize("bias", [(), rows(rand(5, 7, seed=11)), rows(BIAS)], ids=["no bias", "bias", "a float mask"])
def test_copied_python_takes_the_limit_of_temperature_zero(share: str, bias: Any) -> None:
    config = AttentionConfig(temperature=0, normalizer=share, mask="causal")
    scores = torch.tensor([0.0, 1.0, -1.0], dtype=torch.float64)[torch.arange(35).reshape(5, 7) % 3]  # ties, and zeros
    check(Matrices(scores=rows(scores), value=QKV["value"], bias=bias, config=config))


def test_many_numbers_are_read_from_the_exported_file() -> None:
    w = rows(rand(30, 40))
    lines = Matrices(rows(rand(30, 30)), w, w, w, n_heads=4, b_q=rows(rand(40))).snippet
    source = Matrices(rows(rand(30, 30)), w, w, w, n_heads=4, b_q=rows(rand(40)))
    assert 'b_q = torch.from_numpy(exported["L0.b_q"])  # [head d_k]' in lines(source.trace()).lines


def test_bias_of_minus_infinity_hides_and_is_explained() -> None:
    trace = GIVEN["a float mask"].trace()
    q, k = next((q, k) for q, k in np.ndindex(5, 7) if q != 3 and BIAS[q, k] == -INF)
    assert (
        explain(trace, "biased_scores", q=q, k=k).words
        == f"The bias of this pair is −∞: it hides key {k} from query {q} like a mask."
    )
    assert "The bias hides" in explain(trace, "masked_scores", q=q, k=k).words
    assert explain(trace, "weights", q=q, k=k).short == "0: hidden by the bias"
    assert explain(trace, "weights", q=3, k=0).short == "0: the bias hides every key"


def test_trace_size_counts_its_heads() -> None:
    x, w = rows(rand(60, 8)), rows(rand(8, 64))
    small, large = (Matrices(x, w, w, w, n_heads=n) for n in (1, 16))
    assert large.memory_bytes() > 8 * small.memory_bytes() / 2
    with pytest.raises(AttentionError, match="16 heads of 60 × 60 scores"):
        Matrices(x, w, w, w, n_heads=16, max_bytes=1000).trace()


# -- refused inputs ------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Matrices, str]] = {
    "columns": (Matrices(rows(X), **W, n_heads=3), "W_Q is 6 × 8 and is split into 3 heads: its columns must be a multiple of 3; change them,"),
    "W_O's rows": (Matrices(rows(X), **W, n_heads=4, w_o=rows(rand(6, 6))), "W_O is 6 × 6 and is split into 4 heads: its rows must be"),
    "W_O": (Matrices(rows(X), **W, n_heads=2, w_o=rows(rand(6, 6))), "W_V is 6 × 8 but W_O is 6 × 6: W_V's columns must equal W_O's rows."),
    "stack and heads": (Matrices(**STACKS, n_heads=4, bias=()), "Q is a stack of 2 but there are 4 heads: provide one matrix for each head."),
    "three for two": (Matrices(query=rows(rand(2, 5, 3)), key=rows(rand(3, 7, 3)), value=rows(rand(3, 7, 3))), "Q is a stack of 2 but there are 3"),
    "sizes in a stack": (Matrices(query=(((1.0,),), ((1.0, 2.0),)), key=((1.0,),), value=((1.0,),)), "Q needs matrices of equal size; head 1 has 1 × 2"),
    "X as a stack": (Matrices(rows(rand(2, 3, 3))), "X alone has one head"),
    "X alone": (Matrices(rows(X), n_heads=2), "X alone has one head, since there are no projections; got 2 heads: add W_Q, W_K and W_V"),
    "a bias without W_Q": (Matrices(**QKV, b_q=(1.0,) * 8), "b_Q belongs to W_Q; got b_Q alone: add W_Q, or leave out b_Q."),
    "a bias's width": (Matrices(rows(X), **W, b_v=(1.0,) * 3), "b_V is 1 × 3 but W_V is 6 × 8: b_V's columns must equal W_V's columns."),
    "a bias of rows": (Matrices(rows(X), **W, b_v=rows(rand(2, 8))), "b_V is one row, which is added to every row; got 2 × 8: provide one row."),
    "b_O": (Matrices(rows(X), **W, w_o=rows(rand(8, 6)), b_o=(1.0,)), "b_O is 1 × 1 but W_O is 8 × 6"),
    "X₂ with Q": (Matrices(**QKV, memory=rows(X2)), "X₂ belongs to X; got X₂ alone: add X, or leave out X₂."),
    "X₂": (Matrices(rows(X), **W, memory=rows(rand(3, 5))), "X is 5 × 6 but X₂ is 3 × 5: X's columns must equal X₂'s columns."),
    "scores and Q": (Matrices(**QKV, scores=rows(rand(5, 7))), "Attention from scores needs S and V; got Q, K, S and V: leave out Q and K."),
    "scores alone": (Matrices(scores=rows(rand(5, 7))), "Attention from scores needs S and V; got S: add V."),
    "scores and V": (Matrices(scores=rows(rand(5, 6)), value=QKV["value"]), "S is 5 × 6 but V is 7 × 4: S's columns must equal V's rows."),
    "bias": (Matrices(**QKV, bias=rows(rand(5, 6))), "bias is added to the scores, whose shape is 1 × 5 × 7; got 5 × 6: provide 5 × 7 for all heads, or a stack of 1."),
    "NaN": (Matrices(**QKV, bias=((math.nan,) * 7,) * 5), "bias has nan in row 0, column 0, where a finite number or -inf is expected: put a number there."),
    "infinity": (Matrices(**QKV, bias=((INF,) * 7,) * 5), "bias has inf in row 0"),
    "divisor": (Matrices(**QKV, divisor=0.0), "divisor is a number above 0; got 0.0: choose one, or None for √d_k."),
    "divisor NaN": (Matrices(**QKV, divisor=math.nan), "divisor is a number above 0; got nan"),
    "valid": (Matrices(**QKV, valid=8), "valid is the number of real keys, from 1 to 7; got 8: choose one of these."),
    "no heads": (Matrices(**QKV, n_heads=0), "n_heads is a whole number of at least 1; got 0"),
    "too many": (Matrices(query=rows(rand(3, 512, 400)), key=((1.0,) * 400,), value=((1.0,),)), "Q may have at most 512 × 1024 numbers"),
}  # fmt: skip


@pytest.mark.parametrize(("source", "sentence"), REFUSED.values(), ids=REFUSED)
def test_mismatched_head_stacks_are_refused_in_one_sentence(source: Matrices, sentence: str) -> None:
    with pytest.raises(AttentionError) as caught:
        source.trace()
    assert sentence in str(caught.value)


def test_dropout_mask_multiplies_weights_and_is_explained_written_and_carried() -> None:
    drop = ((0.0, 2.0, 1.0, 0.0, 2.0, 2.0, 0.5),) * 5
    source = Matrices(**QKV, dropout_mask=drop, config=AttentionConfig(mask="causal", dropout=0.5))
    trace = source.trace()
    layer = trace.layers[0]
    assert torch.equal(layer["dropped_weights"], layer["weights"] * torch.tensor(drop, dtype=torch.float64))
    assert torch.equal(layer["head_output"], layer["dropped_weights"] @ layer["value"])
    assert layer.formula_of(find_step("dropped_weights")) == "A · dropout_mask, cell by cell"
    words = [explain(trace, "dropped_weights", 0, 0, 4, column).words for column in (0, 1, 2, 5)]
    assert [sentence.split(":")[0] for sentence in words] == [
        "The provided mask sets this weight to 0",
        "The weight, times the cell of the provided mask for query 4 and key 1.",
        "The provided mask has a 1 here",
        "The mask hides key 5 from query 4",
    ]
    doubled = explain(trace, "dropped_weights", 0, 0, 4, 1)
    assert doubled.short.endswith("·2")
    check(source)
    with pytest.raises(
        ShapeError, match="dropout_mask is multiplied with the weights, whose shape is 1 × 5 × 7; got 1 × 1"
    ):
        Matrices(**QKV, dropout_mask=((1.0,),)).trace()
    dropped = TypedText("a b c", AttentionConfig(d_model=8, n_heads=2, dropout=0.5)).trace()
    carried_over = matrices_of_layer(dropped.layers[0])
    assert carried_over is not None
    continued = Matrices(**carried_over.matrices).trace().layers[0]
    assert continued["output"].numpy() == approx(dropped.layers[0]["output"].numpy())
