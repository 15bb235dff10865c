"""A user's model is as before after it was recorded: its output to the bit, its state, its hooks; after any exception too."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from margins import approx
from test_model import CAT, OWL, TWO_TEXTS
from test_model_in_memory import check_equal, load
from tiny_models import TinyModels
from torch import Tensor, nn
from transformers.utils import logging

from attention import Intervention, Model, ModelError
from attention.models import forward_pass, in_memory, running

HOOKS = (
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
)


def state(model: Any) -> Any:
    """Everything of a model, and of the process, that a recorded pass could change."""
    configs = {id(module.config): module.config for module in model.modules() if hasattr(module, "config")}
    generation = getattr(model, "generation_config", None)
    return {
        "implementations": [vars(config)["_attn_implementation_internal"] for config in configs.values()],
        "configs": [config.to_dict() for config in configs.values()],
        "modules": [(id(module), sorted(vars(module))) for module in model.modules()],
        "training": [module.training for module in model.modules()],
        "hooks": [list(vars(module).get(name, ())) for module in model.modules() for name in HOOKS],
        "parameters": [
            (id(p), p.data_ptr(), p._version, p.dtype, p.requires_grad, p.grad is None) for p in model.parameters()
        ],
        "buffers": [(b.data_ptr(), b._version) for b in model.buffers()],
        "generation": None if generation is None else generation.to_dict(),
        "random": torch.get_rng_state().tolist(),
        "warnings": list(warnings.filters),
        "verbosity": logging.get_verbosity(),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
    }  # fmt: skip


@pytest.fixture
def used(tiny: TinyModels) -> Callable[..., Any]:
    """Returns a model in the middle of its training: with hooks, dropout, frozen parts and a part in eval mode."""

    def prepare(family: str, implementation: str = "sdpa", dtype: torch.dtype = torch.float32) -> Any:
        model = load(tiny, family, implementation, dtype)
        model.train()
        children = [*model.children()]
        children[0].eval()
        next(model.parameters()).requires_grad_(False)
        model.register_forward_hook(lambda *_: None)
        children[0].register_forward_pre_hook(lambda *_: None)
        torch.manual_seed(7)
        return model

    return prepare


def ids_of(model: Any, tokenizer: Any) -> dict[str, Tensor]:
    ids = {"input_ids": tokenizer(OWL, return_tensors="pt")["input_ids"]}
    if model.config.is_encoder_decoder:
        second = tokenizer(CAT, return_tensors="pt")["input_ids"]
        ids["decoder_input_ids"] = torch.cat([torch.tensor([[running.start_id(model)]]), second], dim=1)
    return ids


def output_of(model: Any, tokenizer: Any) -> Tensor:
    """What the user computes, in eval mode."""
    with torch.no_grad():
        output = model(**ids_of(model, tokenizer))
    result: Tensor = output["logits" if "logits" in output else "last_hidden_state"]
    return result.clone()


@pytest.mark.sample(9)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("family", ["GPT-2", "BERT", "Llama", "Mistral", "GPT-NeoX", "ModernBERT", "T5", "BART"])
def test_output_is_equal_to_the_bit_before_during_and_after(
    tiny: TinyModels, tokenizer: Any, family: str, implementation: str, dtype: torch.dtype
) -> None:
    model = load(tiny, family, implementation, dtype).eval()
    before, during = output_of(model, tokenizer), list[Tensor]()

    def note(_: Any, __: Any, output: Any) -> None:
        during.append(output["logits" if "logits" in output else "last_hidden_state"].clone())

    hook = model.register_forward_hook(note)
    source = Model.of(model, tokenizer, OWL, text2=CAT if family in TWO_TEXTS else "")
    trace = source.trace()
    hook.remove()
    assert torch.equal(during[-1], before)
    assert torch.equal(output_of(model, tokenizer), before)
    for prediction in trace.predictions:
        assert torch.equal(prediction.all_logits, before[0, prediction.position].float())


@pytest.mark.parametrize("family", ["GPT-2", "BART", "Falcon", "GPT-Neo"])
def test_model_in_use_keeps_its_whole_state(used: Callable[..., Any], tokenizer: Any, family: str) -> None:
    model = used(family, "sdpa" if family != "GPT-Neo" else "eager")
    before = state(model)
    source = Model.of(model, tokenizer, OWL)
    trace = source.trace()
    assert trace.layers
    assert state(model) == before
    if family != "GPT-2":
        return
    changed = Model.of(model, tokenizer, OWL, generate=3, interventions=(Intervention(0, 1, ablate="zero"),))
    assert changed.trace().changes
    assert Model.of(model, tokenizer, OWL, generate=3, generate_temperature=2.0).trace().generated == 3
    assert state(model) == before
    check_equal(trace, source.trace())  # dropout would make them differ


class Interrupt(BaseException):
    """Stands for Ctrl-C, which is no Exception either."""


@pytest.mark.sample(3)
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Interrupt])
@pytest.mark.parametrize("n_calls", [1, 3, 6, 8, 9])
def test_model_keeps_its_state_after_an_exception(
    used: Callable[..., Any], tokenizer: Any, error: type[BaseException], n_calls: int
) -> None:
    """The calls 1 to 4 look for the attention modules of two layers, 5 to 8 compare the output; the ninth is recorded."""
    model, calls = used("Llama"), list[str]()

    def fail(module: nn.Module, *_: Any) -> None:
        calls.append(model.config._attn_implementation)
        if len(calls) == n_calls:
            raise error("owl")

    hooks = [layer.self_attn.register_forward_pre_hook(fail) for layer in model.model.layers]
    before = state(model)
    with pytest.raises(ModelError if error is ValueError else error, match="owl"):
        Model.of(model, tokenizer, OWL).trace()
    assert state(model) == before
    assert calls == ["lab_sdpa" if number not in (7, 8) else "sdpa" for number in range(1, n_calls + 1)]
    for hook in hooks:
        hook.remove()
    assert Model.of(model, tokenizer, OWL).trace().layers


@pytest.mark.parametrize("name", ["_build_layer", "_compare"])
def test_model_keeps_its_state_if_recording_fails(
    used: Callable[..., Any], tokenizer: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = used("Gemma 3")
    before = state(model)

    def fail(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(forward_pass, name, fail)
        with pytest.raises(KeyboardInterrupt):
            Model.of(model, tokenizer, OWL).trace()
    assert state(model) == before
    assert Model.of(model, tokenizer, OWL).trace().layers


def test_interrupted_preparation_is_taken_back(
    used: Callable[..., Any], tokenizer: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, n_replaced, replace = used("BERT"), 0, in_memory._replace

    def interrupt(*args: Any) -> None:
        nonlocal n_replaced
        n_replaced += 1
        replace(*args)
        if n_replaced == 20:
            raise KeyboardInterrupt

    before = state(model)
    with monkeypatch.context() as patch:
        patch.setattr(in_memory, "_replace", interrupt)
        with pytest.raises(KeyboardInterrupt):
            Model.of(model, tokenizer, OWL).trace()
    assert state(model) == before
    assert Model.of(model, tokenizer, OWL).trace().layers


def test_threads_record_one_model_in_turn(used: Callable[..., Any], tokenizer: Any) -> None:
    model, traces = used("Llama"), {}
    before = state(model)
    texts = ["the owl", "the moon and the moon", OWL, CAT]
    expected = {text: Model.of(model, tokenizer, text, generate=3).trace() for text in texts}

    def record(text: str) -> None:
        traces[text] = Model.of(model, tokenizer, text, generate=3).trace()

    threads = [threading.Thread(target=record, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for text in texts:
        check_equal(traces[text], expected[text])
        about = "LlamaForCausalLM (Llama), in memory: float32 on cpu, sdpa attention. Its own weights differ"
        assert traces[text].caption.startswith(about)
    assert {**state(model), "warnings": 0} == {**before, "warnings": 0}


class Wrapper(nn.Module):
    """Stands for an adapter of peft, or for data parallelism."""

    def __init__(self, name: str, inner: nn.Module) -> None:
        super().__init__()
        setattr(self, name, inner)


class Adapter(Wrapper):
    def get_base_model(self) -> Any:
        return self.base_model.model


def wrapped(kind: str, model: Any) -> Any:
    if kind == "compiled in place":
        model.compile()
    elif kind == "compiled layer":
        model.model.layers[0] = torch.compile(model.model.layers[0])
    return {
        "torch.compile": lambda: torch.compile(model),
        "adapter": lambda: Adapter("base_model", Wrapper("model", model)),
        "parallel": lambda: Wrapper("module", model),
        "all": lambda: torch.compile(Wrapper("module", Adapter("base_model", Wrapper("model", model)))),
    }.get(kind, lambda: model)()


@pytest.mark.sample(1)
@pytest.mark.parametrize("kind", ["torch.compile", "compiled in place", "compiled layer", "adapter", "parallel", "all"])
def test_wrapped_model_is_recorded_without_its_wrapper(tiny: TinyModels, tokenizer: Any, kind: str) -> None:
    expected = Model.of(load(tiny, "Llama"), tokenizer, OWL).trace()
    model = load(tiny, "Llama")
    outer = wrapped(kind, model)
    before = state(model)
    check_equal(Model.of(outer, tokenizer, OWL).trace(), expected)
    assert state(model) == before
    assert torch._dynamo.utils.counters["frames"]["total"] == 0
    assert (model._compiled_call_impl is not None) == (kind == "compiled in place")


class LoRA(nn.Module):
    """Stands for a linear layer of peft: the weight that it shows is that of its base layer."""

    def __init__(self, base_layer: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.delta = nn.Linear(base_layer.in_features, base_layer.out_features, bias=False)

    @property
    def weight(self) -> Tensor:
        return self.base_layer.weight

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.base_layer(x) + self.delta(x)
        return result


class Packed(nn.Linear):
    """Stands for a linear layer of bitsandbytes: its weight is packed into bytes."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__(base.in_features, base.out_features, bias=False)
        self.matrix = [base.weight.detach()]
        packed = torch.zeros(base.weight.numel() // 2, 1, dtype=torch.uint8)
        self.weight = nn.Parameter(packed, requires_grad=False)

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.matrix[0])


