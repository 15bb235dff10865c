"""Attention inside of torch: nn.MultiheadAttention, its function, nn.Transformer and its fast path give the weights that torch returns when asked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from margins import approx
from test_record_contract import BATCH, DTYPES, ELEMENT, LENGTH, assert_same_numbers, record_unchanged, rows
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import attention
from attention import Layer, MissingError, ModelError

WIDTH, HEADS = 16, 4
WEIGHTS = {"need_weights": True, "average_attn_weights": False}
VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {}, "positions first": {"batch_first": False}, "no bias": {"bias": False}, "other keys": {"kdim": 6, "vdim": 10},
    "keys as wide": {"kdim": WIDTH, "vdim": WIDTH}, "bias_k": {"add_bias_kv": True}, "zero": {"add_zero_attn": True},
    "both": {"add_bias_kv": True, "add_zero_attn": True}, "one head": {"num_heads": 1}, "in training": {},
}  # fmt: skip
MASKS = ("none", "causal", "float", "each head", "padding", "padding in numbers", "causal and padding")

pytestmark = [pytest.mark.quick, pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")]


def make(variant: str, dtype: torch.dtype) -> nn.MultiheadAttention:
    """A module of a variant, whose weights differ."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        module = nn.MultiheadAttention(
            **{"embed_dim": WIDTH, "num_heads": HEADS, "batch_first": True, "dtype": dtype, **VARIANTS[variant]}
        )
        for parameter in module.parameters():
            parameter.data = torch.randn_like(parameter) / 4
    return module.train(variant == "in training")


def masks(name: str, dtype: torch.dtype, n_heads: int) -> dict[str, Tensor]:
    """The arguments of a mask."""
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).triu(1)
    padding = torch.zeros(BATCH, LENGTH, dtype=torch.bool)
    padding[ELEMENT, -2:] = True
    numbers = rows(dtype, BATCH * n_heads, LENGTH, LENGTH)
    hides = torch.zeros_like(padding, dtype=dtype).masked_fill(padding, -math.inf)
    return {
        "none": {}, "causal": {"attn_mask": causal}, "float": {"attn_mask": numbers[0].masked_fill(causal, -math.inf)},
        "each head": {"attn_mask": numbers}, "padding": {"key_padding_mask": padding},
        "padding in numbers": {"key_padding_mask": hides}, "causal and padding": {"attn_mask": causal, "key_padding_mask": padding},
    }[name]  # fmt: skip


@pytest.mark.sample(11)
@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("variant", VARIANTS)
def test_each_variant_gives_the_weights_that_torch_returns(variant: str, dtype: torch.dtype) -> None:
    net = make(variant, dtype)
    for mask, with_gradients, needs_weights in product(MASKS, (False, True), (False, True)):
        arguments = masks(mask, dtype, net.num_heads) | {"need_weights": needs_weights}
        x, keys, values = (rows(dtype, BATCH, LENGTH, width) for width in (WIDTH, net.kdim, net.vdim))
        x, keys, values = (part if net.batch_first else part.transpose(0, 1) for part in (x, keys, values))
        inputs = (x, x, x) if net.kdim == WIDTH and "keys" not in variant else (x, keys, values)
        with torch.set_grad_enabled(with_gradients):
            trace = record_unchanged(net, *inputs, first=lambda output: output[0], **arguments)
            output, weights = net(*inputs, **(arguments | WEIGHTS))
        (layer,) = trace.layers
        assert_same_numbers(layer["weights"], weights[ELEMENT])
        element = output[ELEMENT] if net.batch_first else output[:, ELEMENT]
        assert_same_numbers(layer["output"], element)
        assert layer.formula is not None
        assert trace.max_weight_error is not None
        assert trace.max_weight_error == approx(0, scale=1, dtype=dtype if dtype.itemsize == 2 else torch.float32)
        assert layer.has("w_q")
        assert layer.key_tokens[LENGTH:] == tuple(
            name for name, has in (("bias_k", net.bias_k is not None), ("zero", net.add_zero_attn)) if has
        )


def explained(layer: Layer) -> bool:
    """Whether Q, K and V of a layer are its input times its parameters, and its output is one of them."""
    from attention.formula.functions import project, project_output

    x, memory = layer["input"], layer.memory if layer.memory is not None else layer["input"]
    pairs = [(project(x, layer["w_q"], layer.b_q), layer["query"]), (project(memory, layer["w_k"], layer.b_k), layer["key"]),
             (project(memory, layer["w_v"], layer.b_v), layer["value"]),
             (project_output(layer["head_output"], layer["w_o"], layer.b_o), layer["output"])]  # fmt: skip
    return all(ours == approx(theirs) for ours, theirs in pairs)


