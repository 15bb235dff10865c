"""`attention.record`: modules as people write them, the names that they get, what is said, and what a recording leaves as it was."""

from __future__ import annotations

import gc
import math
import threading
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from margins import approx
from torch import Tensor, nn

import attention
from attention import Cell, ConfigError, File, MissingError, ModelError, Trace

pytestmark = pytest.mark.quick

WORDS = ("the", "owl", "asked", "the", "moon")
N = len(WORDS)


@pytest.fixture(autouse=True)
def _random_state() -> object:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        yield


class SelfAttention(nn.Module):
    """Causal self-attention with one matrix for Q, K and V, as in nanoGPT."""

    def __init__(self, d_model: int = 16, n_heads: int = 4, dropout: float = 0.0) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.c_attn = nn.Linear(d_model, 3 * d_model)
        self.c_proj = nn.Linear(d_model, d_model)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("seen", torch.tril(torch.ones(8, 8)).view(1, 1, 8, 8))

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.size()
        q, k, v = (part.view(b, n, self.n_heads, -1).transpose(1, 2) for part in self.c_attn(x).split(d, dim=2))
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.seen[:, :, :n, :n] == 0, float("-inf"))
        z = self.dropout(F.softmax(scores, dim=-1)) @ v
        return self.c_proj(z.transpose(1, 2).contiguous().view(b, n, d))


