"""Interventions on heads inside a model: neutral ones equal eager attention to the bit, others match their definition, in all families."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from margins import approx
from test_explain import check_printed_lines
from test_model import CAT, OWL, RECORDED, SHARED, TWO_TEXTS, W_O, each
from tiny_models import TinyModels
from torch import Tensor

from attention import Cell, ConfigError, Intervention, Layer, Model, Override, Trace, explain, find_step
from attention.export.program import python
from attention.formula.functions import project_output
from attention.models import forward_pass, recorder, running
from attention.models.attention_call import Call
from attention.models.library import LIBRARY, Settings
from attention.patching.intervention import format_codes, parse_codes
from attention.pictures.drawing import hidden_cells
from attention.pictures.heatmap import heatmap_json
from attention.pictures.live_inputs import live_inputs

OTHER = "the moon asked the owl and the owl blinked"


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def model(tiny: TinyModels, family: str, *interventions: Intervention, **more: Any) -> Model:
    tiny(family)
    return Model(family, OWL, CAT if family in TWO_TEXTS else "", interventions=interventions, **more)


def outputs(source: Model) -> list[Tensor]:
    """The outputs of every W_O in a run, in the order of the calls, and finally the output of the model."""
    loaded, inputs = source.load_inputs()
    interventions = source.patched_forward(loaded, inputs)
    results: list[Tensor] = []
    *_, ids = inputs.values()
    hooks = [
        module.register_forward_hook(lambda _, __, out: results.append(out[0].clone()))
        for path, module in loaded.model.named_modules()
        if re.search(W_O, path)
    ]
    _, output, _ = forward_pass.run_recorded(loaded, inputs, interventions, tuple(range(ids.shape[-1])))
    for hook in hooks:
        hook.remove()
    return [*results, output["logits" if "logits" in output else "last_hidden_state"][0]]


def differ(actual: Trace, expected: Trace) -> float:
    """The largest difference between two traces, in any step of any layer."""
    return max(
        float((a[step.name].nan_to_num(0, 0, 0) - b[step.name].nan_to_num(0, 0, 0)).abs().max())
        for a, b in zip(actual.layers, expected.layers, strict=True)
        for step in a.steps
        if b.has(step.name)
    )


@pytest.mark.sample(7)
@pytest.mark.parametrize("family", RECORDED)
def test_neutral_interventions_change_no_bit(tiny: TinyModels, family: str) -> None:
    plain = model(tiny, family)
    base, plain_outputs = plain.trace(), outputs(plain)
    for neutral in (
        Intervention(layer=1, head=3, ablate="mean", strength=0.0),
        *(Intervention(layer=0, head=2, patch=name) for name in ("query", "key", "weights")),
        *(Intervention(patch=name) for name in ("value", "weights", "head_output")),
    ):
        changed = replace(plain, interventions=(neutral,), other=plain)
        assert all(torch.equal(a, b) for a, b in zip(outputs(changed), plain_outputs, strict=True)), neutral
        assert differ(changed.trace(), base) == 0, neutral


@pytest.mark.parametrize("family", RECORDED)
def test_ablated_head_removes_one_term_of_the_output(tiny: TinyModels, family: str) -> None:
    """The module's output is the sum of all Z_h W_O[h] and b_O; the ablated output lacks one of these terms."""
    plain = model(tiny, family)
    loaded, inputs = plain.load_inputs()
    calls: list[Call] = []
    with recorder.recording(calls.append):
        running.run(loaded, inputs)
    silenced = outputs(replace(plain, interventions=(Intervention(layer=0, head=3, ablate="zero"),)))
    plain_outputs = outputs(plain)
    site = loaded.sites[0]
    terms = torch.stack([z @ w for z, w in zip(calls[0].head_output, site.parameters["w_o"], strict=True)])
    bias = site.parameters.get("b_o", torch.zeros(terms.shape[-1]))
    assert plain_outputs[0] == approx(terms.sum(0) + bias)
    assert silenced[0] == approx(plain_outputs[0] - terms[3])
    assert not torch.equal(silenced[-1], plain_outputs[-1])