def test_a_module_is_explained_from_its_input_and_parameters() -> None:
    x, memory = rows(torch.float32, BATCH, LENGTH, WIDTH), rows(torch.float32, BATCH, 7, WIDTH).flip(1)
    for key in (x, memory):
        (layer,) = record_unchanged(make("plain", torch.float32), x, key, key, first=lambda output: output[0]).layers
        assert explained(layer)
        assert len(layer.key_tokens) == key.shape[1]


def encoder(**options: Any) -> nn.TransformerEncoder:
    """An encoder of two layers, in eval mode."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 32, batch_first=True, **options)
        return nn.TransformerEncoder(layer, 2, enable_nested_tensor=not options.get("norm_first")).eval()


def expected_weights(net: nn.TransformerEncoder, x: Tensor, **arguments: Any) -> Iterator[Tensor]:
    """The weights [batch head query_pos key_pos] of every layer of an encoder, from its modules of attention."""
    for layer in net.layers:
        assert isinstance(layer, nn.TransformerEncoderLayer)
        inner = layer.norm1(x) if layer.norm_first else x
        yield layer.self_attn(inner, inner, inner, **WEIGHTS, **arguments)[1].detach()
        x = layer(x, src_mask=arguments.get("attn_mask"), src_key_padding_mask=arguments.get("key_padding_mask"))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_the_fast_path_of_an_encoder_stays_and_is_recorded(norm_first: bool, activation: str) -> None:
    net, x = encoder(norm_first=norm_first, activation=activation), rows(torch.float32, BATCH, LENGTH, WIDTH)
    for mask, with_gradients in product(
        ("none", "causal", "each head", "padding", "causal and padding"), (False, True)
    ):
        arguments = masks(mask, torch.float32, HEADS)
        if mask == "each head":
            arguments["attn_mask"] = (arguments["attn_mask"] > 0.5).triu(1)
        named = {"mask": arguments.get("attn_mask"), "src_key_padding_mask": arguments.get("key_padding_mask")}
        with torch.set_grad_enabled(with_gradients):
            trace = record_unchanged(net, x, **named, batch=0)
        assert [layer.name for layer in trace.layers] == ["layers.0.self_attn", "layers.1.self_attn"]
        for layer, weights in zip(trace.layers, expected_weights(net, x, **arguments), strict=True):
            assert_same_numbers(layer["weights"], weights[0])
            assert explained(layer)


def test_c11_an_encoder_in_eval_mode() -> None:
    net = encoder()
    x = torch.randn(1, 5, 16)
    trace = attention.record(net, x, tokens=["the", "cat", "sat", "down", "."])
    assert trace.tokens == ("the", "cat", "sat", "down", ".")
    for layer, weights in zip(trace.layers, expected_weights(net, x), strict=True):
        assert_same_numbers(layer["weights"], weights[0])


def test_padding_that_the_fast_path_leaves_out_is_not_shown() -> None:
    net, x = encoder(), rows(torch.float32, BATCH, LENGTH, WIDTH)
    padding = masks("padding", torch.float32, HEADS)["key_padding_mask"]
    words = tuple("abcde")
    with torch.no_grad():
        trace = attention.record(net, x, src_key_padding_mask=padding, tokens=words, batch=ELEMENT)
    weights = next(expected_weights(net, x[ELEMENT : ELEMENT + 1, :3]))
    assert trace.layers[0].tokens == words[:3]
    assert_same_numbers(trace.layers[0]["weights"], weights[0])


def test_rows_that_are_nested_are_recorded_one_by_one() -> None:
    net, x = make("plain", torch.float32), rows(torch.float32, BATCH, LENGTH, WIDTH)
    nested = torch.nested.nested_tensor([x[0], x[1, :3]])
    with torch.no_grad(), attention.record(batch=ELEMENT, tokens=tuple("abcde")) as recording:
        net(nested, nested, nested, need_weights=False)
    (layer,) = recording.trace().layers
    assert layer.tokens == tuple("abc")
    assert_same_numbers(layer["weights"], net(x[1:, :3], x[1:, :3], x[1:, :3], **WEIGHTS)[1][0])


def test_a_mask_of_numbers_hides_in_the_fast_path() -> None:
    net = encoder()
    layer, x = net.layers[0], rows(torch.float32, BATCH, LENGTH, WIDTH)
    distances = (torch.arange(LENGTH)[:, None] - torch.arange(LENGTH)).abs().float()
    with torch.no_grad():
        trace = record_unchanged(layer, x, src_mask=-distances)
    assert any("fast path" in note for note in trace.notes)
    assert_same_numbers(trace.layers[0]["weights"], torch.eye(LENGTH).expand(HEADS, -1, -1))
    trace = record_unchanged(layer, x, src_mask=-distances)
    assert not any("fast path" in note for note in trace.notes)
    assert float(trace.layers[0]["weights"].min()) > 0


@pytest.mark.parametrize("with_gradients", [False, True])
def test_decoder_and_transformer_are_recorded_in_order(with_gradients: bool) -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = nn.Transformer(WIDTH, HEADS, 1, 2, 32, batch_first=True).eval()
    source, target = rows(torch.float32, BATCH, 7, WIDTH), rows(torch.float32, BATCH, LENGTH, WIDTH)
    causal = nn.Transformer.generate_square_subsequent_mask(LENGTH)
    with torch.set_grad_enabled(with_gradients):
        trace = record_unchanged(net, source, target, tgt_mask=causal, tgt_is_causal=True)
        memory = net.encoder(source)
    names = ["encoder.layers.0.self_attn"]
    names += [f"decoder.layers.{i}.{part}" for i in (0, 1) for part in ("self_attn", "multihead_attn")]
    assert [layer.name for layer in trace.layers] == names
    assert [layer.sizes["key_pos"] for layer in trace.layers] == [7, 5, 7, 5, 7]
    assert all(map(explained, trace.layers))
    first = net.decoder.layers[0]
    weights = first.self_attn(target, target, target, attn_mask=causal, **WEIGHTS)[1][ELEMENT]
    assert_same_numbers(trace.layers[1]["weights"], weights)
    assert_same_numbers(trace.layers[2]["memory"], memory[ELEMENT])


def test_a_wrong_causal_hint_is_shown_as_torch_takes_it() -> None:
    net, x = make("plain", torch.float32), rows(torch.float32, BATCH, LENGTH, WIDTH)
    nothing = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    hidden = {}
    for with_gradients in (False, True):
        with torch.set_grad_enabled(with_gradients):
            trace = record_unchanged(
                net, x, x, x, attn_mask=nothing, is_causal=True, need_weights=False, first=lambda output: output[0]
            )
        hidden[with_gradients] = int((trace.layers[0]["weights"] == 0).sum())
    assert hidden == {False: 0, True: HEADS * LENGTH * (LENGTH - 1) // 2}  # the fast path ignores the hint


def test_dropout_is_shown_where_torch_returns_it() -> None:
    net, x = make("plain", torch.float32).train(), rows(torch.float32, BATCH, LENGTH, WIDTH)
    net.dropout = 0.5
    trace = record_unchanged(net, x, x, x, first=lambda output: output[0], average_attn_weights=False)
    torch.manual_seed(5)
    dropped = net(x, x, x, average_attn_weights=False)[1][ELEMENT]
    assert_same_numbers(trace.layers[0]["dropped_weights"], dropped)
    assert explained(trace.layers[0])
    trace = record_unchanged(net, x, x, x, first=lambda output: output[0])
    assert any("Dropout" in note for note in trace.notes)
    assert_same_numbers(trace.layers[0]["weights"].sum(-1), torch.ones(HEADS, LENGTH))


def test_a_query_without_keys_has_weights_of_zero() -> None:
    net, x = make("plain", torch.float32), rows(torch.float32, BATCH, LENGTH, WIDTH)
    mask = torch.zeros(LENGTH, LENGTH, dtype=torch.bool)
    mask[2] = True
    trace = record_unchanged(
        net, x, x, x, attn_mask=mask, need_weights=False, first=lambda output: output[0].nan_to_num(7)
    )
    assert any("every key" in note for note in trace.notes)
    assert not trace.layers[0]["weights"][:, 2].any()
    assert (trace.layers[0]["weights"][:, 1] > 0).all()


class Pool(nn.Module):
    """The first row attends to all, as CLIP's AttentionPool2d writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.c_proj = nn.Linear(WIDTH, 6)

    def forward(self, x: Tensor) -> Tensor:
        output, _ = F.multi_head_attention_forward(
            query=x[:1], key=x, value=x, embed_dim_to_check=WIDTH, num_heads=HEADS, in_proj_weight=None,
            q_proj_weight=self.q_proj.weight, k_proj_weight=self.k_proj.weight, v_proj_weight=self.v_proj.weight,
            in_proj_bias=torch.cat([self.q_proj.bias, self.k_proj.bias, self.v_proj.bias]), bias_k=None, bias_v=None,
            add_zero_attn=False, dropout_p=0.0, out_proj_weight=self.c_proj.weight, out_proj_bias=self.c_proj.bias,
            use_separate_proj_weight=True, training=self.training, need_weights=False,
        )  # fmt: skip
        return output.squeeze(0)


