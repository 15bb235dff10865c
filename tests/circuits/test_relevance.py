"""Relevance of input tokens: equal to the authors' programs, conserved, refused where no rule is known; the model stays as it was."""

from __future__ import annotations

import importlib.util
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import ROOT, unpack_figures
from margins import approx
from streamlit.testing.v1 import AppTest
from test_model import OWL
from tiny_models import SENTENCES, TinyModels, byte_level

from attention import (
    AttentionError,
    Cell,
    ConfigError,
    Intervention,
    MissingError,
    Model,
    ModelError,
    ShapeError,
    Trace,
    TypedText,
    circuits,
)
from attention.base.cache import CACHE
from attention.circuits import relevance_pass, token_relevance
from attention.circuits.figures import head_relevance_json, token_row_html
from attention.models import running
from attention.models.library import LIBRARY, Settings
from attention.training import Trained
from pages.ui.server import traces
from pages.ui.state.notices import plain

DATA = Path(__file__).parent / "data" / "relevance_by_lxt.json"
NUMBERS: dict[str, Any] = json.loads(DATA.read_text(encoding="utf-8"))
SUMMED = ("GPT-2", "BERT", "Llama", "Qwen 3", "Mistral", "Gemma 3", "GPT-NeoX", "OPT", "Phi-3", "ModernBERT", "Granite")
"""Families in which AttnLRP has a rule for every operation."""


def _reference() -> Any:
    spec = importlib.util.spec_from_file_location(DATA.stem, DATA.with_suffix(".py"))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


REFERENCE = _reference()
TOKENIZER = byte_level(SENTENCES)  # a trace does not keep it in memory


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    assert traces.trace_of  # importing it gives the library the operator's settings, once
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


@pytest.fixture(autouse=True)
def empty_cache() -> None:
    CACHE.reset(2**28)


@pytest.fixture
def real_models(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings())
    yield
    LIBRARY.hold(Settings(tiny.folder))


def trace_of(tiny: TinyModels, family: str, **options: Any) -> Trace:
    tiny(family)
    text = OWL.replace("moon", "<mask>", 1) if "BERT" in family else OWL
    return Model(family, text, **options).trace()


def in_memory(model: Any, **options: Any) -> Trace:
    ids = torch.tensor([REFERENCE.IDS])
    return Model.of(model, TOKENIZER, inputs={"input_ids": ids}, **options).trace()


@pytest.mark.parametrize("family", [name for name in NUMBERS if name in REFERENCE.MODELS])
@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_both_methods_equal_the_authors_programs(family: str, implementation: str) -> None:
    expected, model = NUMBERS[family], REFERENCE.build(family)
    model.set_attn_implementation(implementation)
    trace = in_memory(model)
    result = circuits.relevance(trace, target=REFERENCE.TARGET, position=REFERENCE.POSITION)
    assert result.logit == approx(expected["logit"], terms=16384)
    assert result.values == approx(torch.tensor(expected["relevance"]).double(), scale=1, dtype="float32")
    result = circuits.relevance(trace, "attention-gradient", REFERENCE.TARGET, REFERENCE.POSITION)
    assert result.maps[-1] == approx(torch.tensor(expected["chefer"]))
    assert result.values.tolist() == result.maps[-1][REFERENCE.POSITION].tolist()


@pytest.mark.usefixtures("real_models")
def test_smollm2_equals_the_authors_programs_on_the_harbor_text() -> None:
    name = "SmolLM2-135M-Instruct"
    if not (ROOT / "models" / name).is_dir():
        pytest.skip(f"models/{name} is missing: run make models ALL=1")
    expected = NUMBERS[name]
    trace = Model(name, REFERENCE.HARBOR).trace()
    result = circuits.relevance(trace, target=" copper")
    assert (result.position, result.target) == (expected["position"], expected["target"])
    assert result.logit == approx(expected["logit"], terms=16384)
    assert result.values == approx(torch.tensor(expected["relevance"]).double(), terms=16384)
    assert result.total == approx(result.logit)
    assert result.tokens[result.most_relevant] == "·copper"
    assert "(token 5): 3.387. The logit is the sum of 5.321 of the tokens and 13.04 that the rule" in result.summary
    assert result.summary_of_heads.startswith("The output of L23 H1 has the largest relevance: 2.513")
    result = circuits.relevance(trace, "attention-gradient", " copper")
    assert result.maps[-1] == approx(torch.tensor(expected["chefer"]), terms=16384)


