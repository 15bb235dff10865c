"""Models with layers without attention: names, links, interventions, pages and files use the model's own layer index."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from conftest import state_of_address
from margins import approx
from test_file import same
from test_pages import drawn, opened, said
from tiny_models import HYBRID, TinyModels
from torch import Tensor

from attention import Cell, ConfigError, File, Intervention, MissingError, Model, metrics
from attention.export.program import python
from attention.models import forward_pass, running
from attention.models.attention_sites import describe_layers
from attention.models.library import LIBRARY, Settings
from attention.patching.intervention import parse_codes
from attention.pictures.mosaic import layers_json
from attention.trace.residual_parts import HEAD, LOGITS
from pages.ui.address import menu
from pages.ui.server import traces

TEXT = "the owl asked the moon"
LINK = {"source": "model", "model": "Jamba", "text": TEXT}
WITH_ATTENTION = {"Jamba": (1, 3), "Qwen3-Next": (3,), "Granite hybrid": (1,), "LFM2": (1,), "Zamba 2": (1, 3)}


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    assert traces.trace_of  # importing it gives the library the operator's settings, once
    for family in HYBRID:
        tiny(family)
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def inputs_of_layers(source: Model) -> list[Tensor]:
    """The hidden states that enter each layer of the model, [query_pos d_model]."""
    loaded, inputs = source.load_inputs()
    states: list[Tensor] = []
    hooks = [
        layer.register_forward_pre_hook(lambda _, args, kwargs: states.append((args or (kwargs["hidden_states"],))[0][0].clone()), with_kwargs=True)
        for layer in loaded.model.model.layers
    ]  # fmt: skip

    forward_pass.run_recorded(loaded, inputs, source.patched_forward(loaded, inputs))
    for hook in hooks:
        hook.remove()
    return states


@pytest.mark.sample(1)
@pytest.mark.parametrize("family", HYBRID)
def test_layers_have_the_index_of_the_model(family: str, tiny: TinyModels) -> None:
    trace, expected = Model(family, TEXT).trace(), WITH_ATTENTION[family]
    loaded = LIBRARY.get(family)
    assert len(trace.layers) == loaded.model.config.num_hidden_layers
    assert trace.attention_layers == expected
    assert [layer.name for layer in trace.layers] == [f"layer {i}" for i in range(len(trace.layers))]
    for index, layer in enumerate(trace.layers):
        assert (layer.n_heads, layer.has_attention) == ((4, True) if index in expected else (0, False))
        assert bool(layer.steps) == layer.has_attention
    (note,) = trace.notes
    assert note.startswith("This model has no attention weights from token to token in layer")
    queried: list[Tensor] = []
    for index in expected:  # the projections of the model's own layer read what the trace recorded there
        (w_q,) = (
            module for name, module in loaded.model.model.layers[index].named_modules() if name.endswith("q_proj")
        )
        hook = w_q.register_forward_pre_hook(lambda _, args: queried.append(args[0][0].clone()))
        Model(family, TEXT).trace()
        hook.remove()
        assert trace.layers[index]["input"] == approx(queried[-1])


def test_layer_without_attention_says_what_it_has() -> None:
    trace = Model("Jamba", TEXT).trace()
    assert trace.notes == ("This model has no attention weights from token to token in layers 0, 2 (mamba): layers are numbered as in the model.",)  # fmt: skip
    assert trace.layers[0].weights is None
    assert "no attention: mamba" in repr(trace)
    with pytest.raises(
        MissingError,
        match=r"^layer 2 of the model has no attention from token to token \(mamba\), so it has no weights",
    ):
        _ = trace.layers[2]["weights"]
    assert describe_layers({f"layer {i}": "mlp" if i == 5 else "conv" for i in (0, 1, 2, 4, 5)}) == (
        "This model has no attention weights from token to token in layers 0–2, 4 (conv); 5 (mlp): layers are numbered as in the model."
    )


def test_models_without_such_layers_keep_their_numbers(tiny: TinyModels) -> None:
    tiny("Llama")
    loaded = LIBRARY.get("Llama")
    trace = Model("Llama", TEXT).trace()
    assert (trace.attention_layers, loaded.n_layers, loaded.without_attention) == ((0, 1), 2, {})
    assert not trace.notes


def test_intervention_changes_the_layer_of_its_index() -> None:
    plain = Model("Jamba", TEXT)
    before, without = inputs_of_layers(plain), replace(plain, interventions=(Intervention(1, 2, ablate="zero"),))
    after = inputs_of_layers(without)
    assert [bool((a == b).all()) for a, b in zip(before, after, strict=True)] == [True, True, False, False]
    last = inputs_of_layers(replace(plain, interventions=(Intervention(3, 0, ablate="zero"),)))
    assert all(bool((a == b).all()) for a, b in zip(before, last, strict=True))
    trace = without.trace()
    assert trace.changes[0].startswith("Layer 1, head 2")
    assert not trace.layers[1]["patched_output"][2].any()
    everywhere = Model("Jamba", TEXT, interventions=(Intervention(ablate="zero"),), frozen=True).trace()
    assert not any(everywhere.layers[i]["patched_output"].any() for i in (1, 3))


def test_intervention_without_attention_is_refused_with_the_layers() -> None:
    with pytest.raises(ConfigError, match="with attention, of this model 1, 3; got 0, which has none: choose one"):
        Model("Jamba", TEXT, interventions=(Intervention(0, 1, ablate="zero"),)).trace()
    with pytest.raises(ConfigError, match="layers count from 0 to 3; got 4"):
        Model("Jamba", TEXT, interventions=(Intervention(4, ablate="zero"),)).trace()


def test_copied_python_computes_the_layer_of_the_model(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tiny("Jamba").parent)
    source = Model("Jamba", TEXT, interventions=parse_codes("1.1.zero;*.0.t0.5"))
    trace = source.trace()
    running.silence_warnings()
    for at in trace.attention_layers:
        exec(compile(python(source, trace, Cell(at, "weights", 1, 3, 1)), "<snippet>", "exec"), {})
        match = re.fullmatch(r".*: (\S+) expected (\S+)", capsys.readouterr().out.strip().splitlines()[-1])
        assert match
        assert float(match[1]) == approx(float(match[2]))


def test_metrics_and_maps_name_layers_of_the_model() -> None:
    source = Model("Jamba", TEXT)
    trace = source.trace()
    table = metrics.of(trace)
    assert {layer for layer, _ in table.heads} == {1, 3}
    assert {layer for layer, *_ in metrics.similar_heads(trace, 1, 0)} == {1, 3}
    figure = layers_json(trace, "weights")
    assert figure["layout"]["yaxis"]["ticktext"] == ["L1", "L3"]
    assert {panel["layer"] for panel in figure["layout"]["meta"]["panels"]} == {1, 3}


@pytest.mark.parametrize(
    ("family", "without"),
    [
        ("Jamba", ["L0 mamba", "L0 MLP", "L2 mamba", "L2 MLP"]),
        ("Qwen3-Next", [f"L{i} {part}" for i in range(3) for part in ("linear attention", "MLP")]),
        ("Granite hybrid", ["L0 linear attention", "L0 MLP", "L2 linear attention", "L2 MLP"]),
        ("LFM2", ["L0 conv", "L0 MLP", "L2 conv", "L2 MLP"]),
    ],
)
def test_linear_run_names_what_layers_have_instead_of_attention(family: str, without: list[str]) -> None:
    model_run = Model(family, TEXT).trace().model_run
    assert model_run is not None
    parts, vectors = model_run.linear_run().parts_of(LOGITS, 4, None)
    other = [part.name for part in parts if part.layer is not None and part.layer not in WITH_ATTENTION[family]]
    assert other == without
    assert {part.layer for part in parts if part.kind == HEAD} == {*WITH_ATTENTION[family]}
    by_name = {part.name: vector for part, vector in zip(parts, vectors, strict=True)}
    assert by_name["rounding"] == approx(0, scale=float(vectors.abs().max()), dtype="float32")
    loaded, written = LIBRARY.get(family), list[Tensor]()
    layer = loaded.model.model.layers[0]
    mixer = next(module for name, module in layer.named_children() if name in ("mamba", "linear_attn", "conv"))
    hook = mixer.register_forward_hook(
        lambda _, __, output: written.append(output[0] if isinstance(output, tuple) else output)
    )
    Model(family, TEXT).trace()
    hook.remove()
    # The mixer writes along the stream, whose frozen norm only scales each number.
    direction = written[0].reshape(-1, written[0].shape[-1])[4].double()
    direction = direction * getattr(layer, "residual_multiplier", 1.0)
    scale = by_name[without[0]] / direction
    embedding = Model(family, TEXT).trace().residual[0][4].double()
    assert scale == approx(by_name["embedding"] / embedding, terms=1024, scale=1, dtype="float32")


def test_linear_run_refuses_heads_behind_another_matrix() -> None:
    model_run = Model("Zamba 2", TEXT).trace().model_run
    assert model_run is not None
    with pytest.raises(MissingError, match="whose sum passes another matrix: choose a model of another family"):
        model_run.linear_run()


@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_saved_hybrid_model_keeps_its_layer_numbers(ending: str, tmp_path: Path) -> None:
    trace = Model("Jamba", TEXT).trace()
    trace.save(tmp_path / f"all.{ending}")
    read = File.open(tmp_path / f"all.{ending}").trace()
    same(read, trace)
    assert read.attention_layers == (1, 3)
    assert [layer.mixer for layer in read.layers] == ["mamba", "attention", "mamba", "attention"]
    assert read.notes == trace.notes
    trace.save(tmp_path / f"head.{ending}", head=2)
    head = File.open(tmp_path / f"head.{ending}").trace()
    assert head.layers[3]["weights"][0] == approx(trace.layers[3]["weights"][2])


def test_page_opens_a_layer_with_attention() -> None:
    trace = Model("Jamba", TEXT).trace()
    for params, layer, note in (({}, 1, ""), ({"layer": "3", "head": "2"}, 3, ""), ({"layer": "0"}, 1, "layer = “0”"), ({"layer": "2"}, 1, "layer = “2”"), ({"layer": "7"}, 1, "layer = “7”")):  # fmt: skip
        app = opened("app.py", **LINK, **params)
        assert not app.exception
        assert "one of 1, 3, the layers with attention" in said(app) if note else "The link asks" not in said(app)
        assert note in said(app)
        assert "no attention weights from token to token in layers 0, 2 \\(mamba\\)" in said(app)
        weights = next(figure for figure in drawn(app) if figure["layout"]["meta"]["step"] == "weights")
        head = int(params.get("head", 0))
        np.testing.assert_array_equal(np.asarray(weights["data"][0]["z"]), trace.layers[layer]["weights"][head].numpy())
        assert f"L{layer}" in weights["layout"]["title"]["subtitle"]["text"]
        assert state_of_address(app).get("layer", "1") == str(layer)


def test_heads_page_names_layers_of_the_model() -> None:
    app = opened("pages/heads.py", **LINK)
    assert not app.exception
    assert any(figure["layout"]["yaxis"].get("ticktext") == ["L1", "L3"] for figure in drawn(app))


def test_page_refuses_an_intervention_that_fits_no_layer() -> None:
    app = opened("app.py", **LINK, interventions="0.1.zero")
    assert not app.exception
    assert "with attention, of this model 1, 3; got 0" in said(app)
    assert any("L0 H1" in box.label for box in app.checkbox)
    app.button(key="changed_reset").click().run()
    assert "of this model" not in said(app)
    assert drawn(app)


@pytest.mark.parametrize("page", sorted({*menu()} - {"app.py", "pages/heads.py"}))
def test_other_pages_open_hybrid_models(page: str) -> None:
    app = opened(page, **LINK)
    assert not app.exception
    assert not app.error
