"""The residual stream, the logits at all positions, and W_E, W_U and the final norm of a trace: as transformers computes them."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from margins import approx
from test_model_in_memory import load
from tiny_models import FAMILIES, HYBRID, SENTENCES, TinyModels, byte_level

from attention import ConfigError, File, Intervention, MissingError, Model, TypedText
from attention.base.cache import CACHE
from attention.models import forward_pass
from attention.models.library import LIBRARY, Settings
from attention.models.residual_stream import _find_writers

OWL = "the owl asked the moon and the moon blinked"
TWO_TEXTS = ("BART", "Marian", "T5", "BART alone")
ONE_LIST = [family for family in (*FAMILIES, *HYBRID) if family not in (*TWO_TEXTS, "Mamba")]
POST_NORM = ("BERT", "RoBERTa", "DistilBERT", "MPNet")
HEADLESS = ("RoBERTa", "DistilBERT", "MPNet")


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def of_transformers(tiny: TinyModels, family: str) -> Any:
    """The output of the model with eager attention in transformers, with all hidden states."""
    model = getattr(transformers, (FAMILIES | HYBRID)[family][1]).from_pretrained(
        tiny(family), attn_implementation="eager"
    )
    ids = byte_level(SENTENCES)(OWL, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        return model.eval()(ids, output_hidden_states=True)


@pytest.mark.sample(5)
@pytest.mark.parametrize("family", ONE_LIST)
def test_residual_stream_equals_hidden_states_to_the_bit(tiny: TinyModels, family: str) -> None:
    states, trace = of_transformers(tiny, family).hidden_states, Model(family, OWL).trace()
    assert len(trace.residual) == len(trace.layers) + 1 == len(states)
    for layer, state in enumerate(states[:-1]):
        assert trace.residual[layer] == approx(state[0])
    last = trace.residual[len(trace.layers)]
    if family in POST_NORM:
        with pytest.raises(MissingError, match="has no norm after its last layer"):
            _ = trace.final_norm
    else:
        last = trace.final_norm(last)
    assert last == approx(states[-1][0])
    assert next(iter(trace.residual)) is trace.residual[0], "all streams come from one pass"


@pytest.mark.sample(5)
@pytest.mark.parametrize("family", [family for family in (*FAMILIES, *HYBRID) if family not in (*HEADLESS, "Mamba", "BART alone")])  # fmt: skip
def test_logits_and_vocabulary_weights_equal_those_of_the_model(tiny: TinyModels, family: str) -> None:
    model = getattr(transformers, (FAMILIES | HYBRID)[family][1]).from_pretrained(
        tiny(family), attn_implementation="eager"
    )
    trace = Model(family, OWL, "the cat" if family in TWO_TEXTS else "").trace()
    assert trace.model_run is not None
    with torch.no_grad():
        expected = model.eval()(**trace.model_run.inputs)
    assert trace.logits == approx(expected.logits[0])
    for prediction in trace.predictions:
        assert trace.logits[prediction.position] == approx(prediction.all_logits)
    assert trace.w_e == approx(model.get_input_embeddings().weight.detach())
    assert trace.w_u == approx(model.get_output_embeddings().weight.detach().T)
    own = LIBRARY.get(family).model
    assert trace.w_e.data_ptr() == own.get_input_embeddings().weight.data_ptr(), "a view"
    assert trace.w_u.data_ptr() == own.get_output_embeddings().weight.data_ptr(), "a view"


@pytest.mark.parametrize("family", ["GPT-2", "Llama", "Qwen 3", "GPT-NeoX", "Phi-3", "Jamba", "Qwen3-Next"])
def test_normed_stream_times_unembedding_is_the_logits(tiny: TinyModels, family: str) -> None:
    tiny(family)
    trace = Model(family, OWL).trace()
    assert trace.final_norm(trace.residual[len(trace.layers)]) @ trace.w_u == approx(trace.logits)
    norm = trace.final_norm
    assert norm.weight is not None
    assert norm.weight.shape == trace.residual[0].shape[1:]
    assert norm.eps
    assert "Norm" in repr(norm)


def test_stream_has_the_interventions_of_the_trace(tiny: TinyModels) -> None:
    tiny("Jamba")
    plain = Model("Jamba", OWL)
    changed = replace(plain, interventions=(Intervention(1, 2, ablate="zero"),)).trace()
    before = plain.trace()
    assert [bool((a == b).all()) for a, b in zip(before.residual, changed.residual, strict=True)] == [True, True, False, False, False]  # fmt: skip
    assert changed.logits[-1] == approx(changed.predictions[-1].all_logits)
    assert not torch.equal(changed.logits, before.logits)


def test_stream_is_computed_when_read_and_counted_before(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    tiny("GPT-2")
    runs = []
    run_patched = forward_pass.run_patched
    monkeypatch.setattr(forward_pass, "run_patched", lambda *args: runs.append(args) or run_patched(*args))
    source = Model("GPT-2", OWL, max_bytes=2**20)
    trace = source.trace()
    assert not runs
    _ = trace.residual[0], trace.residual[2], trace.logits, trace.logits
    assert len(runs) == 2
    small = replace(source, max_bytes=100).trace
    with pytest.raises(ConfigError):
        small()
    assert trace.model_run is not None
    object.__setattr__(trace.model_run, "_source", replace(source, max_bytes=10))
    CACHE.discard_keys(lambda key: isinstance(key, tuple) and key[1] in ("residual stream", "logits"))
    for read, sentence in ((lambda: trace.residual[0], "The residual stream may take at most"), (lambda: trace.logits, "The logits at all positions may take")):  # fmt: skip
        with pytest.raises(ConfigError, match=sentence):
            read()
    assert len(runs) == 2
    for index in (-1, 3):
        with pytest.raises(MissingError, match=f"count from 0 to 2; got {index}"):
            _ = Model("GPT-2", OWL).trace().residual[index]


def test_models_without_one_stream_are_refused_in_words(tiny: TinyModels, tmp_path: Path) -> None:
    for family in ("T5", "RoBERTa"):
        tiny(family)
    with pytest.raises(MissingError, match=r"^A residual stream runs through one list of layers; T5 has none"):
        _ = Model("T5", OWL, "the cat").trace().residual[0]
    headless = Model("RoBERTa", OWL).trace()
    with pytest.raises(MissingError, match="has no language-model head"):
        _ = headless.logits
    with pytest.raises(MissingError, match="predicts no tokens, so it has no W_U"):
        _ = headless.w_u
    typed = TypedText("the cat").trace()
    typed.save(tmp_path / "typed.npz")
    for trace in (typed, File.open(tmp_path / "typed.npz").trace()):
        for name in ("residual", "logits", "w_e", "w_u", "final_norm"):
            with pytest.raises(MissingError, match=r"^This trace comes from no model, so it has no "):
                getattr(trace, name)


def hooks_of(model: Any) -> list[tuple[int, ...]]:
    return [(*module._forward_hooks, *module._forward_pre_hooks) for module in model.modules()]


def test_stream_of_a_model_in_memory_changes_nothing(tiny: TinyModels) -> None:
    model = load(tiny, "GPT-2", "sdpa")
    tokenizer = byte_level(SENTENCES)
    trace = Model.of(model, tokenizer, OWL).trace()
    ids = tokenizer(OWL, return_tensors="pt")["input_ids"]
    with torch.no_grad():
        expected = model(ids, output_hidden_states=True)
    hooks = hooks_of(model)  # transformers leaves some of its own
    for layer in range(2):
        assert trace.residual[layer] == approx(expected.hidden_states[layer][0])
    assert trace.final_norm(trace.residual[2]) == approx(expected.hidden_states[2][0])
    assert trace.logits == approx(expected.logits[0])
    assert hooks_of(model) == hooks
    reference = weakref.ref(model)
    del model, expected
    gc.collect()
    assert reference() is None, "the trace does not keep the model"


def test_path_patching_finds_the_outermost_list_of_layers_inside_of_other_containers() -> None:
    nn = torch.nn
    layers = nn.ModuleList(nn.ModuleDict({"attention": nn.Identity(), "mlp": nn.Linear(2, 2)}) for _ in range(2))
    model: Any = nn.ModuleDict({"stages": nn.Sequential(nn.ModuleDict({"layers": layers}))})
    sites = [SimpleNamespace(path=f"stages.0.layers.{index}.attention") for index in range(2)]
    loaded: Any = SimpleNamespace(name="tiny", model=model, sites=sites)
    writers = _find_writers(loaded)
    assert (writers.first_block, writers.block_of_call) == (layers[0], (0, 1))
    assert [module is layers[index]["mlp"] for index, module in enumerate(writers.modules)] == [True, True]
    loaded.sites = [SimpleNamespace(path="stages.0")]
    with pytest.raises(ConfigError, match="a model whose layers are in a list, unlike those of tiny: choose"):
        _find_writers(loaded)