@pytest.mark.parametrize("family", SUMMED)
def test_all_parts_of_attnlrp_add_up_to_the_logit(tiny: TinyModels, family: str) -> None:
    trace = trace_of(tiny, family)
    result = circuits.relevance(trace)
    prediction = trace.predictions[-1]
    assert (result.position, result.target) == (prediction.position, prediction.ids[0])
    assert result.logit == approx(prediction.logits[0])
    parts = dict(result.other_parts)
    assert parts.pop("rounding") == approx(0, scale=1)
    assert float(result.values.sum()) + sum(parts.values()) == approx(result.logit)
    assert result.frame()["relevance"].sum() == approx(result.logit)
    assert len(result.frame()) == len(result.tokens) + len(result.other_parts)
    assert [len(heads) for heads in result.heads] == [layer.n_heads for layer in trace.layers]


@pytest.mark.parametrize("rule", ["_product_of_gate", "_activation_types"])
def test_missing_rule_breaks_the_sum_and_is_refused(
    tiny: TinyModels, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relevance of a product counts twice without its rule; that of an activation is that of its slope."""
    trace = trace_of(tiny, "Llama")
    monkeypatch.setattr(relevance_pass, rule, (lambda _: None) if rule == "_product_of_gate" else lambda: ())
    with pytest.raises(
        ModelError, match=r"has one without: the relevance of all parts adds up to [−-]?[\d.]+, the logit is"
    ):
        circuits.relevance(trace)


@pytest.mark.parametrize(
    ("family", "method", "sentence"),
    [
        ("gpt-oss", "attnlrp", "AttnLRP needs a rule for every operation, and gpt-oss has one without"),
        ("Gemma 2", "attnlrp", "the softcap of this model's scores has none"),
        ("RoBERTa", "attnlrp", "RoBERTa has no language-model head"),
        ("T5", "attnlrp", "follows one text here, and T5 reads two"),
        ("BART", "attention-gradient", "follows one text here, and BART reads two"),
        ("Bloom", "attention-gradient", "needs attention that can be recorded, and that of Bloom cannot"),
        ("Mamba", "attnlrp", "needs attention that can be recorded|cannot|gives no attention weights"),
    ],
)
def test_models_without_a_rule_are_refused_in_one_sentence(
    tiny: TinyModels, family: str, method: str, sentence: str
) -> None:
    with pytest.raises(AttentionError, match=f"(?i){sentence}") as refused:
        circuits.relevance(trace_of(tiny, family, text2="a quiet harbor" if family in ("T5", "BART") else ""), method)
    assert str(refused.value).count(". ") <= 1


def test_bad_requests_are_refused_in_one_sentence(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    trace = trace_of(tiny, "Llama")
    with pytest.raises(MissingError, match="one of attnlrp, attention-gradient; got 'lime': choose one of them"):
        circuits.relevance(trace, "lime")
    with pytest.raises(MissingError, match="runs a transformers model backwards, and this trace has none"):
        circuits.relevance(TypedText("a b").trace())
    with pytest.raises(MissingError, match="choose the source “model”"):
        circuits.relevance(Trained("induction", steps=1).trace())
    with pytest.raises(ConfigError, match=r"token from 0 to 8, as the text has 9; got 9"):
        circuits.relevance(trace, position=9)
    with pytest.raises(ConfigError, match="range from 0 to 399; got 400"):
        circuits.relevance(trace, target=400)
    changed = trace_of(tiny, "Llama", interventions=(Intervention(0, 1, "zero"),))
    with pytest.raises(
        ConfigError, match="computed in the unchanged model, and this one has interventions: remove them"
    ):
        circuits.relevance(changed)
    half = REFERENCE.build("Llama").to(torch.bfloat16)
    with pytest.raises(
        ConfigError, match=r"is computed in float32; .* computes in bfloat16: load the model in float32"
    ):
        circuits.relevance(in_memory(half))
    loaded, inputs = Model("Llama", OWL).load_inputs()
    needed = relevance_pass._count_bytes(loaded, 9)
    with pytest.raises(ConfigError, match="AttnLRP may take at most 0 MB; the gradients of 9 tokens in 2 layers take"):
        relevance_pass.token_relevance(loaded, inputs, 8, 7, max_bytes=needed - 1)
    assert relevance_pass.token_relevance(loaded, inputs, 8, 7, max_bytes=needed).logit
    monkeypatch.setattr(relevance_pass, "_MAX_SECONDS", 1e-9)
    with pytest.raises(ConfigError, match="may take at most 0 s here; 9 tokens take about 0 s: choose a shorter text"):
        relevance_pass.gradient_maps(loaded, inputs, 8, 7)


def state_of(model: Any) -> list[Any]:
    """Everything that a pass with gradients could change in a model."""
    modules = [
        (len(module._forward_hooks), len(module._forward_pre_hooks), module.training, sorted(vars(module)))
        for module in model.modules()
    ]
    parameters = [(parameter.grad, parameter.requires_grad, parameter._version) for parameter in model.parameters()]
    return [modules, parameters, model.config._attn_implementation]


@pytest.mark.parametrize("method", ["attnlrp", "attention-gradient"])
def test_model_is_as_before_also_after_an_exception(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = REFERENCE.build("Llama").train()
    model.set_attn_implementation("sdpa")
    before, ids = state_of(model), torch.tensor([REFERENCE.IDS])
    trace = in_memory(model)
    for requires_gradients in (True, False):
        for parameter in model.parameters():
            parameter.requires_grad_(requires_gradients)
        unchanged = state_of(model)
        logits = model(ids).logits
        circuits.relevance(trace, method, position=4)
        assert state_of(model) == unchanged
        assert torch.equal(model(ids).logits, logits)
        CACHE.reset(2**28)
    model.requires_grad_(True)

    def fails(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    monkeypatch.setattr(torch.autograd, "grad", fails)
    with pytest.raises(KeyboardInterrupt):
        circuits.relevance(trace, method, position=4)
    monkeypatch.setattr(relevance_pass, "_logit", fails)
    with pytest.raises(KeyboardInterrupt):
        circuits.relevance(trace, method, position=4)
    assert state_of(model) == before


def test_other_threads_get_the_same_logits_meanwhile(tiny: TinyModels) -> None:
    loaded, inputs = Model(tiny("Llama").name, OWL).load_inputs()
    alone, others = running.run(loaded, inputs).logits, list[torch.Tensor]()
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            others.append(running.run(loaded, inputs).logits)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        results = [relevance_pass.token_relevance(loaded, inputs, 8, 7).tokens for _ in range(5)]
    finally:
        stop.set()
        thread.join()
    assert others
    assert all(torch.equal(logits, alone) and not logits.requires_grad for logits in others)
    assert all(torch.equal(result, results[0]) for result in results)


def test_masked_models_are_read_at_the_mask(tiny: TinyModels) -> None:
    result = circuits.relevance(trace_of(tiny, "BERT"))
    assert result.tokens[result.position] == "<mask>"
    with pytest.raises(ConfigError, match="write <mask> in the text"):
        circuits.relevance(Model("BERT", OWL).trace())


def test_targets_are_texts_ids_or_listed_labels(tiny: TinyModels) -> None:
    trace = trace_of(tiny, "Llama")
    first, second = trace.predictions[-1].ids[:2]
    assert circuits.relevance(trace).target == first
    by_id = circuits.relevance(trace, target=second)
    by_label = circuits.relevance(trace, target=trace.predictions[-1].tokens[1])
    assert by_id.values.equal(by_label.values)
    assert by_id.target == second != first
    assert by_id is circuits.relevance(trace, target=second)  # cached


def test_gradient_map_explains_the_value_of_every_cell(tiny: TinyModels) -> None:
    trace = trace_of(tiny, "Llama")
    result = circuits.relevance(trace, "attention-gradient")
    derived = token_relevance.gradient_map(result)
    assert derived.layers(trace, 1) == (0, 1)
    for layer in range(2):
        matrix = derived.matrix(trace, layer)
        assert matrix.equal(result.maps[layer])
        assert (matrix.diag() >= 1).all()
        for row, column in ((0, 0), (8, 0), (5, 5), (7, 3), (2, 6)):
            explanation = derived.explain(trace, Cell(layer, "weights", 0, row, column))
            assert explanation.value == approx(float(matrix[row, column]), scale=1)
            assert explanation.result == approx(explanation.value, scale=1)
    assert "raising the logit of" in derived.words
    assert "positive parts only, so it hides what lowers the logit" in derived.words


def test_words_have_relevance_by_pieces_and_no_map(tiny: TinyModels) -> None:
    """The relevance is that of the model's own tokens, whatever the trace shows."""
    pieces, merged = trace_of(tiny, "Llama"), trace_of(tiny, "Llama", words=True, special="hide")
    assert circuits.relevance(merged).values.equal(circuits.relevance(pieces).values)
    assert circuits.relevance(merged).tokens == pieces.input_tokens
    text = "the owls asked"
    words, parts = (Model("Llama", text, words=choice).trace() for choice in (True, False))
    assert len(words.tokens) < len(parts.tokens)
    derived = token_relevance.gradient_map(circuits.relevance(words, "attention-gradient"))
    with pytest.raises(
        ShapeError, match=r"is a map of the . tokens that the model reads; this layer has .: show subword"
    ):
        derived.matrix(words, 0)


def test_token_row_shades_tokens_and_escapes_them() -> None:
    html = token_row_html(("<b>", "·owl", "x"), (-2.0, 0.5, 0.0), position=2)
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert html.count("<span") == 3
    assert html.count("class='at'") == 1
    assert "title='·owl (1): 0.5'" in html
    assert "var(--lab-most-negative) 100.0%" in html
    assert "−2 lowers the logit" in html
    quoted = token_row_html(("' onmouseover='alert(1)",), (1.0,))
    assert "title='&#x27;·onmouseover=&#x27;alert(1) (0): 1'" in quoted
    assert "lowers" not in token_row_html(("a", "b"), (1.0, 0.0))
    assert token_row_html((), ())


def test_map_of_heads_names_the_largest_in_its_alt_text() -> None:
    figure = head_relevance_json([torch.tensor([0.1, -3.0]), torch.tensor([2.0])], "·owl", (0, 1))
    assert "largest: L0 H1 with −3" in figure["layout"]["meta"]["alt"]
    assert figure["data"][0]["zmin"] == -3.0
    assert figure["data"][0]["z"].shape == (2, 2)


def opened(page: str, family: str, **state: Any) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / page), default_timeout=60)
    app.query_params.update({"source": "model", "model": family, "text": OWL, "layer": "1", "head": "2"})
    for key, value in state.items():
        app.query_params[key] = value
    return app


