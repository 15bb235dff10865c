"""Recorded models: their tensors equal eager attention and our formula, in tiny models of all families."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
import torch
from margins import approx
from test_explain import check_printed_lines, some_cells
from tiny_models import FAMILIES, TinyModels
from torch import Tensor

from attention import Cell, Layer, Model, Override, Trace, explain
from attention.export.program import python
from attention.formula.mask import Mask
from attention.models import running
from attention.models.library import LIBRARY, Settings
from attention.models.loaded import LoadedModel

OWL, CAT = "the owl asked the moon and the moon blinked", "the cat sat"
CAUSAL, ALL = Mask("causal"), Mask()
THREE_BACK = Mask("causal window", window=3)  # a window of four keys, including the query's own

RECORDED = {
    "GPT-2": [CAUSAL] * 2,
    "BERT": [ALL] * 2,
    "RoBERTa": [ALL] * 2,
    "DistilBERT": [ALL] * 2,
    "Llama": [CAUSAL] * 2,
    "Qwen 3": [CAUSAL] * 2,
    "Mistral": [THREE_BACK] * 2,
    "Gemma 2": [THREE_BACK, CAUSAL],
    "Gemma 3": [THREE_BACK, CAUSAL],
    "GPT-NeoX": [CAUSAL] * 2,
    "OPT": [CAUSAL] * 2,
    "Phi-3": [CAUSAL] * 2,
    "gpt-oss": [THREE_BACK, CAUSAL],
    "ModernBERT": [ALL, Mask("window", window=2)],
    "BART": [ALL, ALL, CAUSAL, CAUSAL, ALL, ALL],
    "Marian": [ALL, ALL, CAUSAL, CAUSAL, ALL, ALL],
    "T5": [ALL, ALL, CAUSAL, CAUSAL, ALL, ALL],
    "Granite": [CAUSAL] * 2,
}
"""The mask of every layer, as a rule."""
WEIGHTS_ONLY = ("Falcon", "Bloom", "GPT-Neo", "GPT-J", "MPNet")  # weights only
TWO_TEXTS = ("BART", "Marian", "T5")
SHARED = (
    "Llama",
    "Qwen 3",
    "Mistral",
    "Gemma 2",
    "Gemma 3",
    "Phi-3",
    "gpt-oss",
    "Granite",
)  # two heads share a key head
STRAIGHT = (
    "GPT-2",
    "BERT",
    "RoBERTa",
    "DistilBERT",
    "BART",
    "Marian",
    "T5",
)  # nothing stands between X W_Q + b_Q and Q
DIVISOR = {"Gemma 2": math.sqrt(5), "Gemma 3": 16, "OPT": None, "T5": None, "Granite": 1 / 0.3}
# The path of W_O in the model of each family.
W_O = r"(attn\.c_proj|attention\.output\.dense|out_lin|o_proj|attention\.dense|out_proj|attn\.Wo|Attention\.o)$"


@dataclass
class Recorded:
    """A text in a model that we record, and in the same model of transformers with eager attention."""

    source: Model
    folder: Path

    @cached_property
    def trace(self) -> Trace:
        return self.source.trace()

    @cached_property
    def inputs(self) -> dict[str, Tensor]:
        return self.source.load_inputs()[1]

    @cached_property
    def eager(self) -> Any:
        """The eager model of transformers, its output, and the outputs of every W_O."""
        our_model = self.source.load_inputs()[0].model
        running.silence_warnings()
        model = type(our_model).from_pretrained(self.folder, attn_implementation="eager").eval()
        outputs: dict[str, list[Tensor]] = {"encoder": [], "decoder": [], "cross": [], "layer": []}
        for path, module in model.named_modules():
            if re.search(W_O, path):
                there = outputs[kind(path) if self.source.text2 else "layer"]
                module.register_forward_hook(lambda _, __, made, there=there: there.append(made[0]))
        return (
            model,
            running.run(LoadedModel("", model, None, (), False, None, 0), self.inputs, output_attentions=True),
            outputs,
        )

    def eager_tensors(self, layer: Layer) -> tuple[Tensor, Tensor | None]:
        """The eager weights of a layer, and the output of its W_O."""
        part, number = layer.name.split()
        _, result, outputs = self.eager
        calls = outputs[part]
        return result[running.ATTENTIONS[part]][int(number)][0], calls[int(number)] if calls else None


def kind(path: str) -> str:
    if re.search("encoder_attn|EncDecAttention", path):
        return "cross"
    return "decoder" if "decoder." in path else "encoder"


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


@pytest.fixture(scope="module")
def recorded(tiny: TinyModels) -> Any:
    cache: dict[str, Recorded] = {}

    def record(family: str) -> Recorded:
        if family not in cache:
            cache[family] = Recorded(Model(family, OWL, CAT if family in TWO_TEXTS else ""), tiny(family))
        return cache[family]

    return record


def test_every_model_family_is_recorded_or_weights_only() -> None:
    assert {*RECORDED, *WEIGHTS_ONLY, "Mamba", "BART alone"} == {*FAMILIES}


@pytest.mark.sample(6)
@pytest.mark.parametrize("family", RECORDED)
def test_model_tensors_equal_eager_attention_and_our_formula(recorded: Any, family: str) -> None:
    record = recorded(family)
    loaded, inputs = record.source.load_inputs()
    _, expected, _ = record.eager
    last = "logits" if "logits" in expected else "last_hidden_state"
    assert torch.equal(running.run(loaded, inputs)[last], expected[last])
    for layer in record.trace.layers:
        weights, output = record.eager_tensors(layer)
        assert layer["weights"] == approx(weights)
        assert weights_by_formula(layer) == approx(weights)
        assert layer["head_output"] == approx(weights @ each(layer, layer["value"]))
        assert layer["output"] == approx(output)


def each(layer: Layer, shared: Tensor) -> Tensor:
    return shared.repeat_interleave(layer.n_heads // len(shared), 0)


def weights_by_formula(layer: Layer) -> Tensor:
    """The weights from the recorded tensors, computed directly from the formula."""
    formula = layer.formula
    assert formula is not None
    scores = layer["query"].double() @ each(layer, layer["key"]).double().mT / (formula.divisor or 1)
    if formula.cap:
        scores = formula.cap * torch.tanh(scores / formula.cap)
    if layer.has("bias"):
        scores = scores + layer["bias"]
    scores = scores.masked_fill(~layer["mask"], -math.inf)
    if layer.has("sinks"):
        scores = torch.cat([scores, layer["sinks"][:, None, None].expand(-1, scores.shape[1], 1)], dim=-1)
    return torch.softmax(scores, dim=-1)[..., : len(layer.key_tokens)].float()


@pytest.mark.sample(7)
@pytest.mark.parametrize("family", RECORDED)
def test_formula_and_shapes_match_the_model_family(recorded: Any, family: str) -> None:
    trace, masks = recorded(family).trace, RECORDED[family]
    words = ("the", "·owl", "·asked", "·the", "·moon", "·and", "·the", "·moon", "·blinked")
    for layer, mask in zip(trace.layers, masks, strict=True):
        biased = ("bias",) if family == "T5" and not layer.name.startswith("cross") else ()
        assert layer.formula is not None
        assert layer.formula.mask == mask
        assert layer.formula.divisor == approx(DIVISOR.get(family, math.sqrt(8)))
        assert layer.has("scaled_scores") == (DIVISOR.get(family, 1) is not None)
        assert layer.formula.cap == (0.5 if family == "Gemma 2" else None)
        assert layer.has("capped_scores") == (family == "Gemma 2")
        assert tuple(name for name in ("bias", "sinks") if layer.has(name)) == (
            biased or ("sinks",) * (family == "gpt-oss")
        )
        assert layer.formula.normalizer == ("sinks" if family == "gpt-oss" else "softmax")
        rows = layer["weights"].sum(dim=-1)
        assert (rows < 1).all() if family == "gpt-oss" else rows == approx(torch.ones_like(rows))
        n_queries = len(layer.tokens)
        assert layer.key_tokens == (words if not layer.name.startswith("decoder") else layer.tokens)
        assert layer.tokens == (words if not layer.name.startswith(("decoder", "cross")) else trace.layers[2].tokens)
        assert layer.shape("query") == (4, n_queries, 8)
        assert layer.shape("key") == layer.shape("value") == (2 if family in SHARED else 4, len(layer.key_tokens), 8)
    names = [f"layer {i}" for i in range(2)]
    if family in TWO_TEXTS:
        names = [f"{part} {i}" for part in ("encoder", "decoder", "cross") for i in range(2)]
        assert trace.layers[2].tokens == ("</s>" if family == "BART" else "<pad>", "the", "·cat", "·sat")
        assert trace.layers[4]["memory"].shape == (9, 32)
    assert [layer.name for layer in trace.layers] == names


@pytest.mark.parametrize("family", RECORDED)
def test_projections_reproduce_recorded_tensors_where_nothing_intervenes(recorded: Any, family: str) -> None:
    for layer in recorded(family).trace.layers:
        x2 = "memory" if layer.name.startswith("cross") else "input"
        for name, x in (("query", "input"), ("key", x2), ("value", x2)):
            projected = layer[x] @ layer[f"w_{name[0]}"]
            if layer.has(f"b_{name[0]}"):
                projected = projected + layer[f"b_{name[0]}"][:, None]
            near = projected == approx(layer[name])
            assert near == (name == "value" or family in STRAIGHT or (family, name) == ("OPT", "key")), (family, name)


@pytest.mark.sample(5)
@pytest.mark.parametrize("family", RECORDED)
def test_every_step_of_a_model_is_explained(recorded: Any, family: str) -> None:
    trace = recorded(family).trace
    noted = set()
    for at in range(1, len(trace.layers), 2):
        layer = trace.layers[at]
        for step in layer.steps:
            for q, k in some_cells(layer.matrix(step.name, 3), 4)[1:4]:
                explanation = explain(trace, step.name, at, 3, q, k)
                check_printed_lines(explanation)
                if explanation.words == layer.provenance.get(step.name):
                    noted.add(step.name)
                elif not math.isinf(explanation.value):
                    size = sum(abs(term.value) for term in explanation.terms)
                    assert explanation.result == approx(explanation.value, scale=size, terms=1024)
    straight = {"query", "key"} if family in STRAIGHT else {"key"} if family == "OPT" else set()
    assert {"input", "memory", "query", "key"} - straight - noted <= {"memory"}
    assert not noted & straight


@pytest.mark.parametrize("family", ["GPT-2", "Gemma 2", "gpt-oss", "ModernBERT", "T5", "Bloom"])
def test_copied_python_of_a_model_gives_the_same_number(
    recorded: Any, tiny: TinyModels, family: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tiny(family).parent)
    source = Model(
        family, OWL, CAT if family in TWO_TEXTS else "", Override(temperature=0.5 if family != "Bloom" else 1)
    )
    trace = source.trace()
    for at in {1, len(trace.layers) - 3} if family in TWO_TEXTS else {1}:
        step = "weights" if family == "Bloom" else "head_output"
        program = python(source, trace, Cell(at, step, 1, 2, 1))
        running.silence_warnings()
        exec(compile(program, "<snippet>", "exec"), {})
        match = re.fullmatch(r".*: (\S+) expected (\S+)", capsys.readouterr().out.strip().splitlines()[-1])
        assert match
        assert float(match[1]) == approx(float(match[2]))
        assert float(match[2]) == approx(float(trace.layers[at].matrix(step, 1)[2, 1]))


@pytest.mark.parametrize("family", ["GPT-2", "Bloom"])
def test_copied_python_without_its_folder_ends_with_a_sentence(
    recorded: Any, tiny: TinyModels, family: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    source = Model(str(tiny(family)), OWL)
    program = python(source, source.trace(), Cell(1, "weights", 1, 2, 1))
    monkeypatch.chdir(tmp_path)
    asked: list[object] = []
    monkeypatch.setattr("socket.getaddrinfo", lambda *args, **_: asked.append(args) or [])
    with pytest.raises(
        SystemExit, match=f"loads its model from a folder; got '{family}', which is none: write the path"
    ):
        exec(compile(program, "<snippet>", "exec"), {})
    assert not asked, "it asks no hub"


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", WEIGHTS_ONLY)
def test_unrecordable_family_shows_its_weights_with_a_note(recorded: Any, family: str) -> None:
    record = recorded(family)
    for layer in record.trace.layers:
        assert [step.name for step in layer.steps] == ["weights"]
        weights, _ = record.eager_tensors(layer)
        assert torch.equal(layer["weights"], weights)
    assert "only its weights are shown; Q, K, V and the scores are unknown" in record.trace.notes[0]
    assert "recorded" in explain(record.trace, "weights", 1, 2, 3, 2).words


def test_decoder_alone_predicts_what_transformers_generates(tiny: TinyModels) -> None:
    source = Model(tiny("T5").name, OWL)
    loaded, inputs = source.load_inputs()
    generated = loaded.model.generate(inputs["input_ids"], max_new_tokens=31, do_sample=False, num_beams=1)
    assert torch.equal(inputs["decoder_input_ids"], generated[:, :32])
    trace = source.trace()
    assert len(trace.layers[-1].tokens) == generated.shape[1] <= 32
    assert "its own generated tokens" in trace.notes[0]


def test_overridden_model_returns_to_its_own_formula(tiny: TinyModels) -> None:
    source = Model(tiny("Llama").name, OWL, config=Override(mask="none", temperature=2.0))
    overridden, base = source.trace().layers[1], source.base.trace().layers[1]
    expected = torch.softmax(base["scores"] / math.sqrt(8) / 2, dim=-1)
    assert overridden["weights"] == approx(expected)
    assert overridden.with_config(Override())["output"] == approx(base["output"])
    assert overridden["output"] != approx(base["output"])


def test_minilm_heads_attend_as_documented() -> None:
    """The numbers come from another program."""
    LIBRARY.hold(Settings())
    trace = Model("all-MiniLM-L6-v2", "The quiet harbor watched the copper moon while the old owl slept.").trace()
    assert trace.tokens[:4] == ("[CLS]", "the", "quiet", "harbor")
    assert trace.tokens[-1] == "[SEP]"
    assert (len(trace.layers), trace.layers[0].n_heads) == (6, 12)
    previous, following, first = (1, 0), (0, 1), None
    for layer, head, offset, share in ((0, 2, previous, 1.0), (1, 8, following, 0.69), (4, 5, first, 0.83)):
        weights = trace.layers[layer].matrix("weights", head)
        cells = weights[:, 0] if offset is None else weights[offset[0] :, offset[1] :].diagonal()
        assert share - 0.12 < float(cells.mean()) < share + 0.12, (layer, head)