@pytest.mark.parametrize("kind", [LoRA, Packed])
def test_adapted_and_quantized_layers_have_no_readable_matrix(
    tiny: TinyModels, tokenizer: Any, kind: Callable[[nn.Linear], nn.Module]
) -> None:
    model = load(tiny, "Llama", "sdpa")
    for layer in model.model.layers:
        for name in ("q_proj", "k_proj", "v_proj", "o_proj"):
            setattr(layer.self_attn, name, kind(getattr(layer.self_attn, name)))
    before = output_of(model, tokenizer)
    trace = Model.of(model, tokenizer, OWL).trace()
    assert trace.max_weight_error is not None
    assert trace.max_weight_error == approx(0, scale=1)
    for layer in trace.layers:
        assert {"query", "key", "value", "input"} <= layer.recorded.keys()
        assert not {"w_q", "w_k", "w_v", "w_o"} & layer.recorded.keys()
        assert not layer.has("output")
    assert torch.equal(output_of(model, tokenizer), before)
    assert torch.equal(trace.predictions[0].all_logits, before[0, -1])


def test_other_fused_attention_is_recorded_as_eager_attention(tiny: TinyModels, tokenizer: Any) -> None:
    expected = Model.of(load(tiny, "Llama"), tokenizer, OWL).trace()
    model = load(tiny, "Llama")
    vars(model.config)["_attn_implementation_internal"] = "flash_attention_2"  # which needs a GPU
    trace = Model.of(model, tokenizer, OWL).trace()
    check_equal(trace, expected)
    assert "flash_attention_2 attention, recorded with eager attention." in trace.caption
    assert model.config._attn_implementation == "flash_attention_2"


def test_family_that_asks_for_its_attention_name_is_reported(tiny: TinyModels, tokenizer: Any) -> None:
    """GPT-2 upcasts its scores only under the name “eager”."""
    model = load(tiny, "GPT-2", dtype=torch.bfloat16)
    for block in model.transformer.h:
        block.attn.reorder_and_upcast_attn = True
    before = output_of(model, tokenizer)
    trace = Model.of(model, tokenizer, OWL).trace()
    assert "recorded with an output that differs by" in trace.caption
    assert torch.equal(output_of(model, tokenizer), before)


def test_token_ids_move_to_the_device_of_the_model(tiny: TinyModels, tokenizer: Any) -> None:
    source = Model.of(load(tiny, "GPT-2").train(), tokenizer, OWL)
    loaded, inputs = source.load_inputs()
    assert loaded.device == torch.device("cpu")
    loaded.model.transformer.wte.to("meta")  # no numbers, but a device other than the CPU
    assert loaded.device == torch.device("meta")
    assert running.on_device(loaded, inputs)["input_ids"].device == torch.device("meta")


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("the network is used")

    monkeypatch.setattr("socket.socket.connect", refuse)
