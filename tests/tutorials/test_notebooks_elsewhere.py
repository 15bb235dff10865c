"""The published notebooks in what takes any source: files, matrices, overrides, pages."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from conftest import component_message, set_knobs, state_of_address
from margins import approx
from test_code import check
from test_file import same
from test_given import assert_same, continued
from test_link import read
from test_pages import PAGES, PICKING, drawn, opened, said
from test_sources_on_pages import editor, step
from test_what_if import TURNED

from attention import AttentionConfig, File, Layer, Override, TypedText
from attention.files import array_writer
from attention.formula.mask import Mask
from attention.pictures.live_inputs import live_inputs
from attention.sources.matrix_fields import matrices_of_layer
from attention.tutorials import NOTEBOOKS, Notebook
from pages.ui.page import share
from pages.ui.server.traces import trace_of


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_exported_notebook_reopens_with_its_notes(name: str) -> None:
    trace = Notebook(name).trace()
    for reopened in (
        File.of("x.npz", array_writer.npz(trace)),
        File.of("x.safetensors", array_writer.safetensors(trace)),
    ):
        same(reopened.trace(), trace)
        assert reopened.trace().notes == trace.notes


@pytest.mark.sample(10)
@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_opens_on_every_page(page: str, name: str) -> None:
    app = opened(page, source="notebook", notebook=name)
    assert not app.exception
    assert not app.error


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_lab_paints_the_numbers_of_a_notebook_with_its_remarks(name: str) -> None:
    app = opened("app.py", source="notebook", notebook=name)
    layer = Notebook(name).trace().layers[0]
    for figure in drawn(app):
        tensor = layer.matrix(figure["layout"]["meta"]["step"]).numpy()
        assert figure["data"][0]["z"] == approx(np.where(np.isfinite(tensor), tensor, np.nan), scale=1)
    for note in Notebook(name).trace().notes:
        assert note[:30].replace('"', "") in said(app).replace("\\", "").replace('"', "")


def test_batch_offers_its_sequences_and_shows_the_chosen_one() -> None:
    app = opened("app.py", source="notebook", notebook="averaging-trick", sequence="3")
    assert app.selectbox(key="sequence").options == [f"{i}: row {i} of the batch" for i in range(4)]
    expected = Notebook("averaging-trick", 3).trace().layers[0].head_output[0].numpy()
    assert step(app, "head_output") == approx(expected)


@pytest.mark.sample(5)
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_notebook_continues_as_matrices_with_the_same_digits(name: str) -> None:
    app = opened("app.py", source="notebook", notebook=name, step="scores", q="1", k="0")
    originals = {figure["layout"]["meta"]["step"]: figure["data"][0]["z"] for figure in drawn(app)}
    app.button(key="continue").click().run()
    assert not app.exception
    assert not app.error
    assert app.selectbox(key="source").value == "matrices"
    assert not editor(app)[1]
    continued = {figure["layout"]["meta"]["step"]: figure["data"][0]["z"] for figure in drawn(app)}
    for of_step in originals.keys() & {"scores", "weights"}:
        assert continued[of_step] == approx(originals[of_step], terms=1024)


def test_notebook_continues_with_all_its_heads_and_overrides() -> None:
    app = opened("app.py", source="notebook", notebook="multi-head", head="2", sequence="1", temperature="0.5")
    app.button(key="continue").click().run()
    assert not app.exception
    assert (state_of_address(app)["temperature"], component_message(app)["controls"]["head"]["value"]) == ("0.5", "2")
    expected = Notebook("multi-head", 1, Override(temperature=0.5)).trace().layers[0]
    for name in ("weights", "output"):
        assert step(app, name) == approx(expected.matrix(name, 2).numpy())
    unscaled = opened("app.py", source="notebook", notebook="heatmaps-unscaled")
    unscaled.button(key="continue").click().run()
    assert "The layer has no softmax" in said(unscaled)


@pytest.mark.quick
def test_scores_without_a_product_are_computed_by_the_server():
    scores = torch.ones(1, 2, 2)
    shifted = Layer(
        recorded={"query": torch.ones(1, 2, 3), "key": torch.ones(1, 2, 3), "scores": scores, "weights": scores / 2}
    )
    assert live_inputs(shifted, 0) is None
    assert live_inputs(Notebook("averaging-trick").trace().layers[0], 0) is None
    assert live_inputs(Notebook("heatmaps-unscaled").trace().layers[0], 0) is None  # it has no weights


@pytest.mark.quick
def test_temperature_mask_and_scaling_reuse_cached_scores():
    text = "this text is asked for once only"
    traces = [
        trace_of(TypedText(text, AttentionConfig(**knobs)))
        for knobs in ({}, {"temperature": 2.0}, {"mask": "causal"}, {"scaled": False})
    ]
    assert len({trace.layers[0].scores.data_ptr() for trace in traces}) == 1
    assert trace_of(TypedText(text, AttentionConfig(seed=1))).layers[0].scores is not traces[0].layers[0].scores
    book = [trace_of(Notebook("numpy", config=Override(temperature=number))) for number in (1.0, 0.5)]
    assert book[0].layers[0].scores.data_ptr() == book[1].layers[0].scores.data_ptr()


@pytest.mark.quick
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_every_notebook_continues_with_all_heads_to_the_same_digits(name: str) -> None:
    for sequence in range(Notebook(name).n_sequences):
        trace = Notebook(name, sequence).trace()
        layer = trace.layers[0]
        carried_over = matrices_of_layer(trace.layers[0])
        assert carried_over is not None
        copy = continued(carried_over).trace()
        assert [token.replace(" ", "_") for token in trace.tokens] == list(copy.tokens)
        expected = layer.without() if layer.has("weights") else layer.without("value")
        assert_same(expected, copy.layers[0])


@pytest.mark.quick
def test_continuing_reports_what_does_not_carry_over() -> None:
    unscaled = matrices_of_layer(Notebook("heatmaps-unscaled").trace().layers[0])
    assert unscaled is not None
    assert unscaled.knobs["scaled"] is False
    assert "no softmax" in unscaled.omissions[0]
    for name in ("multi-head", "averaging-trick", "self-attention-class"):
        carried_over = matrices_of_layer(Notebook(name).trace().layers[0])
        assert carried_over is not None
        assert carried_over.omissions == ()
    assert matrices_of_layer(Layer(recorded={"weights": torch.ones(1, 1, 1)})) is None


@pytest.mark.quick
def test_overridden_notebook_continues_with_its_overrides() -> None:
    trace = Notebook("multi-head", 0, Override(mask="window", window=1, temperature=0.5, scaled=False)).trace()
    carried_over = matrices_of_layer(trace.layers[0])
    assert carried_over is not None
    knobs = {name: carried_over.knobs[name] for name in ("mask", "window", "temperature", "scaled", "divisor")}
    assert knobs == {"mask": "window", "window": 1, "temperature": 0.5, "scaled": False, "divisor": None}
    assert_same(trace.layers[0], continued(carried_over).trace().layers[0])


@pytest.mark.quick
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_overridden_notebook_equals_its_changed_base_and_can_be_reset(name: str) -> None:
    source = Notebook(name, 0, TURNED)
    assert source.base == Notebook(name)
    assert source.base.config == Override()
    published, overridden = Notebook(name).trace().layers[0], source.trace().layers[0]
    assert (published.base_formula, published.with_config(Override())) == (None, published)
    back = overridden.with_config(Override())
    names = [step.name for step in published.steps]
    added = ["scaled_scores"] if "temperature" in published.overridable_knobs else []
    assert [step.name for step in back.steps] == names
    assert {step.name for step in overridden.steps} == {*names, *added}, (
        "what divides by nothing divides by the temperature"
    )
    for one, tensor in published:
        assert torch.equal(back[one.name], tensor)
        later = one.name in ("scaled_scores", "masked_scores", "weights", "head_output", "output")
        assert torch.equal(overridden[one.name], tensor) == (not later or name == "heatmaps-unscaled"), one.name
    if "weights" in dict.fromkeys(one.name for one in overridden.steps):
        scores = overridden["scores"] / (0.5 if overridden.has("scaled_scores") else 1)
        hidden = ~Mask("window", 1).build(*scores.shape[1:])
        assert overridden["weights"] == approx(torch.softmax(scores.masked_fill(hidden, -math.inf), dim=-1))
    check(source)


def test_page_controls_override_a_notebook_and_reset_it() -> None:
    app = opened("app.py", source="notebook", notebook="averaging-self-attention")
    assert component_message(app)["override"] == {"text": "The notebook's own numbers.", "reset": {}, "changed": False}
    control = component_message(app)["controls"]["mask"]
    assert (control["value"], control["option_names"], control["options"][0]) == ("own", {"own": "own (causal)"}, "own")
    assert component_message(app)["defaults"]["mask"] == "own"
    set_knobs(app, temperature=0.2, mask="none")
    assert (state_of_address(app)["temperature"], state_of_address(app)["mask"]) == ("0.2", "none")
    expected = Notebook("averaging-self-attention", 0, Override(temperature=0.2, mask="none")).trace().layers[0]
    assert drawn(app)[1]["data"][0]["z"] == approx(expected.weights[0].numpy())
    override = component_message(app)["override"]
    assert override["text"] == "What if: temperature 0.2 and no mask instead of the notebook's own."
    set_knobs(app, **override["reset"])
    assert not {"temperature", "mask"} & set(state_of_address(app))
    assert component_message(app)["override"]["reset"] == {}


@pytest.mark.quick
def test_link_to_a_notebook_has_only_its_knobs() -> None:
    assert read(source="notebook", notebook="multi-head", sequence="2", d_model="x") == (Notebook("multi-head", 2), ())
    source, notes = read(source="notebook", notebook="numpy", temperature="2", scaled="false", mask="own", window="5")
    assert (source, notes) == (Notebook("numpy", 0, Override(temperature=2, scaled=False, window=5)), ())


@pytest.mark.parametrize("page", PICKING)
def test_notebook_offers_no_useless_knob(page: str) -> None:
    def offers(name: str) -> list[str]:
        return list(component_message(opened(page, source="notebook", notebook=name))["controls"])

    mask = ["mask", "window", "prefix"]
    assert offers("heatmaps-multi-head") == ["temperature", *mask, "scaled", "head", "colors"]
    assert offers("averaging-trick") == [*mask, "colors"], "its scores have no divisor"
    bare = opened(page, source="notebook", notebook="heatmaps-unscaled", temperature="2.0", mask="causal")
    assert not any(b'"controls":[{' in component.proto.bytes for component in bare.get("bidi_component")), (
        "it has no softmax"
    )


def test_knobs_start_at_the_values_of_each_source_kind() -> None:
    app = opened("app.py", mask="causal", temperature="2.0")
    app.selectbox(key="source").set_value("notebook").run()
    assert {"mask", "temperature"}.isdisjoint(state_of_address(app)), "a notebook begins as it was published"
    set_knobs(app, temperature=0.2)
    app.selectbox(key="source").set_value("matrices").run()
    assert (state_of_address(app)["mask"], state_of_address(app)["temperature"]) == ("causal", "2.0")
    app.selectbox(key="source").set_value("notebook").run()
    assert (state_of_address(app)["temperature"], "mask" in state_of_address(app)) == ("0.2", False)


def test_locked_link_and_state_file_describe_the_override() -> None:
    locked = opened(
        "app.py", source="notebook", notebook="numpy", temperature="0.5", mask="causal", present="temperature"
    )
    assert (
        component_message(locked)["override"]["text"]
        == "What if: temperature 0.5 and mask causal instead of the notebook's own."
    )
    app = opened("app.py", mask="causal")
    content = share._write_state("Explore", {"source": "notebook", "notebook": "numpy", "temperature": "2.0"}).encode()
    app.file_uploader(key="open_state_0").upload("s.json", content).run()
    assert component_message(app)["override"]["text"] == "What if: temperature 2 instead of the notebook's own."
    assert "mask" not in state_of_address(app)
