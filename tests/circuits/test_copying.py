"""What a head copies: copying scores, spectra of both circuits, and the tokens that a head raises, against other ways to compute them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT
from formula_models import CONFIGS, save_formula_model
from margins import approx
from streamlit.testing.v1 import AppTest
from tiny_models import TinyModels
from torch import Tensor

from attention import ConfigError, MissingError, Model, ModelError, TextError, TypedText, circuits, metrics
from attention.circuits import copying, figures
from attention.circuits.copying import _matrices_of
from attention.metrics.table import describe_head, describe_metric, frame, heading, rank_words
from attention.models.model_matrices import _NO_ROTATION_REASON, ModelMatrices, _find_change
from attention.pictures import charts
from attention.training import Trained

REFERENCE = json.loads((Path(__file__).parent / "data/copying_by_transformer_lens.json").read_text(encoding="utf-8"))
TEXT = "the owl asked the moon and the moon blinked"
SMOLLM2 = "SmolLM2-135M-Instruct"
ROTATED = ("Llama", "Mistral", "Gemma 2", "GPT-NeoX", "Phi-3", "gpt-oss", "Granite")


@pytest.fixture(scope="module")
def formula(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Model]:
    """Models whose weights come from a formula, by family."""
    folder = tmp_path_factory.mktemp("formula")
    for family in CONFIGS:
        save_formula_model(family, folder / family)
    return {family: Model(str(folder / family), TEXT) for family in CONFIGS}


@pytest.fixture(scope="module")
def smollm2() -> Model:
    if not (Path("models") / SMOLLM2).is_dir():
        pytest.skip(f"models/{SMOLLM2} is missing: run make models ALL=1")
    return Model(SMOLLM2, "The quiet harbor watched the copper moon. The quiet harbor watched the")


def near(result: Tensor, expected: Any, terms: int = 16384) -> None:
    assert result.double() == approx(torch.as_tensor(expected).double(), terms=terms, dtype="float32")


@pytest.mark.parametrize("family", CONFIGS)
def test_copying_scores_and_spectra_equal_those_of_transformer_lens(formula: dict[str, Model], family: str) -> None:
    model = formula[family]
    for name, center_unembed in (("default", True), ("uncentered", False)):
        expected = REFERENCE["families"][family][name]
        scores = circuits.copying_score(model, center_unembed)
        near(scores, expected["copying score"])
        for layer, heads in enumerate(expected["OV singular values"]):
            for head, singular_values in enumerate(heads):
                spectrum = circuits.ov_spectrum(model, layer, head)
                near(spectrum.singular_values, singular_values)
                score = spectrum.centered_copying_score if center_unembed else spectrum.copying_score
                assert score == approx(float(scores[layer, head]))
                at_once = circuits.qk_spectrum(model, layer, head)
                near(at_once.singular_values, expected["QK singular values"][layer][head])


def test_copying_score_equals_the_eigenvalues_of_the_whole_matrix(formula: dict[str, Model]) -> None:
    for model in formula.values():
        loaded, _ = model.load_inputs()
        matrices = _matrices_of(model)
        layer = matrices.layer(1)
        assert layer.w_v is not None
        assert layer.w_o is not None
        w_e = loaded.model.get_input_embeddings().weight.detach().double()
        rows = torch.stack([matrices.logits(row) for row in (w_e.float() @ layer.w_v[2] @ layer.w_o[2])]).double()
        whole = torch.linalg.eigvals(rows)  # [token token] has 400 eigenvalues, all but 8 of them 0
        largest = whole[whole.abs().argsort(descending=True)][:8]
        assert float(circuits.copying_score(model)[1, 2]) == approx(
            float(largest.sum().real / largest.abs().sum()), scale=1
        )
        spectrum = circuits.ov_spectrum(model, 1, 2)
        assert spectrum.token_eigenvalues is not None
        near(spectrum.token_eigenvalues.abs(), largest.abs(), 2**20)


def test_ov_and_qk_spectra_equal_those_of_the_whole_matrices(tiny: TinyModels) -> None:
    for family in ("Llama", "GPT-2", "Gemma 2"):
        model = Model(str(tiny(family)), TEXT)
        layer = _matrices_of(model).layer(1)
        w_q, w_k, w_v, w_o = (w[3].double() for w in (layer.w_q, layer.w_k, layer.w_v, layer.w_o) if w is not None)
        ov, qk = circuits.ov_spectrum(model, 1, 3), circuits.qk_spectrum(model, 1, 3)
        for spectrum, whole in ((ov, w_v @ w_o), (qk, w_q @ w_k.T)):
            eigenvalues, singular_values = torch.linalg.eigvals(whole), torch.linalg.svdvals(whole)
            near(spectrum.singular_values, singular_values[:8])
            near(spectrum.eigenvalues.abs(), eigenvalues.abs().sort(descending=True).values[:8], 2**20)


@pytest.mark.parametrize("family", ROTATED)
def test_rotated_matrices_give_the_scores_that_the_model_computes(tiny: TinyModels, family: str) -> None:
    """Two texts of one token would all be at position 0, so the scores of a text are compared, up to the scales and biases left out."""
    model = Model(str(tiny(family)), TEXT)
    loaded, inputs = model.load_inputs()
    layer, recorded = _matrices_of(model).layer(0), model.trace().layers[0]
    assert layer.rotations is not None
    assert layer.w_q is not None
    assert layer.w_k is not None
    embeddings = loaded.model.get_input_embeddings()(inputs["input_ids"])[0].detach()
    # A family may multiply its embeddings; a norm takes that out.
    rows = layer.normalize(embeddings)
    has_bias = any(name in recorded.recorded for name in ("b_q", "b_k"))
    q, k = 7, 2
    (at_q, at_k), spectrum = layer.rotations([q, k]), circuits.qk_spectrum(model, 0, 1, offset=q - k)
    query, key = rows[q] @ layer.w_q[1], rows[k] @ layer.w_k[1]
    whole = (
        layer.w_q[1].double()
        @ (layer.rotations([q - k]) @ layer.rotations([0]).mT)[0].double()
        @ layer.w_k[1].T.double()
    )
    near(spectrum.singular_values, torch.linalg.svdvals(whole)[: len(spectrum.singular_values)], 2**20)
    assert float(rows[q].double() @ whole @ rows[k].double()) == approx(
        float((query @ at_q) @ (key @ at_k)), terms=16384, scale=10
    )
    if not has_bias:
        divisor = float(recorded.formula.divisor) if recorded.formula is not None and recorded.formula.divisor else 1.0
        score = float(recorded.scores[1, q, k]) / divisor
        assert score == approx(
            float((query @ at_q) @ (key @ at_k)) / divisor, within=2e-3, why="up to the ε of the norms"
        )


@pytest.mark.parametrize("family", ["Qwen 3", "Gemma 3"])
def test_norms_of_queries_and_keys_are_folded_in(tiny: TinyModels, family: str) -> None:
    model = Model(str(tiny(family)), TEXT)
    loaded, inputs = model.load_inputs()
    layer, recorded = _matrices_of(model).layer(0), model.trace().layers[0]
    assert layer.rotations is not None
    assert layer.w_q is not None
    assert layer.w_k is not None
    assert not layer.no_qk_reason
    rows = layer.normalize(loaded.model.get_input_embeddings()(inputs["input_ids"])[0].detach())
    q, k = 7, 2
    at_q, at_k = layer.rotations([q, k])
    for row, w, rotation, position, expected in (
        (rows[q], layer.w_q[1], at_q, q, recorded.query[1]),
        (rows[k], layer.w_k[1], at_k, k, recorded.key[0]),
    ):
        vector, wanted = (
            (row @ w) @ rotation,
            expected[position],
        )  # the same direction; the scale of the norm is left out
        assert float(torch.cosine_similarity(vector, wanted, dim=0)) == approx(1)


def test_models_without_rotation_have_one_qk_spectrum(tiny: TinyModels) -> None:
    (spectrum,) = circuits.qk_spectra(Model(str(tiny("GPT-2")), TEXT), 0, 0)
    assert (spectrum.rotated, spectrum.offset) == (False, 0)
    assert len(circuits.qk_spectra(Model(str(tiny("Llama")), TEXT), 0, 0)) > 10


def test_copied_tokens_multiply_embedding_and_matrices(tiny: TinyModels) -> None:
    model = Model(str(tiny("Llama")), TEXT)
    trace, (loaded, inputs) = model.trace(), model.load_inputs()
    network = loaded.model
    for layer, block in enumerate(network.model.layers):
        copied = circuits.copied_tokens(trace, layer, 3, key=4)
        id_ = int(inputs["input_ids"][0, 4])
        with torch.no_grad():
            row = network.model(torch.tensor([[id_]]), output_hidden_states=True).hidden_states[min(layer, 1)][0, 0]
            attention, normed = block.self_attn, block.input_layernorm(row)
            value = (normed @ attention.v_proj.weight.T)[8:]  # heads 2 and 3 share the second value head
            output = value @ attention.o_proj.weight.T[24:]
            expected = (output * network.model.norm.weight) @ network.lm_head.weight.T
        near(copied.effects, expected, 2**20)
        order = expected.argsort(descending=True).tolist()
        assert [item.id for item in copied.raised] == order[:10]
        assert [item.id for item in copied.lowered] == order[::-1][:10]
        assert copied.own.id == id_
        assert copied.rank == order.index(id_) + 1
        assert copied.own.token == trace.layers[0].key_tokens[4]
        assert f"rank {copied.rank} of 400" in copied.description
        assert len(copied.frame()) == 20


def test_every_family_gives_scores_or_says_why_not(tiny: TinyModels) -> None:
    for family in ("GPT-2", *ROTATED, "OPT", "Qwen 3", "Gemma 3"):
        scores = circuits.copying_score(Model(str(tiny(family)), TEXT))
        assert scores.abs().clamp_min(1) == approx(1), family
    for family, says in (
        ("BERT", "a model that fills masks has a non-linear layer"),
        ("DistilBERT", "this model predicts no tokens"),
        ("Falcon", "read where its attention is recorded"),
    ):
        with pytest.raises((MissingError, ModelError), match=says):
            circuits.copying_score(Model(str(tiny(family)), TEXT))
    scores = circuits.copying_score(Model(str(tiny("BART")), TEXT, text2=TEXT))
    assert scores.isnan().all()  # it normalizes the sums
    with pytest.raises(MissingError, match="post-LN"):
        circuits.copied_tokens(Model(str(tiny("BART")), TEXT, text2=TEXT), 2, 0, token=5)
    assert circuits.ov_spectrum(Model(str(tiny("BERT")), TEXT), 1, 2).copying_score is None


def test_hybrid_models_have_scores_where_they_have_attention(tiny: TinyModels) -> None:
    model = Model(str(tiny("Jamba")), TEXT)
    scores = circuits.copying_score(model)
    assert scores[[0, 2]].isnan().all()
    assert scores[[1, 3]].isfinite().all()
    assert circuits.copied_tokens(model.trace(), 3, 0, key=1).rank >= 1
    with pytest.raises(MissingError, match="heads"):
        circuits.copied_tokens(model.trace(), 0, 0, key=1)


def test_cross_attention_is_refused_with_a_reason(tiny: TinyModels) -> None:
    marian = Model(str(tiny("Marian")), TEXT, text2=TEXT)
    for refused in (circuits.ov_spectrum, circuits.qk_spectrum):
        with pytest.raises(MissingError, match="its keys and values come from the encoder"):
            refused(marian, 4, 0)


def test_unknown_rotation_is_refused_with_a_reason(tiny: TinyModels) -> None:
    model = Model(str(tiny("Llama")), TEXT)
    matrices = _matrices_of(model)
    assert isinstance(matrices, ModelMatrices)
    call, named = matrices.run.calls[0], dict(model.load_inputs()[0].sites[0].parameters)
    assert _find_change(call, named, None) == _NO_ROTATION_REASON  # no rotary module was found
    assert not isinstance(_find_change(call, named, matrices.run.surroundings(0).rotary), str)
    del named["w_q"]
    assert _find_change(call, named, None) == "W_Q and W_K of this family are not known."


def test_wrong_tokens_heads_and_sources_are_refused() -> None:
    trained = Trained("induction", at=0)
    trace = trained.trace()
    for call, error, says in (
        (lambda: circuits.copied_tokens(trace, 0, 0), ConfigError, "got neither: give one of token and key"),
        (lambda: circuits.copied_tokens(trace, 0, 0, token=1, key=1), ConfigError, "got both"),
        (lambda: circuits.copied_tokens(trained, 0, 0, key=1), ConfigError, "give its trace, or a token"),
        (lambda: circuits.copied_tokens(trace, 0, 0, key=99), MissingError, "99"),
        (lambda: circuits.copied_tokens(trace, 2, 0, token=1), MissingError, "layers"),
        (lambda: circuits.copied_tokens(trace, 0, 1, token=1), MissingError, "heads"),
        (lambda: circuits.copied_tokens(trace, 0, 0, token=-1), ConfigError, "an id from 0 to 63; got -1"),
        (lambda: circuits.copied_tokens(trace, 0, 0, token="zebra"), TextError, "got 'zebra': choose one"),
        (lambda: circuits.qk_spectrum(trace, 0, 0, offset=2**30), ConfigError, "An offset is"),
        (lambda: circuits.copying_score(TypedText("a b").trace()), ConfigError, "the trace of a source without a model"),
        (lambda: circuits.copying_score(Trained("lookup", at=0)), MissingError, "other symbols than its tokens"),
    ):  # fmt: skip
        with pytest.raises(error, match=says):
            call()


def test_trained_induction_copies_through_its_second_layer() -> None:
    source = Trained("induction", text="an owl asked the moon")
    trace = source.trace()
    scores = circuits.copying_score(trace)
    near(scores, circuits.copying_score(source))
    assert float(scores[1, 0]) > 0.99
    copied = circuits.copied_tokens(trace, 1, 0, key=3)
    assert (copied.own.token, copied.rank) == ("the", 1)
    p = source.snapshot().parameters
    row = torch.nn.functional.layer_norm(p["token"][copied.own.id], (64,)) * p["layer 1 scale"]
    output = row @ p["layer 1 w_v"] @ p["layer 1 w_o"]
    near(copied.effects, (output - output.mean()) * p["end scale"] @ p["answer"], 2**20)
    (spectrum,) = circuits.qk_spectra(trace, 1, 0)
    assert not spectrum.rotated


def test_models_of_users_and_half_precision_are_computed_in_float32(tiny: TinyModels) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder = tiny("Llama")
    expected = circuits.copying_score(Model(str(folder), TEXT))
    network = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    source = Model.of(network, AutoTokenizer.from_pretrained(folder), TEXT)
    scores = circuits.copying_score(source.trace())
    assert scores.dtype == torch.float32
    assert scores == approx(expected, scale=1, dtype="bfloat16", terms=64)
    with torch.no_grad():  # a changed weight changes the score, which is cached
        network.model.layers[1].self_attn.o_proj.weight.neg_()
    near(circuits.copying_score(source)[1], -scores[1], 2**20)


def test_smollm2_induction_head_scores_low_and_name_mover_copies(smollm2: Model) -> None:
    trace = smollm2.trace()
    scores = circuits.CopyingScores.of(trace)
    assert scores.values[18, 6] == approx(0.283, step=0.001)
    assert scores.rank(18, 6) == 147
    assert len(scores.heads) == 270
    assert (np.abs(scores.values) > 0.99).sum() == 26
    spectrum = circuits.ov_spectrum(trace, 18, 6)
    assert spectrum.centered_copying_score == approx(0.588, step=0.001)
    assert "rank 147 of 270 heads, of which 90 are beyond ±0.9" in scores.describe(18, 6)
    copied = circuits.copied_tokens(trace, 23, 1, token=" copper")
    assert [item.token for item in copied.raised[:2]] == ["·Copper", "·copper"]
    assert circuits.copied_tokens(trace, 23, 1, key=5).own == copied.own


def test_charts_show_every_number_and_describe_it() -> None:
    trace = Trained("induction", text="an owl asked the moon").trace()
    copied, spectrum = circuits.copied_tokens(trace, 1, 0, key=3), circuits.ov_spectrum(trace, 1, 0)
    bars = figures.token_bars_json(copied, raised=True)
    assert list(bars["data"][0]["x"]) == [item.effect for item in copied.raised]
    assert "raised most after reading “the”: the " in bars["layout"]["meta"]["alt"]
    points = figures.eigenvalues_json(spectrum)
    assert len(points["data"][0]["x"]) == len(spectrum.frame()) == 64
    assert "56 of 64 to the right of 0" in points["layout"]["meta"]["alt"]
    line, heat = figures.qk_by_offset_json([
        circuits.QKSpectrum(1, 0, offset, True, torch.tensor([1 + score, score - 1]), torch.ones(8))
        for offset, score in enumerate((0.1, 0.5, -0.2))
    ])  # fmt: skip
    assert "from −0.2 to 0.5, largest at offset 1" in line["layout"]["meta"]["alt"]
    assert heat["data"][0]["z"].shape == (3, 8)


def test_heads_page_shows_what_the_head_copies() -> None:
    app = AppTest.from_file(str(ROOT / "pages" / "heads.py"), default_timeout=120)
    for key, text in {"source": "trained", "task": "induction", "input": "an owl asked the moon", "layer": "1", "q": "7", "k": "3"}.items():  # fmt: skip
        app.query_params[key] = text
    app.session_state["circuits_copying"] = True
    app.run()
    assert not app.exception
    words = " ".join(element.value for element in (*app.markdown, *app.caption))
    assert "Reading “the” with weight 1, L1 H0 adds" in words
    assert "rank 1 of 2 heads" in words
    assert copying.SCORE_CAVEAT in words
    assert "rotates no queries and keys" in words
    app.query_params["copied"] = "zebra"
    app.text_input(key="copied").set_value("zebra").run()
    assert any("got 'zebra'" in caption.value for caption in app.caption)


def test_metric_of_the_parameters_needs_a_model() -> None:
    name, source = "copying score", Trained("induction", at=0)
    without_model, table = metrics.of(TypedText("a b a b").trace()), metrics.of(source.trace())
    assert np.isnan(without_model.column(name)).all()
    assert without_model.count(name) == (0, 0)
    assert "copying score not defined" in describe_head(without_model, 0, 0)
    assert "it needs the whole vocabulary" in describe_metric(metrics.find(name), without_model)
    assert table.column(name).tolist() == circuits.copying_score(source)[:, 0].tolist()
    assert metrics.of(source.trace()).sorted_by(name)[0] == max(
        table.heads, key=lambda head: table.values[*head, [*metrics.all_metrics()].index(name)]
    )
    assert heading(metrics.find(name)) == "copying score, of the parameters"
    assert rank_words(table, 1, 0, name).endswith("by copying score, of the parameters")
    assert "copying score, of the parameters" in list(frame(source.trace(), table, table.heads, counts=True))
    chart = charts.head_scatter_json(table, charts.LAYER, name)
    assert "of the parameters: a point for each of 2 heads" in chart["layout"]["title"]["subtitle"]["text"]
    low, high = chart["layout"]["yaxis"]["range"]
    assert low < min(0, *table.column(name)) <= max(0, *table.column(name)) < high