@pytest.mark.parametrize("method", ["attnlrp", "attention-gradient"])
def test_heads_page_shades_the_text_on_request(tiny: TinyModels, method: str) -> None:
    trace = trace_of(tiny, "Llama")
    app = opened("heads.py", "Llama", relevance=method).run()
    assert not any("class='shaded-tokens'" in element.proto.body for element in app.get("html"))
    app.session_state["relevance_open"] = True
    app.run()
    assert not app.exception
    result = circuits.relevance(trace, method)
    assert any("class='shaded-tokens'" in element.proto.body for element in app.get("html"))
    assert any(plain(result.summary) == element.value for element in app.markdown)
    assert any(plain(result.method.paper) in element.value for element in app.caption)
    tables = [frame.value for frame in app.dataframe if "relevance" in frame.value]
    assert tables[0]["relevance"].tolist() == approx(result.frame()["relevance"].tolist())
    assert len(tables) == 1 + (method == "attnlrp")


def test_heads_page_says_why_a_model_has_no_relevance(tiny: TinyModels) -> None:
    tiny("gpt-oss")
    app = opened("heads.py", "gpt-oss")
    app.session_state["relevance_open"] = True
    app.run()
    assert not app.exception
    assert any("AttnLRP needs a rule for every operation" in element.value for element in app.error)


def test_heads_page_refuses_the_relevance_of_a_trained_model() -> None:
    app = AppTest.from_file(str(ROOT / "pages" / "heads.py"), default_timeout=60)
    app.query_params["source"] = "trained"
    app.session_state["relevance_open"] = True
    app.run()
    assert not app.exception
    assert any("AttnLRP runs a transformers model backwards" in element.value for element in app.error)


def test_heads_page_draws_the_gradient_map_as_an_aggregate(tiny: TinyModels) -> None:
    trace = trace_of(tiny, "Llama")
    app = opened("heads.py", "Llama", aggregate="attention-gradient").run()
    assert not app.exception
    figures = [
        figure
        for element in app.get("bidi_component")
        if element.proto.bytes
        for figure in unpack_figures(element.proto.bytes)
    ]
    expected = circuits.relevance(trace, "attention-gradient").maps[1].numpy()
    maps = [figure for figure in figures if figure["layout"]["meta"]["step"] == "attention-gradient"]
    assert len(maps) == 1
    assert maps[0]["data"][0]["z"] == approx(expected)
