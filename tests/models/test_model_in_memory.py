"""Models in memory: their traces equal those of the folder in all families, and are exact in half precision and fused attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import transformers
from margins import approx
from test_explain import check_printed_lines
from test_model import CAT, OWL, RECORDED, TWO_TEXTS, WEIGHTS_ONLY
from tiny_models import FAMILIES, TinyModels

from attention import Cell, ConfigError, Intervention, MissingError, Model, ModelError, Trace, explain
from attention.export.program import python
from attention.files.array_writer import npz
from attention.models import running
from attention.models.library import LIBRARY, Settings

OTHER = "the moon asked the owl and the owl blinked"
HALF = (torch.bfloat16, torch.float16)


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def load(tiny: TinyModels, family: str, implementation: str = "eager", dtype: torch.dtype = torch.float32) -> Any:
    """A model of transformers, loaded as users load it."""
    model_class = getattr(transformers, FAMILIES[family][1])
    running.silence_warnings()
    return model_class.from_pretrained(tiny(family), attn_implementation=implementation, dtype=dtype)


def second_text(family: str) -> str:
    return CAT if family in TWO_TEXTS else ""


def check_equal(actual: Trace, expected: Trace, exact: bool = True) -> None:
    """All recorded tensors are equal; with `exact` to the bit."""
    assert (actual.tokens, actual.notes) == (expected.tokens, expected.notes)
    for layer, other in zip(actual.layers, expected.layers, strict=True):
        assert (layer.name, layer.formula, layer.provenance) == (other.name, other.formula, other.provenance)
        assert layer.recorded.keys() == other.recorded.keys()
        for name in layer.recorded:
            assert layer[name] == approx(other[name], terms=0 if exact else 16384)
    assert [p.position for p in actual.predictions] == [p.position for p in expected.predictions]
    for prediction, other_prediction in zip(actual.predictions, expected.predictions, strict=True):
        assert prediction.all_logits == approx(other_prediction.all_logits, terms=1024)


@pytest.mark.sample(6)
@pytest.mark.parametrize("family", [*RECORDED, *WEIGHTS_ONLY, "BART alone"])
def test_trace_in_memory_equals_trace_of_the_folder(tiny: TinyModels, tokenizer: Any, family: str) -> None:
    text2 = CAT if family == "BART alone" else second_text(family)
    folder = Model(str(tiny(family)), OWL, text2).trace()
    trace = Model.of(load(tiny, family), tokenizer, OWL, text2=text2).trace()
    check_equal(trace, folder)
    assert folder.max_weight_error is None
    if family in WEIGHTS_ONLY:
        assert trace.max_weight_error is None
    else:
        assert trace.max_weight_error is not None
        assert trace.max_weight_error == approx(0, scale=1)


@pytest.mark.parametrize("family", ["GPT-2", "BERT", "Mistral", "Gemma 3", "GPT-NeoX", "ModernBERT", "BART", "T5"])
def test_fused_attention_is_recorded_like_eager_attention(tiny: TinyModels, tokenizer: Any, family: str) -> None:
    folder = Model(str(tiny(family)), OWL, second_text(family)).trace()
    source = Model.of(load(tiny, family, "sdpa"), tokenizer, OWL, text2=second_text(family))
    trace = source.trace()
    assert "sdpa attention" in trace.caption
    check_equal(trace, folder, exact=False)
    assert trace.max_weight_error is not None
    assert trace.max_weight_error == approx(0, scale=1)


@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("family", ["GPT-2", "Gemma 2", "gpt-oss", "T5"])
def test_weights_of_half_precision_differ_by_the_reported_number(
    tiny: TinyModels, tokenizer: Any, family: str, dtype: torch.dtype
) -> None:
    model = load(tiny, family, "eager", dtype)
    source = Model.of(model, tokenizer, OWL, text2=second_text(family))
    trace = source.trace()
    output = running.run(source.load_inputs()[0], source.load_inputs()[1], output_attentions=True)
    differences = []
    for layer in trace.layers:
        part, number = layer.name.split()
        weights = output[running.ATTENTIONS[part]][int(number)][0]
        assert weights.dtype == dtype
        differences.append(float((layer["weights"] - weights.float()).abs().max()))
        assert layer.formula is not None
        for name in layer.recorded:
            assert layer[name].dtype in (torch.float32, torch.bool)
        assert layer["query"].to(dtype).float().equal(layer["query"])
        assert {"w_q", "w_k", "w_v", "w_o"} <= layer.recorded.keys()
    assert trace.max_weight_error == approx(max(differences))
    assert max(differences) > 1e-5
    assert max(differences) == approx(0, scale=1, dtype="bfloat16")
    assert f"max_weight_error {max(differences):.1e}" in repr(trace)


def test_rounded_projections_of_half_precision_are_explained(tiny: TinyModels, tokenizer: Any) -> None:
    trace = Model.of(load(tiny, "GPT-2", "sdpa", torch.bfloat16), tokenizer, OWL).trace()
    for step in trace.layers[1].steps:
        explanation = explain(trace, step.name, 1, 2, 3, 2)
        check_printed_lines(explanation)
        is_rounded = "as the model rounded it to bfloat16" in explanation.words
        assert is_rounded == (step.name in ("query", "key", "value"))


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_every_text_has_the_trace_of_its_own_pass(tiny: TinyModels, tokenizer: Any, implementation: str) -> None:
    model, texts = load(tiny, "Llama", implementation), [OWL, CAT, OTHER]
    sources = Model.of(model, tokenizer, texts=texts, special="hide")
    traces = sources.traces()
    assert [source.text for source in sources] == texts
    for text, trace in zip(texts, traces, strict=True):
        check_equal(trace, Model.of(model, tokenizer, text, special="hide").trace())


def test_a_model_is_probed_once_until_something_changes(tiny: TinyModels, tokenizer: Any) -> None:
    model, passes = load(tiny, "BERT", "sdpa"), list[int]()
    model.register_forward_pre_hook(lambda *_: passes.append(1))
    values = model.get_submodule("bert" if hasattr(model, "bert") else "").encoder.layer[0].attention.self.value

    def trace() -> tuple[Trace, int]:
        passes.clear()
        return Model.of(model, tokenizer, OWL).trace(), len(passes)

    first, n_passes = trace()
    assert n_passes == 5
    again, n_passes = trace()
    assert n_passes == 1
    check_equal(again, first)
    hook = values.register_forward_hook(lambda *args: args[-1] / 2)
    changed, n_passes = trace()
    assert n_passes == 5
    assert [layer.has("w_v") for layer in changed.layers[:2]] == [False, True]
    hook.remove()
    assert trace()[1] == 5
    model.set_attn_implementation("eager")
    assert [trace()[1], trace()[1]] == [5, 1]
    with torch.no_grad():
        values.weight.mul_(2)
    assert trace()[1] == 5
    kept, _ = trace()
    assert kept.layers[0]["w_v"].data_ptr() == values.weight.data_ptr()


def interventions(kind: str) -> tuple[Intervention, ...]:
    return {
        "ablate": (Intervention(0, 1, ablate="zero"), Intervention(1, 2, ablate="mean")),
        "temperature": (Intervention(0, 3, temperature=0.5),),
        "patch key": (Intervention(0, 2, patch="key"), Intervention(1, 0, patch="query")),
        "patch weights": (Intervention(0, 2, patch="weights"),),
        "patch output": (Intervention(1, 2, patch="head_output"),),
    }[kind]


@pytest.mark.sample(7)
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("kind", ["ablate", "temperature", "patch key", "patch weights", "patch output"])
def test_interventions_in_memory_equal_those_of_the_folder(
    tiny: TinyModels, tokenizer: Any, kind: str, frozen: bool, implementation: str
) -> None:
    changes: Any = {"interventions": interventions(kind), "frozen": frozen}
    folder = Model(str(tiny("Llama")), OWL, other=Model(str(tiny("Llama")), OTHER), **changes).trace()
    model = load(tiny, "Llama", implementation)
    trace = Model.of(model, tokenizer, OWL, other=Model.of(model, tokenizer, OTHER), **changes).trace()
    assert trace.changes == folder.changes
    check_equal(trace, folder, exact=False)
    elsewhere = Model.of(load(tiny, "Llama"), tokenizer, OTHER)
    with pytest.raises(ConfigError, match=r"same model and is not itself patched; this one is of LlamaForCausalLM"):
        Model.of(model, tokenizer, OWL, interventions=interventions("patch key"), other=elsewhere).trace()


@pytest.mark.parametrize("dtype", [torch.float32, *HALF])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_patching_from_the_same_text_changes_no_bit(
    tiny: TinyModels, tokenizer: Any, dtype: torch.dtype, implementation: str
) -> None:
    model = load(tiny, "Qwen 3", implementation, dtype)
    plain = Model.of(model, tokenizer, OWL)
    patches = tuple(Intervention(layer, patch=step) for layer, step in ((0, "query"), (0, "value"), (1, "head_output")))
    patched = Model.of(model, tokenizer, OWL, interventions=patches, other=plain).trace()
    assert patched.predictions[0].all_logits.equal(plain.trace().predictions[0].all_logits)


def test_trained_model_is_recorded_anew(tiny: TinyModels, tokenizer: Any) -> None:
    model = load(tiny, "Llama")
    source = Model.of(model, tokenizer, OWL, generate=2)
    before = source.trace()
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    ids = tokenizer(OWL, return_tensors="pt")["input_ids"]
    model(ids, labels=ids).loss.backward()
    optimizer.step()
    after = source.trace()
    assert not torch.equal(after.layers[1]["query"], before.layers[1]["query"])
    expected = model.generate(ids, max_new_tokens=2, do_sample=False, attention_mask=torch.ones_like(ids))
    assert source.load_inputs()[1]["input_ids"].equal(expected)
    assert before.layers[1]["weights"].isfinite().all()
    assert after.layers[1]["output"].isfinite().all()
    with pytest.raises(MissingError, match=r"w_o of layer 1 should be .* the model was changed .*: record it again\.$"):
        _ = before.layers[1]["output"]


def test_model_in_memory_exports_numbers_but_no_program(tiny: TinyModels, tokenizer: Any) -> None:
    source = Model.of(load(tiny, "GPT-2", "sdpa", torch.bfloat16), tokenizer, OWL)
    trace = source.trace()
    assert len(npz(trace)) > 10_000
    with pytest.raises(ConfigError, match=r"GPT2LMHeadModel \(GPT-2\) is in memory: save it with .*, and use Model"):
        python(source, trace, Cell(0, "weights", 0, 1, 1))
    assert "save the trace as a file" in source.no_link_reason
    assert Model("a folder", OWL).no_link_reason == ""
    assert "handle=<GPT2LMHeadModel (GPT-2) in memory>" in repr(source)


def test_folder_runs_on_the_named_device(tiny: TinyModels) -> None:
    name = str(tiny("GPT-2"))
    check_equal(Model(name, OWL, device="cpu").trace(), Model(name, OWL).trace())
    assert Model(name, OWL, device="cpu").load_inputs()[0] is not Model(name, OWL).load_inputs()[0]
    for device in ("meta", "owl", "cuda:99"):
        with pytest.raises(ModelError, match=rf"^A device is one that torch finds here, .*; got '{device}'.*\.$"):
            Model(name, OWL, device=device).trace()