def test_the_function_of_torch_called_alone_is_recorded() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Pool()
    x = rows(torch.float32, LENGTH, BATCH, WIDTH)
    (layer,) = record_unchanged(net, x).layers
    query, key, value = (
        linear(x).unflatten(-1, (HEADS, -1))[:, ELEMENT].transpose(0, 1)
        for linear in (net.q_proj, net.k_proj, net.v_proj)
    )
    weights = (query[:, :1] @ key.mT / 2).softmax(-1).detach()
    assert layer.sizes["query_pos"] == 1
    assert_same_numbers(layer["weights"], weights)
    assert_same_numbers(layer["head_output"], weights @ value)
    assert_same_numbers(layer["output"], net(x)[ELEMENT : ELEMENT + 1])


def test_values_from_other_rows_are_recorded_without_projection() -> None:
    """As in DETR, whose queries and keys have positions that its values have not."""
    net, x = make("positions first", torch.float32), rows(torch.float32, LENGTH, BATCH, WIDTH)
    q = k = x + rows(torch.float32, LENGTH, 1, WIDTH)
    (layer,) = record_unchanged(net, q, k, value=x, first=lambda output: output[0]).layers
    assert layer.w_v is None
    assert_same_numbers(layer["input"], q[:, ELEMENT])
    weights = net(q, k, value=x, **WEIGHTS)[1][ELEMENT]
    assert_same_numbers(layer["weights"], weights)