@pytest.mark.sample(5)
@pytest.mark.parametrize("family", RECORDED)
def test_every_intervention_matches_its_definition_and_every_cell_is_explained(tiny: TinyModels, family: str) -> None:
    interventions = parse_codes(
        "0.1.t0.5;0.1.unscaled;0.2.first;0.3.s2,1=2;0.3.w3,0=0.75r;0.0.mean0.5;1.2.zero;1.1.w2,1=0.25"
    )
    source = model(tiny, family, *interventions)
    trace, base = source.trace(), model(tiny, family).trace()
    layer, base_layer = trace.layers[0], base.layers[0]
    check(layer, base_layer)
    for at, head in ((0, 0), (0, 1), (0, 2), (0, 3), (1, 1), (1, 2)):
        for step in trace.layers[at].steps:
            for q, k in ((2, 1), (3, 0), (3, 2)):
                if step.name in ("input", "query", "key", "value"):
                    continue
                explanation = explain(trace, step.name, at, head, q, k)
                check_printed_lines(explanation)
                if explanation.terms and math.isfinite(explanation.value):
                    size = sum(abs(term.value) for term in explanation.terms)
                    assert explanation.result == approx(explanation.value, scale=size, terms=1024)
    assert "set by hand" in explain(trace, "weights", 0, 3, 3, 0).short
    assert len(trace.changes) == len(interventions)
    assert base.changes == ()
    # The model continues with the values that the trace shows.
    results = outputs(source)
    if layer.has("output"):
        assert results[0] == approx(layer["output"])


def check(layer: Layer, base_layer: Layer) -> None:
    """Asserts that layer 0 follows from the interventions of the test above, computed independently."""
    assert base_layer.formula is not None
    scores = layer["query"].double() @ each(layer, layer["key"]).double().mT
    divided = scores / (base_layer.formula.divisor or 1)
    divided[1] = scores[1] / 0.5
    masked = (
        base_layer.formula.cap * torch.tanh(divided / base_layer.formula.cap) if base_layer.formula.cap else divided
    )
    masked = masked + (layer["bias"] if layer.has("bias") else 0)
    visible = base_layer["mask"].expand(len(masked), -1, -1).clone()
    visible[2] = False
    visible[2, :, 0] = True
    masked = masked.masked_fill(~visible, -math.inf)
    masked[3, 2, 1] = 2
    with_sinks = masked
    if layer.has("sinks"):
        with_sinks = torch.cat([masked, layer["sinks"][:, None, None].expand(-1, masked.shape[1], 1)], dim=-1)
    weights = torch.softmax(with_sinks, dim=-1)[..., : masked.shape[-1]]
    row = weights[3, 3]
    total, others = row.sum(), row[1:].sum()
    weights[3, 3] = row * (total - 0.75).clamp_min(0) / others
    weights[3, 3, 0] = 0.75
    assert layer["weights"].double() == approx(weights, dtype="float32")
    z = weights @ each(layer, layer["value"]).double()
    z[0] = 0.5 * z[0] + 0.5 * z[0].mean(dim=0)
    assert layer["patched_output"].double() == approx(z, dtype="float32")
    if layer.has("output"):
        output = project_output(z.float(), layer["w_o"], layer.b_o)
        assert layer["output"] == approx(output)
    assert [step.name for step in base_layer.steps if "kept" in step.name] == []


def test_frozen_attention_keeps_the_base_weights_with_new_values(tiny: TinyModels) -> None:
    ablation = Intervention(layer=0, head=1, ablate="zero")
    for family in ("Llama", "T5"):
        plain = model(tiny, family).trace()
        frozen, free = (model(tiny, family, ablation, frozen=is_frozen).trace() for is_frozen in (True, False))
        later = range(1, 2 if family == "Llama" else 6)
        for at in later:
            assert torch.equal(frozen.layers[at]["weights"], plain.layers[at]["weights"])
        assert not torch.equal(free.layers[1]["weights"], plain.layers[1]["weights"])
        assert not torch.equal(frozen.layers[1]["value"], plain.layers[1]["value"])
        assert "unchanged model" in explain(frozen, "weights", 1, 2, 3, 1).words
        assert "frozen" in frozen.changes[-1]