class Network(nn.Module):
    """Two blocks of a text model; the second one is run twice."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.blocks = nn.ModuleList(
            nn.ModuleDict({"norm": nn.LayerNorm(16), "attn": SelfAttention()}) for _ in range(2)
        )
        self.head = nn.Linear(16, 20)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        for block in (*self.blocks, self.blocks[1]):
            x = x + block["attn"](block["norm"](x))
        return self.head(x).softmax(-1)


def rows(*shape: int) -> Tensor:
    return torch.randn(shape or (2, N, 16))


def layer_of(net: Any, *args: Any, **kwargs: Any) -> attention.Layer:
    (layer,) = attention.record(net, *args, **kwargs).layers
    return layer


def test_layers_have_the_names_of_their_modules() -> None:
    trace = attention.record(Network().eval(), torch.arange(N)[None], tokens=WORDS)
    assert [layer.name for layer in trace.layers] == ["blocks.0.attn", "blocks.1.attn", "blocks.1.attn (call 2)"]
    assert trace.tokens == trace.layers[2].key_tokens == WORDS
    assert trace.notes == ()
    assert trace.max_weight_error is not None
    assert trace.max_weight_error == approx(0, scale=1)


def test_both_forms_record_the_same() -> None:
    net, x = SelfAttention(), rows()
    with attention.record(tokens=WORDS, batch=1) as recording:
        output = net(x)
    assert recording.output is output
    first, second = recording.trace().layers[0], layer_of(net, x, tokens=WORDS, batch=1)
    assert [step.name for step, _ in first] == [step.name for step, _ in second]
    assert all(torch.equal(tensor, second[step.name]) for step, tensor in first)
    assert first["output"] == approx(output[1].detach())


def test_recorded_layer_explains_its_cells_and_takes_knobs() -> None:
    trace = attention.record(SelfAttention(), rows(), tokens=WORDS)
    layer = trace.layers[0]
    assert layer.formula is not None
    assert (layer.formula.divisor, layer.formula.mask) == (2.0, attention.formula.mask.Mask("causal"))
    assert set(layer.recorded) >= {"input", "w_q", "w_k", "w_v", "b_q", "b_k", "b_v", "w_o", "b_o"}
    for step in ("query", "scores", "scaled_scores", "weights", "head_output", "output"):
        explanation = attention.explain(trace, *Cell(0, step, 1, 2, 1).address)
        assert explanation.value == approx(float(layer.matrix(step, 1)[2, 1]))
    changed = trace.with_config(attention.Override(temperature=2.0)).layers[0]
    assert changed["weights"] == approx((layer["masked_scores"] / 2).softmax(-1))


def test_recorded_trace_is_saved_and_opened_again(tmp_path: Any) -> None:
    trace = attention.record(SelfAttention(), rows(), tokens=WORDS)
    trace.save(tmp_path / "t.npz")
    opened = File.open(tmp_path / "t.npz").trace().layers[0]
    for step, tensor in trace.layers[0]:
        assert opened[step.name] == approx(tensor)


class Tutorial(nn.Module):
    """One head, in a way that a test chooses."""

    def __init__(self, way: Any) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(16, 16) for _ in range(3))
        self.way = way

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.way(self.q(x), self.k(x), self.v(x))
        return result


def _one_plus(scores: Tensor) -> Tensor:
    e = torch.exp(scores)
    return e / (1 + e.sum(-1, keepdim=True))


def _masked_exponentials(scores: Tensor) -> Tensor:
    e = torch.exp(scores - scores.amax(-1, keepdim=True)) * torch.ones(N, N).tril()
    return e / e.sum(-1, keepdim=True)


FITTING = {
    "sum of products": lambda q, k, v: ((q[:, :, None] * k[:, None]).sum(-1) / 4).softmax(-1) @ v,
    "sum of weighted values": lambda q, k, v: ((q @ k.mT / 4).softmax(-1)[..., None] * v[:, None]).sum(2),
    "values before weights": lambda q, k, v: torch.bmm(v.mT, (q @ k.mT / 4).softmax(-1).mT).mT,
    "keys before queries": lambda q, k, v: (k @ q.mT / 4).softmax(1).mT @ v,
    "log softmax": lambda q, k, v: (q @ k.mT / 4).log_softmax(-1).exp() @ v,
    "one in the sum": lambda q, k, v: _one_plus(q @ k.mT / 4) @ v,
    "exponentials times a mask": lambda q, k, v: _masked_exponentials(q @ k.mT / 4) @ v,
    "scores times a mask": lambda q, k, v: (
        ((q @ k.mT / 4) * torch.ones(N, N).tril() - 1e10 * torch.ones(N, N).triu(1)).softmax(-1) @ v
    ),
    "two biases": lambda q, k, v: (q @ k.mT / 4 + torch.eye(N) + torch.eye(N).flip(0)).softmax(-1) @ v,
    "a query that sees no key": lambda q, k, v: (
        (q @ k.mT / 4).masked_fill(torch.eye(N)[0][:, None] == 1, -torch.inf).softmax(-1) @ v
    ),
    "one score of a tanh": lambda q, k, v: (30 * torch.tanh(q @ k.mT / 4 / 30)).softmax(-1) @ v,
}


@pytest.mark.parametrize("way", FITTING)
def test_formula_gives_the_output_of_the_code(way: str) -> None:
    net, x = Tutorial(FITTING[way]), rows()
    layer = layer_of(net, x, batch=1)
    assert layer.formula is not None
    assert {"w_q", "w_k", "w_v"} <= layer.recorded.keys()
    assert layer["head_output"][0] == approx(net(x)[1].detach().nan_to_num())


AS_RECORDED = {
    "its weights come out of sigmoid": lambda q, k, v: torch.sigmoid(q @ k.mT / 4) @ v,
    "writes 1e-09 into scores": lambda q, k, v: (
        (q @ k.mT / 4).masked_fill(torch.ones(N, N).triu(1) == 1, 1e-9).softmax(-1) @ v
    ),
    "relu changes its scores": lambda q, k, v: (q @ k.mT / 4).relu().softmax(-1) @ v,
    "scales the scores after it masks": lambda q, k, v: (
        ((q @ k.mT).masked_fill(torch.ones(N, N).triu(1) == 1, -torch.inf) / 4).softmax(-1) @ v
    ),
    "changes the weights before they multiply the values, by mul": lambda q, k, v: (
        (q @ k.mT / 4).softmax(-1) * torch.linspace(0, 1, N) @ v
    ),
}


@pytest.mark.parametrize("reason", AS_RECORDED)
def test_other_code_is_recorded_as_it_is_and_says_why(reason: str) -> None:
    net, x = Tutorial(AS_RECORDED[reason]), rows()
    trace = attention.record(net, x)
    (layer,) = trace.layers
    assert layer.formula is None
    said = " ".join((*trace.notes, *layer.provenance.values()))
    assert reason in said
    assert "test_record.py:" in said
    last = layer["dropped_weights"] if layer.has("dropped_weights") else layer["weights"]
    assert last @ layer["value"] == approx(layer["head_output"])
    assert layer["head_output"][0] == approx(net(x)[0].detach())
    assert layer["scores"] == approx(layer["query"] @ layer["key"].mT)


REFUSED = {
    "along the axis over which": lambda q, k, v: (q @ k.mT / 4).softmax(1) @ v,
    "over the features of a projection": lambda q, k, v: q.softmax(-1) @ (k.mT @ v),
    "1 softmax ran, none of which was seen": lambda q, k, v: (q @ k.mT).softmax(-1),
    "no softmax ran": lambda q, k, v: q @ (k.mT @ v),
    "a transform of torch.func": lambda q, k, v: torch.func.vmap(lambda a: (a @ a.mT).softmax(-1) @ a)(q),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_code_without_attention_is_refused_with_what_was_seen(reason: str) -> None:
    with pytest.raises(ModelError, match=reason) as raised:
        attention.record(Tutorial(REFUSED[reason]), rows())
    assert "with attention.record() as recording" in str(raised.value)


def test_talking_heads_are_recorded_as_they_are() -> None:
    mix = nn.Parameter(torch.randn(4, 4))
    x = rows(2, 4, N, 8)

    def talking(x: Tensor) -> Tensor:
        scores = torch.einsum("bhij,hg->bgij", x @ x.mT, mix)
        weights = torch.einsum("bhij,hg->bgij", scores.softmax(-1), mix)
        return weights @ x

    trace = attention.record(talking, x)
    layer = trace.layers[0]
    assert layer["head_output"] == approx(talking(x)[0].detach())
    assert layer["dropped_weights"] @ x[0] == approx(layer["head_output"])
    assert "einsum changes its scores" in trace.notes[0]


def test_learned_query_is_said() -> None:
    query = nn.Parameter(torch.randn(3, 16))
    keys = nn.Linear(16, 16)
    layer = layer_of(lambda x: (query @ keys(x).mT / 4).softmax(-1) @ x, rows(), key_tokens=WORDS)
    assert layer.provenance["query"].startswith("A learned query")
    assert (layer.tokens, layer.key_tokens) == (("x0", "x1", "x2"), WORDS)
    assert layer.w_k is not None
    assert layer.memory is not None


def test_queries_in_windows_are_elements_of_the_batch() -> None:
    net = SelfAttention()
    windows = rows(1, 8, 16).unflatten(1, (2, 4)).flatten(0, 1)
    trace = attention.record(net, windows, batch=1, tokens=WORDS)
    assert trace.layers[0]["output"] == approx(net(windows)[1].detach())
    assert trace.tokens == ("x0", "x1", "x2", "x3")
    assert "5 tokens and another number of positions" in trace.notes[0]
    assert "element 1 of a batch of 2" in trace.notes[1]


def test_grid_makes_patches_of_positions() -> None:
    class Pictures(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = (nn.Conv2d(16, 8, 1) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (conv(x).flatten(2) for conv in (self.q, self.k, self.v))
            return torch.bmm(v, torch.bmm(q.mT, k).softmax(-1).mT)

    net, x = Pictures(), rows(1, 16, 2, 3)
    trace = attention.record(net, x, places=(2, 3))
    assert [str(token) for token in trace.tokens[:2]] == ["patch row 0, column 0", "patch row 0, column 1"]
    assert trace.layers[0]["head_output"][0] == approx(net(x)[0].detach().mT)
    assert trace.layers[0].w_v is not None
    with pytest.raises(ConfigError, match=r"write places=\(14, 14\)"):
        attention.record(net, x, places=(2, 0))


def test_later_changes_in_place_change_no_recorded_number() -> None:
    x, mask = rows(1, N, 16)[0], torch.zeros(N, N)

    def attend(x: Tensor) -> Tensor:
        q, k, v = x.clone(), x.clone(), x.clone()
        q.mul_(0.25)
        scores = q @ k.T
        q.zero_()
        scores += mask
        weights = scores.softmax(-1)
        output = weights @ v
        for tensor in (k, v, scores, weights, mask):
            tensor.fill_(7)
        return output

    layer = layer_of(attend, x)
    assert layer["query"][0] == approx(x)
    assert layer["weights"][0] == approx((x @ x.T / 4).softmax(-1))
    assert layer["value"][0] == approx(x)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64], ids=str)
def test_modes_and_dtypes_have_a_formula(mode: Any, dtype: torch.dtype) -> None:
    net, x = SelfAttention().to(dtype), rows().to(dtype)
    with mode():
        layer = layer_of(net, x)
        expected = net(x)[0].detach().float()
    assert layer.formula is not None
    assert layer.w_q is not None
    assert layer["output"] == approx(expected, dtype=dtype if dtype.itemsize == 2 else torch.float32)


def test_device_of_new_tensors_is_the_user_s() -> None:
    """As after `torch.set_default_device("cuda")`."""
    net, x = SelfAttention(), torch.randn(2, 5, 16)
    expected = attention.record(net, x).layers[0]
    with torch.device("meta"):
        trace = attention.record(net, x)
    assert not [note for note in trace.notes if "batch" not in note]
    assert torch.equal(trace.layers[0].weights, expected.weights)
    assert torch.equal(trace.layers[0]["w_q"], expected["w_q"])


def test_autocast_is_recorded() -> None:
    net = SelfAttention()
    with torch.autocast("cpu", torch.bfloat16):
        trace = attention.record(net, rows())
    assert trace.layers[0].formula is not None
    assert trace.max_weight_error is not None
    assert trace.max_weight_error > 1e-6
    assert trace.max_weight_error == approx(0, scale=1, dtype="bfloat16")


@pytest.mark.slow
def test_compiled_module_is_run_uncompiled() -> None:
    net, x = SelfAttention(), rows()
    assert torch.equal(layer_of(torch.compile(net, backend="eager"), x)["weights"], layer_of(net, x)["weights"])


def test_dropout_in_training_is_recorded() -> None:
    net, x = SelfAttention(dropout=0.5), rows()
    torch.manual_seed(3)
    expected = net(x)
    torch.manual_seed(3)
    layer = layer_of(net, x)
    assert {0.0, 2.0} == {*layer["dropout_mask"].flatten().tolist()}
    assert layer["output"] == approx(expected[0].detach())


def test_nested_recordings_and_threads_see_their_own_calls() -> None:
    net, x, counts = SelfAttention(), rows(), dict[int, int]()
    with attention.record() as outer:
        with attention.record() as inner:
            net(x)
        net(x)
    assert [len(recording.trace().layers) for recording in (inner, outer)] == [1, 2]

    def work(number: int) -> None:
        with attention.record() as recording:
            for _ in range(number):
                net(x)
        counts[number] = len(recording.trace().layers)

    threads = [threading.Thread(target=work, args=(number,)) for number in (1, 2, 3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == {1: 1, 2: 2, 3: 3}


def test_exception_of_the_code_passes_and_nothing_stays() -> None:
    class Broken(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise KeyError("of the code")

    with pytest.raises(KeyError, match="of the code"):
        attention.record(Broken(), rows())
    hooks = torch.nn.modules.module
    assert not hooks._global_forward_hooks
    assert not hooks._global_forward_pre_hooks
    assert torch.overrides._get_current_function_mode() is None


def test_recording_holds_no_tensor_of_the_pass() -> None:
    net, alive = Network().eval(), list[Any]()
    for module in net.modules():
        module.register_forward_hook(lambda _, __, output: alive.append(weakref.ref(output)))
    with torch.no_grad(), attention.record() as recording:
        net(torch.arange(N)[None])
    trace = recording.trace()
    del recording
    gc.collect()
    assert not any(reference() is not None for reference in alive)
    assert isinstance(trace, Trace)


def test_limits_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    from attention.recording import record as recorder

    net, ids = Network().eval(), torch.arange(N)[None]
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "_MAX_BYTES", 100)
        trace = attention.record(net, ids)
    assert len(trace.layers) == 1
    assert "record a part of the network" in trace.notes[-1]
    monkeypatch.setattr(recorder, "_MAX_CELLS", 10)
    with pytest.raises(ModelError, match="100 weights, and at most 10 are read"):
        attention.record(net, ids)


def test_wrong_arguments_are_one_sentence() -> None:
    net, x = SelfAttention(), rows()
    with pytest.raises(ConfigError, match="tokens is a list of words"):
        attention.record(net, x, tokens="the owl")
    for value, way in ((5, "got 5: give one"), (SelfAttention, r"make one, such as SelfAttention\(…\)")):
        with pytest.raises(ConfigError, match=way):
            attention.record(value, x)
    with pytest.raises(MissingError, match="elements of the batch count from 0 to 1; got 2"):
        attention.record(net, x, batch=2)
    with pytest.raises(ModelError, match="nothing has"):
        attention.record().trace()
    with attention.record() as recording:
        pass
    with pytest.raises(ConfigError, match="has begun already"), recording:
        pass