class Louder(nn.MultiheadAttention):
    """A subclass that changes its query."""

    def forward(self, query: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        return super().forward(query * 2, *args, **kwargs)


def test_a_subclass_is_recorded_as_it_calls_torch() -> None:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        net = Louder(WIDTH, HEADS, batch_first=True)
    x = rows(torch.float32, BATCH, LENGTH, WIDTH)
    (layer,) = record_unchanged(net, x, x, x, first=lambda output: output[0]).layers
    assert_same_numbers(layer["input"], 2 * x[ELEMENT])
    assert_same_numbers(layer["weights"], net(x, x, x, **WEIGHTS)[1][ELEMENT])


class Mean(nn.Module):
    """Something that stands where an encoder layer has its attention, and attends by hand."""

    batch_first, in_proj_bias = True, None

    def forward(self, query: Tensor, key: Tensor, value: Tensor, **_: Any) -> tuple[Tensor, None]:
        return (query @ key.mT).softmax(-1) @ value, None


def test_an_own_attention_inside_of_an_encoder_layer_is_followed() -> None:
    net = encoder().layers[0]
    net.self_attn = Mean()
    x = rows(torch.float32, BATCH, LENGTH, WIDTH)
    (layer,) = record_unchanged(net, x).layers
    assert layer.name == "self_attn"
    assert_same_numbers(layer["weights"][0], (x[ELEMENT] @ x[ELEMENT].mT).softmax(-1))


def test_an_element_that_the_batch_has_not_is_refused() -> None:
    net, x = make("plain", torch.float32), rows(torch.float32, BATCH, LENGTH, WIDTH)
    with pytest.raises(MissingError, match="from 0 to 1; got 7"):
        attention.record(net, x, x, x, batch=7)


def test_a_module_inside_of_vmap_runs_as_without() -> None:
    net, x = make("plain", torch.float32), rows(torch.float32, 3, BATCH, LENGTH, WIDTH)
    expected = torch.vmap(lambda part: net(part, part, part)[0])(x)
    with attention.record() as recording:
        output = torch.vmap(lambda part: net(part, part, part)[0])(x)
    assert torch.equal(output, expected)
    with pytest.raises(ModelError, match="vmap"):
        recording.trace()


def test_an_interrupt_leaves_no_mode_behind() -> None:
    net = encoder().layers[0]
    x = rows(torch.float32, BATCH, LENGTH, WIDTH)
    net.norm1.register_forward_hook(lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))

    class Outer(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    with Outer() as outer:
        with pytest.raises(KeyboardInterrupt), attention.record():
            net(x)
        assert torch.overrides._get_current_function_mode() is outer


def test_an_exception_passes_and_leaves_nothing_behind() -> None:
    net = encoder()
    with pytest.raises(RuntimeError), attention.record():
        net.layers[0].self_attn(rows(torch.float32, 1, 2, WIDTH), rows(), rows())
    assert not torch._C._is_torch_function_mode_enabled()
    modules = torch.nn.modules.module
    assert not modules._global_forward_hooks
    assert not modules._global_forward_pre_hooks