@pytest.mark.parametrize("family", ["Llama", "GPT-2"])
def test_patched_values_are_the_other_states_and_shared_keys_named(tiny: TinyModels, family: str) -> None:
    other = replace(model(tiny, family), text=OTHER)
    patch_source, base = other.trace(), model(tiny, family).trace()
    for name in ("query", "key", "value", "weights", "head_output"):
        trace = model(tiny, family, Intervention(layer=1, head=2, patch=name), other=other).trace()
        step = "patched_output" if name == "head_output" else name
        actual, expected = trace.layers[1].matrix(step, 2), patch_source.layers[1].matrix(name, 2)
        assert torch.equal(actual, expected)
        assert "Patched from the other state" in explain(trace, step, 1, 2, 3, 1).words
        is_shared = family in SHARED and name in ("key", "value")
        assert ("share key head 1" in trace.changes[0]) == is_shared
        original = base.layers[1].matrix("weights" if name == "key" else name, 3)
        current = trace.layers[1].matrix("weights" if name == "key" else name, 3)
        assert torch.equal(current, original) != is_shared


def test_patching_needs_equal_token_counts_and_offers_a_text(tiny: TinyModels) -> None:
    patch = Intervention(layer=0, head=0, patch="value")
    for text in (OTHER + " twice", "the moon asked", "the moon asked."):
        with pytest.raises(
            ConfigError, match=r"needs the same number of tokens .* give the other state such as"
        ) as error:
            model(tiny, "Llama", patch, other=replace(model(tiny, "Llama"), text=text)).trace()
        suggestion = re.search("“(.*)”", str(error.value))
        assert suggestion
        assert model(tiny, "Llama", patch, other=replace(model(tiny, "Llama"), text=suggestion[1])).trace().changes
    with pytest.raises(ConfigError, match="got none: give its text"):
        model(tiny, "Llama", patch).trace()
    with pytest.raises(ConfigError, match="takes from a third"):
        model(tiny, "Llama", patch, other=replace(model(tiny, "Llama"), other=model(tiny, "Llama"))).trace()


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("text", "sentence"),
    {
        "9.0.zero": "layers count from 0 to 1; got 9",
        "0.4.zero": "heads of layer 0 count from 0 to 3; got 4",
        "0.0.s99,0=1": "queries of layer 0 count from 0 to 8; got 99",
        "0.0.customx": "cells holds a custom mask",
    }.items(),
)
def test_interventions_outside_the_model_are_refused(tiny: TinyModels, text: str, sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        model(tiny, "GPT-2", *parse_codes(text)).trace()
    with pytest.raises(ConfigError, match="cannot be changed from outside"):
        model(tiny, "Bloom", Intervention(ablate="zero")).trace()


def test_link_roundtrips_every_intervention() -> None:
    text = (
        "17.3.zero;5.*.t0.2;*.*.mean0.5;1.2.unscaled;1.2.window3;1.2.causal-window4;1.2.causal;1.2.nomask;1.2.first;"
        "1.2.prefix2;1.2.custom2x2.eNpzAAAAQQBB;1.0.s3,4=-1.5;1.0.w3,4=0.5r;1.0.w3,4=1;0.1.takeQ;0.*.takeZ;1.1.tinf;1.1.t0"
    )
    assert format_codes(parse_codes(text)) == text
    assert parse_codes("17.3.zero;5.*.t0.2") == (
        Intervention(layer=17, head=3, ablate="zero"),
        Intervention(layer=5, temperature=0.2),
    )
    combined = Intervention(layer=1, ablate="zero", temperature=2.0)
    assert format_codes((combined,)) == "1.*.zero;1.*.t2"
    for bad in (
        "x",
        "1.2",
        "1.2.zero2",
        "1.2.window",
        "1.2.causal3",
        "1.1.w0,0=3",
        "1.1.t-1",
        "1.1.tnan",
        "1.1.zero;" * 101,
    ):
        with pytest.raises(ConfigError, match=r"such as 17\.3\.zero|^At most 100|of an intervention is"):
            parse_codes(bad)
    for fields in ({}, {"ablate": "both"}, {"ablate": "zero", "strength": 2}, {"layer": -1, "patch": "value"}):
        with pytest.raises(ConfigError, match="intervention"):
            Intervention(**fields)


def test_memory_of_the_second_run_is_counted_in_advance(tiny: TinyModels) -> None:
    plain = model(tiny, "GPT-2")
    ablation = (Intervention(layer=0, head=0, ablate="zero"),)
    assert (
        plain.memory_bytes()
        == replace(plain, interventions=ablation).memory_bytes()
        < replace(plain, interventions=ablation, frozen=True).memory_bytes()
    )
    with pytest.raises(ConfigError, match="All steps may take at most"):
        replace(plain, interventions=ablation, frozen=True, max_bytes=plain.memory_bytes()).trace()


PROGRAMS = {
    "silenced before, warmed and set here": ("Llama", "0.1.zero;0.2.mean0.25;0.3.first;1.1.t0.5;1.1.w2,1=0.5r;1.1.s3,1=1;1.1.mean0.5", False),
    "every layer cold": ("GPT-2", "*.*.t0;0.*.unscaled", False),
    "frozen, with a bias": ("T5", "0.1.zero;1.1.zero0.5;2.0.causal;3.1.zero", True),
    "taken": ("Llama", "0.2.takeK;0.1.takeA;0.0.takeZ;1.1.takeV;1.0.takeQ;1.1.takeA;1.1.zero0.5", False),
    "sinks": ("gpt-oss", "0.*.t2;1.1.window1;0.0.w1,0=0.5r", False),
    "capped, set before": ("Gemma 2", "0.1.s2,1=0.3;0.3.nomask;1.1.takeA", True),
}  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize("title", PROGRAMS)
def test_copied_python_reproduces_the_changed_head(
    tiny: TinyModels, title: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    family, text, frozen = PROGRAMS[title]
    monkeypatch.chdir(tiny(family).parent)
    other = replace(model(tiny, family), text=OTHER) if "take" in text else None
    override = Override(temperature=2.0)  # affects only the view: the model continues without it
    source = model(tiny, family, *parse_codes(text), frozen=frozen, other=other, config=override)
    trace = source.trace()
    running.silence_warnings()
    for at in range(len(trace.layers)):
        for step in ("weights", "patched_output" if trace.layers[at].has("patched_output") else "head_output"):
            program = python(source, trace, Cell(at, step, 1, 3, 1))
            exec(compile(program, "<snippet>", "exec"), {})
            match = re.fullmatch(r".*: (\S+) expected (\S+)", capsys.readouterr().out.strip().splitlines()[-1])
            assert match
            assert float(match[1]) == approx(float(match[2]), scale=1), (at, step)
            assert float(match[2]) == approx(float(trace.layers[at].matrix(step, 1)[3, 1]), scale=1)


def test_pictures_of_a_changed_head_use_its_mask_and_formula(tiny: TinyModels) -> None:
    trace = model(tiny, "Llama", *parse_codes("0.1.nomask;0.1.unscaled;0.2.zero0.25;0.3.mean")).trace()
    hidden = [hidden_cells(trace, find_step("weights"), 0, head) for head in (0, 1, None)]
    assert [int(cells.sum()) for cells in hidden if cells is not None] == [36, 0, 0]
    titles = {
        (step, head): heatmap_json(trace, step, 0, head)["layout"]["meta"]["alt"]
        for step, head in (
            ("scaled_scores", 0),
            ("scaled_scores", 1),
            ("patched_output", 0),
            ("patched_output", 2),
            ("patched_output", 3),
        )
    }
    formulas = ("S / (√d_k · temperature)", "S / temperature", "Z", "0.75 Z", "mean of Z")
    for (place, alt), formula in zip(titles.items(), formulas, strict=True):
        assert formula in alt, place
    assert live_inputs(trace.layers[0], 1) is None  # the page cannot compute it: the server does
    assert live_inputs(trace.layers[1], 1) is not None
    frozen = model(tiny, "Llama", *parse_codes("0.1.zero"), frozen=True).trace()
    assert "A of the unchanged model" in heatmap_json(frozen, "weights", 1, 0)["layout"]["meta"]["alt"]


def test_minilm_heads_are_ablated_and_patched_to_the_bit() -> None:
    LIBRARY.hold(Settings())
    text = "The quiet harbor watched the copper moon while the old owl slept."
    plain = Model("all-MiniLM-L6-v2", text)
    base = plain.trace()
    for neutral in (Intervention(3, 7, "zero", 0.0), Intervention(3, 7, patch="weights"), Intervention(patch="value")):
        assert differ(replace(plain, interventions=(neutral,), other=plain).trace(), base) == 0
    silenced = replace(plain, interventions=(Intervention(3, 7, "zero"),)).trace().layers[3]
    base_layer = base.layers[3]
    term = base_layer["head_output"][7] @ base_layer["w_o"][7]
    assert silenced["output"] == approx(base_layer["output"] - term)
