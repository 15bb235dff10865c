"""Sweeps over the heads of a model in memory equal those of its folder."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from margins import approx
from test_model import OWL
from test_model_in_memory import (
    OTHER,
    library,  # noqa: F401  # a fixture
    load,
)
from test_model_turns import TEXT, recorded_passes, run_together, until_waiting
from test_model_unchanged import state, used  # noqa: F401  # a fixture
from tiny_models import TinyModels

from attention import Intervention, Model
from attention.circuits import sweep
from attention.circuits.sweep import sweep_heads
from attention.models import forward_pass
from attention.models.library import LIBRARY


@pytest.mark.sample(1)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_generated_text_and_ablation_sweep_equal_those_of_the_folder(
    tiny: TinyModels,
    tokenizer: Any,
    implementation: str,
) -> None:
    model = load(tiny, "Llama", implementation)
    folder, source = Model(str(tiny("Llama")), OWL, generate=4), Model.of(model, tokenizer, OWL, generate=4)
    assert source.trace().input_tokens == folder.trace().input_tokens
    (*_, expected), (*_, sweep) = sweep_heads(folder), sweep_heads(source)
    assert sweep.result is not None
    assert expected.result is not None
    assert sweep.result.change == approx(expected.result.change, dtype="float32")
    assert sweep.result.direct == approx(expected.result.direct, dtype="float32")
    half = Model.of(load(tiny, "Llama", implementation, torch.bfloat16), tokenizer, OWL, generate=4)
    (*_, coarse) = sweep_heads(half)
    assert coarse.result is not None
    assert "load it in float32" in coarse.result.no_direct_reason


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", ["Mistral", "Gemma 3", "ModernBERT"])
def test_fused_attention_with_a_window_is_patched_in_batches(tiny: TinyModels, tokenizer: Any, family: str) -> None:
    text = OWL.replace("moon", "<mask>", 1) if family == "ModernBERT" else OWL
    texts = text, text.replace("and", "cat", 1)
    sweeps = []
    for implementation in ("eager", "sdpa"):
        model = load(tiny, family, implementation)
        of = [Model.of(model, tokenizer, text) for text in texts]
        (*_, last) = sweep_heads(replace(of[0], other=of[1]), kind="key")
        assert last.result is not None
        sweeps.append(last.result.change)
    assert sweeps[0].any()
    assert sweeps[1] == approx(sweeps[0], terms=1024, scale=1, dtype="float32")


def test_model_is_freed_with_its_source_and_shares_its_weights(tiny: TinyModels, tokenizer: Any) -> None:
    model = load(tiny, "Llama", "sdpa", torch.bfloat16)
    storages = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    other = Model.of(model, tokenizer, OTHER)
    source = Model.of(
        model, tokenizer, OWL, generate=2, interventions=(Intervention(0, 1, ablate="zero"),), other=other
    )
    assert source.handle is other.handle
    assert {source: 1}[Model.of(model, tokenizer, OWL, generate=2, interventions=source.interventions, other=other)]
    trace, _ = other.trace(), source.prepare()
    for layer in trace.layers:
        borrowed = {layer.recorded[name].untyped_storage().data_ptr() for name in layer.shared_with_model}
        assert borrowed <= storages
        assert not storages & {
            tensor.untyped_storage().data_ptr()
            for name, tensor in layer.recorded.items()
            if name not in layer.shared_with_model
        }
    (*_, _) = sweep_heads(source)
    dead = weakref.ref(model)
    del model, source, other
    gc.collect()
    assert dead() is None
    assert trace.layers[1]["output"].isfinite().all()


def test_sweep_leaves_a_model_in_use_as_it_was(used: Callable[..., Any], tokenizer: Any) -> None:  # noqa: F811  # a fixture
    model = used("GPT-2")
    before = state(model)
    assert [*sweep_heads(Model.of(model, tokenizer, OWL))][-1].result is not None
    assert state(model) == before


def test_other_forward_passes_run_between_two_ablation_batches(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny("GPT-2")
    loaded, started = LIBRARY.get("GPT-2"), threading.Event()
    monkeypatch.setattr(forward_pass, "_BATCH_TOKENS", 18)  # a head or two a batch

    def on_pass(number: int) -> None:
        if number == 2:
            started.set()
            until_waiting(loaded.lock, 1)

    passes = recorded_passes(loaded, on_pass)

    def look() -> None:
        assert started.wait(60)
        Model("GPT-2", "a quiet harbor").trace()

    run_together(sweeps=lambda: list(sweep.sweep_heads(Model("GPT-2", TEXT))), looks=look)
    assert passes[:4] == ["sweeps", "sweeps", "looks", "sweeps"]
