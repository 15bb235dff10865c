"""Sums over the parts of a model: they add up to the numbers of the trace, and equal what other code computes."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import formula_models as reference
import numpy as np
import pytest
import torch
from margins import approx
from test_model import CAT, OWL, TWO_TEXTS
from tiny_models import TinyModels

from attention import (
    Cell,
    ConfigError,
    File,
    Intervention,
    MissingError,
    Model,
    TextError,
    Trace,
    TypedText,
    circuits,
    metrics,
)
from attention.circuits import direct_effects
from attention.circuits.direct_effects import estimate_seconds
from attention.models import linearize
from attention.models.library import LIBRARY, Settings
from attention.pictures import steps_view
from attention.trace.linear_run import LinearRun
from attention.trace.residual_parts import LOGITS
from attention.training import Trained

DATA = Path(__file__).parent / "data"
RECORDED = (
    "GPT-2", "BERT", "RoBERTa", "DistilBERT", "Llama", "Qwen 3", "Mistral", "Gemma 2", "Gemma 3", "GPT-NeoX", "OPT", "Phi-3",
    "gpt-oss", "ModernBERT", "BART", "Marian", "T5", "Granite", "BART alone",
)  # fmt: skip
PREDICTING = tuple(
    family for family in RECORDED if family not in ("BERT", "RoBERTa", "DistilBERT", "ModernBERT", "BART alone")
)


@pytest.fixture(scope="module", autouse=True)
def library(tiny: TinyModels) -> Iterator[None]:
    LIBRARY.hold(Settings(tiny.folder))
    yield
    LIBRARY.hold(Settings())


def trace_of(tiny: TinyModels, family: str, **more: object) -> Trace:
    tiny(family)
    text = OWL.replace("moon", "<mask>", 1) if family in ("BERT", "ModernBERT") else OWL
    return Model(family, text, CAT if family in (*TWO_TEXTS, "BART alone") else "", **more).trace()


@pytest.mark.sample(3)
@pytest.mark.parametrize("family", RECORDED)
def test_score_terms_sum_to_the_recorded_score(tiny: TinyModels, family: str) -> None:
    trace = trace_of(tiny, family)
    for index, layer in enumerate(trace.layers):
        q, k, head = len(layer.tokens) - 1, 1, 2
        terms = circuits.score_terms(trace, index, head, q, k)
        score = float(layer["scores"][head, q, k])
        assert float(terms.values.sum()) == approx(score)
        assert terms.values.shape == (len(terms.query_parts), len(terms.key_parts))
        assert terms.query_parts[-1] == terms.key_parts[-1] == "rounding"
        rounding = torch.cat([terms.values[-1].abs(), terms.values[:, -1].abs()]).max()
        assert float(rounding) == approx(0, scale=float(terms.values.abs().max()), terms=1024)
        last = float(layer["masked_scores"][head, q, k])
        if last > -1e30:
            assert sum(value for _, value in terms.later) == approx(last)


@pytest.mark.sample(4)
@pytest.mark.parametrize("family", RECORDED)
def test_parts_name_every_earlier_head_and_mlp(tiny: TinyModels, family: str) -> None:
    trace = trace_of(tiny, family)
    first = circuits.score_terms(trace, 0, 0, 1, 0)
    assert set(first.query_parts) <= {"embedding", "bias", "rounding"}
    if len(trace.layers) == 2:
        parts = circuits.score_terms(trace, 1, 0, 1, 0).query_parts
        assert {f"L0 H{head}" for head in range(4)} | {"L0 MLP", "embedding"} <= set(parts)


@pytest.mark.parametrize("family", PREDICTING)
def test_parts_sum_to_the_logit(tiny: TinyModels, family: str) -> None:
    trace = trace_of(tiny, family)
    prediction = trace.predictions[-1]
    target, distractor = prediction.ids[1], prediction.ids[3]
    parts = circuits.logit_parts(trace, target=target)
    assert parts.total == approx(float(prediction.all_logits[target]))
    assert float(parts.values[-1]) == approx(0, scale=float(parts.values.abs().max()), terms=1024)
    both = circuits.logit_parts(trace, prediction.position, target, distractor)
    assert both.total == approx(float(prediction.all_logits[target] - prediction.all_logits[distractor]), terms=262144)
    assert len(parts.frame()) == len(parts.parts)


@pytest.mark.parametrize("family", PREDICTING)
def test_writes_of_a_row_sum_to_the_direct_effect(tiny: TinyModels, family: str) -> None:
    trace = trace_of(tiny, family)
    prediction = trace.predictions[-1]
    position = prediction.position
    parts = circuits.logit_parts(trace, position, prediction.ids[2])
    direct = {part.name: value for part, value in zip(parts.parts, parts.values.tolist(), strict=True)}
    of_all = circuits.writes(trace, target=prediction.ids[2], position=position)
    for layer in range(len(trace.layers)):
        for head in range(trace.layers[layer].n_heads):
            cells = circuits.writes(trace, layer, head, target=prediction.ids[2])
            assert cells.shape == trace.layers[layer].shape("weights")[1:]
            total = float(cells[position].sum()) if len(cells) > position else 0.0
            assert total == approx(direct.get(f"L{layer} H{head}", 0.0), terms=1024, scale=1)
            row = cells[position] if len(cells) > position else torch.zeros(cells.shape[1])
            shown = of_all[layer, head]
            assert shown[: len(row)] == approx(row, scale=1)
            assert not shown[len(row) :].any()


def test_cell_of_writes_is_weight_times_value_times_output_matrix(tiny: TinyModels) -> None:
    """The product of the docstring, by hand, for a family whose norms are simple."""
    trace = trace_of(tiny, "Llama")
    layer, run = trace.layers[1], trace.model_run
    assert run is not None
    model = run.source.load().model
    prediction = trace.predictions[-1]
    cells = circuits.writes(trace, 1, 3, target=prediction.ids[0])
    q, k = prediction.position, 4
    vectors = run.linear_run().value(LOGITS)[0, q]
    written = layer["value"][1, k] @ layer["w_o"][3]
    hidden = model.model(run.inputs["input_ids"], output_hidden_states=True).hidden_states
    assert hidden[-1][0, q] == approx(vectors, terms=1024)
    captured: list[torch.Tensor] = []
    hook = model.model.norm.register_forward_pre_hook(lambda _, args: captured.append(args[0][0, q]))
    with torch.no_grad():
        model.model(run.inputs["input_ids"])
    hook.remove()
    norm = model.model.norm
    scale = norm.weight / (captured[0].square().mean() + norm.variance_epsilon).sqrt()
    expected = layer["weights"][3, q, k] * (written * scale) @ model.lm_head.weight[prediction.ids[0]]
    assert float(cells[q, k]) == approx(float(expected.detach()))


def test_all_heads_take_one_run_even_if_it_is_too_large_for_the_cache(
    tiny: TinyModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace, runs, run_linear = trace_of(tiny, "Llama"), [], linearize.run_linear
    monkeypatch.setattr(LinearRun, "nbytes", 2**40)
    monkeypatch.setattr(linearize, "run_linear", lambda *args: (runs.append(args), run_linear(*args))[1])
    parts = circuits.logit_parts(trace)
    sums = circuits.writes(trace).sum(-1)
    heads = [value for part, value in zip(parts.parts, parts.values.tolist(), strict=True) if part.kind == "head"]
    assert sums.flatten().tolist() == approx(heads)
    for layer, head in np.ndindex(*sums.shape):
        circuits.writes(trace, layer, head)
    assert len(runs) == 1
    frame = direct_effects.likeliest_frame(trace, Cell(1, "weights", 2, 5, 3), trace.predictions[-1])
    assert len(runs) == 2
    assert len(frame) > 2


@pytest.mark.skipif(not (Path("models") / "SmolLM2-135M-Instruct").is_dir(), reason="run make models ALL=1")
def test_heads_of_smollm2_write_what_its_logit_is_made_of() -> None:
    trace = Model(
        "models/SmolLM2-135M-Instruct", "The quiet harbor watched the copper moon. The quiet harbor watched the"
    ).trace()
    parts = circuits.logit_parts(trace, target=" copper").frame().query("kind == 'head'")["adds"]
    of_all = circuits.writes(trace, target=" copper")
    assert of_all.shape == (30, 9, 13)
    assert of_all.sum(-1).flatten() == approx(parts)
    for layer, head in ((0, 0), (18, 6), (23, 1), (29, 8)):
        assert of_all[layer, head] == approx(circuits.writes(trace, layer, head, " copper")[12])


@pytest.mark.parametrize("family", ["RoBERTa", "DistilBERT"])
def test_writes_of_an_encoder_add_up_to_its_vector(tiny: TinyModels, family: str) -> None:
    trace = trace_of(tiny, family)
    n = len(trace.tokens)
    assert sum(circuits.logit_parts(trace, position).total for position in range(n)) == approx(1)
    parts = circuits.logit_parts(trace, 3)
    cells = circuits.writes(trace, 1, 2)
    direct = dict(zip((part.name for part in parts.parts), parts.values.tolist(), strict=True))
    assert float(cells[3].sum()) == approx(direct["L1 H2"], scale=1)
    assert torch.equal(circuits.writes(trace, position=3)[1, 2], cells[3])


@pytest.mark.long  # trains a model
def test_induction_head_reads_keys_that_the_first_layer_wrote() -> None:
    trace = Trained("induction").trace()
    q = len(trace.tokens) - 1
    k = int(trace.layers[1]["weights"][0, q].argmax())
    terms = circuits.score_terms(trace, 1, 0, q, k)
    assert terms.score == approx(float(trace.layers[1]["scores"][0, q, k]))
    of_keys = dict(zip(terms.key_parts, terms.values.sum(0).tolist(), strict=True))
    of_queries = dict(zip(terms.query_parts, terms.values.sum(1).tolist(), strict=True))
    assert of_keys["L0 H0"] > 0.7 * terms.score  # K-composition
    assert of_queries["embedding"] > 0.7 * terms.score
    assert "L0 H0" in terms.describe()[0]
    answer = trace.predictions[-1]
    parts = circuits.logit_parts(trace)
    assert parts.total == approx(float(answer.all_logits[answer.ids[0]]))
    assert float(circuits.writes(trace, 1, 0)[q, k]) > 0.8 * parts.total


@pytest.mark.long  # trains every task
@pytest.mark.parametrize("task", ["reverse", "copy", "lookup", "sort", "dates"])
def test_every_trained_model_is_a_sum_of_its_parts(task: str) -> None:
    trace = Trained(task, steps=0).trace()
    for index, layer in enumerate(trace.layers):
        terms = circuits.score_terms(trace, index, 0, len(layer.tokens) - 1, 0)
        assert terms.score == approx(float(layer["scores"][0, -1, 0]))
        assert len(terms.key_parts) >= 2
    prediction = trace.predictions[0]
    parts = circuits.logit_parts(trace, prediction.position)
    assert parts.words.startswith("the logit of")


def test_terms_of_a_layer_add_up(tiny: TinyModels) -> None:
    terms = circuits.score_terms(trace_of(tiny, "Qwen 3"), 1, 3, 6, 2)
    grouped, opened = terms.by_layer(), terms.by_layer(0, 0)
    assert grouped.query_parts[:2] == ("embedding", "L0")
    assert grouped.score == approx(terms.score)
    assert torch.equal(opened.values, terms.values)
    row = [part.layer == 0 for part in terms.query_sources]
    assert float(grouped.values[1, 0]) == approx(float(terms.values[row, 0].sum()))
    assert [*terms.frame()["term"].abs()] == sorted(terms.frame()["term"].abs(), reverse=True)


def test_sums_hold_in_a_model_with_ablated_heads(tiny: TinyModels) -> None:
    trace = trace_of(tiny, "GPT-2", interventions=(Intervention(0, 1, "zero"),))
    terms = circuits.score_terms(trace, 1, 0, 5, 2)
    assert float(terms.values[terms.query_parts.index("L0 H1")].abs().max()) == 0
    parts = circuits.logit_parts(trace)
    assert parts.total == approx(trace.predictions[-1].logits[0])
    with pytest.raises(MissingError, match="replaced"):
        circuits.writes(trace, 0, 1)
    of_all = circuits.writes(trace)
    assert of_all.isnan().any(-1).nonzero().tolist() == [[0, 1]]
    assert torch.equal(of_all[1, 2], circuits.writes(trace, 1, 2, position=trace.predictions[-1].position))


def test_refusals_are_sentences(tiny: TinyModels) -> None:
    with pytest.raises(MissingError, match="take a trace of `Model`"):
        circuits.writes(TypedText("a b").trace(), 0, 0)
    with pytest.raises(MissingError, match="circuits need the model"):
        circuits.score_terms(TypedText("a b").trace(), 0, 0, 0, 0)
    with pytest.raises(MissingError, match="cannot be recorded"):
        circuits.logit_parts(trace_of(tiny, "GPT-J"))
    with pytest.raises(MissingError, match="non-linear layer"):
        circuits.logit_parts(trace_of(tiny, "BERT"))
    trace = trace_of(tiny, "Llama")
    with pytest.raises(MissingError):
        circuits.score_terms(trace, 1, 0, 99, 0)
    with pytest.raises(MissingError):
        circuits.writes(trace, 7, 0)
    with pytest.raises(TextError):
        circuits.writes(trace, 0, 0, target="")
    with pytest.raises(ConfigError, match="got layer 1 and head None: give both, or none"):
        circuits.writes(trace, 1)
    with pytest.raises(MissingError, match="99"):
        circuits.writes(trace, 0, 0, position=99)
    with pytest.raises(MissingError, match="99"):
        circuits.writes(trace, position=99)


def test_words_are_refused_where_tokens_are_merged(tiny: TinyModels) -> None:
    trace = trace_of(tiny, "Llama", words=True)
    if trace.layers[0].tokens != trace.input_tokens:
        with pytest.raises(MissingError, match="word pieces"):
            circuits.score_terms(trace, 1, 0, 1, 0)


def test_saved_trace_has_no_model(tiny: TinyModels, tmp_path: object) -> None:
    path = f"{tmp_path}/trace.npz"
    trace_of(tiny, "Llama").save(path)
    with pytest.raises(MissingError, match="circuits need the model"):
        circuits.writes(File.open(path).trace(), 0, 0)


def test_program_computes_the_same_numbers(tiny: TinyModels, capsys: pytest.CaptureFixture[str]) -> None:
    trace = trace_of(tiny, "Llama", interventions=(Intervention(0, 1, "mean"),))
    readout = direct_effects.find_readout(trace, trace.predictions[-1].ids[1])
    text = direct_effects.python(trace, Cell(1, "weights", 2, 5, 3), readout)
    scope: dict[str, object] = {}
    exec(text, scope)
    writes = scope["writes"]
    assert isinstance(writes, torch.Tensor)
    assert torch.equal(writes, circuits.writes(trace, 1, 2, trace.predictions[-1].ids[1]))
    assert "adds" in capsys.readouterr().out


def test_lab_offers_the_effect_only_where_it_exists(tiny: TinyModels) -> None:
    expected = {"Llama": ("norms", "writes"), "RoBERTa": ("norms", "writes"), "BERT": ("norms",), "GPT-J": ()}
    for family, views in expected.items():
        trace = trace_of(tiny, family)
        assert steps_view.available_views(trace, trace.layers[0]) == views
    trace = trace_of(tiny, "Llama")
    cell = Cell(1, "weights", 2, 5, 3)
    weights, effects = steps_view.lab_maps(trace, cell, "writes", "fixed")
    assert weights["layout"]["meta"]["step"] == "weights"
    expected_cells = circuits.writes(trace, 1, 2)
    assert torch.from_numpy(effects["data"][0]["z"]) == approx(expected_cells)
    shown = steps_view.derived_view(trace, cell, "writes")
    assert shown is not None
    assert shown[1].explain(trace, cell).value == approx(float(expected_cells[5, 3]))
    frame = direct_effects.factor_frame(trace, cell, direct_effects.find_readout(trace))
    assert float(frame["product"].sum()) * float(trace.layers[1]["weights"][2, 5, 3]) == approx(
        float(expected_cells[5, 3])
    )


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", [*reference.MODELS])
def test_direct_effects_equal_transformer_lens(name: str) -> None:
    expected = json.loads((DATA / "direct_effects_transformer_lens.json").read_text())[name]
    model, tokenizer = reference.model(name), reference.tokenizer()
    trace = Model.of(model, tokenizer, inputs={"input_ids": torch.tensor([reference.BASE_IDS])}).trace()
    last, tokens = len(reference.BASE_IDS) - 1, (reference.TARGET, reference.DISTRACTOR)
    parts = circuits.logit_parts(trace, last, *tokens)
    heads = [value for part, value in zip(parts.parts, parts.values.tolist(), strict=True) if part.kind == "head"]
    assert heads == approx(expected, scale=1)
    cells = [
        float(circuits.writes(trace, layer, head, *tokens)[last].sum())
        for layer in range(len(trace.layers))
        for head in range(trace.layers[layer].n_heads)
    ]
    assert cells == approx(expected, scale=1)
    of_all = circuits.writes(trace, None, None, *tokens, position=last)  # [layer head key_pos]
    assert of_all.sum(-1).flatten().tolist() == approx(expected, scale=1)


@pytest.mark.parametrize("family", ["GPT-2", "Gemma 2", "BART", "Granite"])
def test_head_logits_hold_every_token(tiny: TinyModels, family: str) -> None:
    trace = trace_of(tiny, family)
    layer = len(trace.layers) - 1
    logits = circuits.head_logits(trace, layer, 1)
    assert logits.shape == trace.predictions[-1].all_logits.shape
    for token in (3, 17, trace.predictions[-1].ids[0]):
        row = circuits.writes(trace, layer, 1, token)[trace.predictions[-1].position]
        assert float(logits[token]) == approx(float(row.sum()), scale=1)


def test_direct_effect_is_a_metric_of_the_heads(tiny: TinyModels) -> None:
    for trace in (trace_of(tiny, "Llama"), Trained("induction", at=0).trace()):
        column = metrics.of(trace).column("direct effect")
        parts = circuits.logit_parts(trace)
        heads = [value for part, value in zip(parts.parts, parts.values.tolist(), strict=True) if part.kind == "head"]
        assert column.tolist() == approx(heads)
    assert np.isnan(metrics.of(TypedText("a b c").trace()).column("direct effect")).all()
    assert np.isnan(metrics.of(trace_of(tiny, "BERT")).column("direct effect")).all()


def test_estimate_falls_to_zero_once_the_run_is_cached(tiny: TinyModels) -> None:
    trace = Model("GPT-2", "the owl asked the moon").trace()
    assert direct_effects.find_run(trace).estimate_seconds() > 0
    circuits.writes(trace, 1, 0)
    assert direct_effects.find_run(trace).estimate_seconds() == 0
    assert estimate_seconds(trace, 1, 0, 3, 1) > 0
    circuits.score_terms(trace, 1, 0, 3, 1)
    assert estimate_seconds(trace, 1, 0, 3, 1) == 0


def test_single_term_is_that_of_its_two_heads_by_hand(tiny: TinyModels) -> None:
    """A term, not only the sum of all: swapped parts would have the same sum."""
    trace = trace_of(tiny, "GPT-2")
    first, second = trace.layers
    q, k, head = 6, 3, 1
    assert trace.model_run is not None
    norm = trace.model_run.source.load().model.transformer.h[1].ln_1

    def part(writer: int, position: int, projection: torch.Tensor) -> torch.Tensor:
        written = first["weights"][writer, position] @ first["value"][writer] @ first["w_o"][writer]
        x = trace.residual[1][position]
        scale = norm.weight.detach() / (x.var(unbiased=False) + norm.eps).sqrt()
        return ((written - written.mean()) * scale) @ projection

    terms = circuits.score_terms(trace, 1, head, q, k)
    for left, right in ((2, 3), (3, 2), (0, 0)):
        expected = part(left, q, second["w_q"][head]) @ part(right, k, second["w_k"][head])
        row, column = terms.query_parts.index(f"L0 H{left}"), terms.key_parts.index(f"L0 H{right}")
        assert float(terms.values[row, column]) == approx(float(expected), scale=1)
