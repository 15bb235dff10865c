"""Predictions of models: the logits of transformers in every family, ranks and distances checked directly, and generated text."""

from __future__ import annotations

import math

import pytest
import torch
from margins import approx
from tiny_models import FAMILIES

from attention import ConfigError, Intervention, Model, Prediction, TextError, Trace
from attention.base.cache import CACHE
from attention.base.tokens import Generated
from attention.explanation import predictions
from attention.models import lm_head, running

TEXT = "the owl asked the <mask> and the moon"
MASKED, HEADLESS = ("BERT", "ModernBERT"), ("RoBERTa", "DistilBERT", "MPNet", "BART alone")
PREDICTING = [family for family in FAMILIES if family not in (*HEADLESS, "Mamba")]
TWO_TEXTS = ("BART", "Marian", "T5", "BART alone")


def source(tiny, family, **more):
    return Model(str(tiny(family)), TEXT, "the cat" if family in TWO_TEXTS else "", **more)


@pytest.mark.sample(7)
@pytest.mark.parametrize("family", PREDICTING)
def test_predictions_equal_the_logits_of_transformers(tiny, family):
    model = source(tiny, family)
    loaded, inputs = model.load_inputs()
    with torch.no_grad():
        logits = loaded.model(**inputs).logits[0]
    ids = [*inputs.values()][-1][0].tolist()
    default = [ids.index(3)] if family in MASKED else [len(ids) - 1]
    for predict, at in (((), default), ((1, 0), [1, 0])):
        trace = source(tiny, family, predict=predict).trace()
        assert [prediction.position for prediction in trace.predictions] == at
        assert trace.no_prediction_reason == ""
        assert trace.vectors is None
        for prediction, position in zip(trace.predictions, at, strict=True):
            assert prediction.all_logits == approx(logits[position])
            best = logits[position].softmax(-1).topk(10)
            assert prediction.probabilities == approx(best.values.tolist(), scale=1)
            assert sorted(prediction.ids) == sorted(best.indices.tolist())
            assert len(prediction.tokens) == 10
            assert prediction.logits == approx(logits[position][list(prediction.ids)].tolist())
            assert prediction.log_probabilities == approx([math.log(p) for p in prediction.probabilities])
            assert prediction.fills_mask == (family in MASKED)


@pytest.mark.parametrize("family", HEADLESS)
def test_headless_model_is_reported_and_gives_its_vectors(tiny, family):
    model = source(tiny, family)
    trace = model.trace()
    loaded, inputs = model.load_inputs()
    with torch.no_grad():
        assert torch.equal(trace.vectors, loaded.model(**inputs).last_hidden_state[0])
    assert trace.predictions == ()
    assert "no language-model head" in trace.no_prediction_reason
    assert [movement.cosine for movement in predictions.vector_shifts(trace, trace)] == approx(
        [1.0] * len(trace.input_tokens)
    )


def test_masked_model_needs_a_mask_token_and_an_existing_position(tiny):
    assert "write <mask> in the text" in Model(str(tiny("BERT")), "the owl").trace().no_prediction_reason
    for predict in ((99,), (-1,), (0,) * (lm_head._MAX_POSITIONS + 1)):
        with pytest.raises(ConfigError, match=r"[Pp]redictions? "):
            source(tiny, "GPT-2", predict=predict).trace()


def test_recorded_logits_are_counted_before_they_are_computed(tiny):
    single_position, five_positions = (source(tiny, "GPT-2", predict=(0,) * n).memory_bytes() for n in (1, 5))
    trace = source(tiny, "GPT-2").trace()
    assert five_positions - single_position == 4 * trace.predictions[0].nbytes == 4 * 3 * 4 * 400
    with pytest.raises(ConfigError, match="choose a shorter text"):
        source(tiny, "GPT-2", max_bytes=single_position - 1).trace()


def prediction_of(*logits):
    row = torch.tensor(logits)
    order = row.argsort(descending=True).tolist()
    return Prediction(4, "·the", row, tuple(order), tuple("abcd"[index] for index in order))


def test_ranks_differences_and_distances_match_direct_computation():
    base, changed = (
        prediction_of(math.log(4), math.log(2), math.log(1), math.log(1)),
        prediction_of(0.0, math.log(2), math.log(4), 0.0),
    )
    rows = predictions.top_tokens(changed, base)
    assert [(row.token, row.rank, row.before.rank, row.rank_change) for row in rows] == [
        ("c", 1, 3, "↑ 2"), ("b", 2, 2, ""), ("a", 3, 1, "↓ 2"), ("d", 3, 3, ""),
    ]  # fmt: skip
    assert [row.probability for row in rows] == approx([1 / 2, 1 / 4, 1 / 8, 1 / 8])
    # Σ p log(p / q) = 1/2 log 4 + 1/4 log 1 + 1/8 log 1/4 + 1/8 log 1
    assert predictions._divergence(base, changed) == approx(3 / 8 * math.log(4))
    assert predictions._logit_difference(base, 0, 1) == approx(math.log(2))
    assert predictions.summarize(changed, base, (0, "a"), (1, "b")) == (
        "“a” 0.5 → 0.125; “c” is now the likeliest.",
        "Logit of “a” minus logit of “b”: 0.6931 → −0.6931 (logit difference).",
        "KL from the unchanged model: 0.5199 nats.",
    )
    assert predictions.summarize(base, base)[0] == "The prediction is the same to rounding."
    moved_traces = (
        Trace(("x",), (), vectors=torch.tensor([[0.0, 2.0]]), input_tokens=("x",)),
        Trace(("x",), (), vectors=torch.tensor([[1.0, 1.0]]), input_tokens=("x",)),
    )
    (shift,) = predictions.vector_shifts(*moved_traces)
    assert shift.cosine == approx(math.sqrt(1 / 2))
    movements = predictions.VectorShift(0, "x", 1 - 3e-5), predictions.VectorShift(1, "y", 1 - 5e-5)
    assert predictions.summarize_shifts(movements) == "Vectors moved: cosine 1 − 4e−5 on average."
    assert "a cosine of 1 − 5e−5 with the unchanged one" in predictions.describe_shifts(movements)


def test_target_is_one_token_including_its_blank_where_possible(tiny):
    loaded, _ = source(tiny, "GPT-2").load_inputs()
    ids = {text: lm_head.parse_token(loaded, text) for text in ("moon", "·moon", " moon", "</s>")}
    assert {item[1] for item in (ids["moon"], ids["·moon"], ids[" moon"])} == {"·moon"}
    assert ids["</s>"] == (2, "</s>")
    for bad in ("", "moon blinked"):
        with pytest.raises(TextError, match="one token of the model"):
            lm_head.parse_token(loaded, bad)


@pytest.mark.parametrize("family", ["GPT-2", "Llama", "Gemma 3", "T5", "Marian", "Falcon"])
def test_generated_text_equals_generate_of_transformers(tiny, family):
    loaded, inputs = source(tiny, family).load_inputs()
    with torch.no_grad():
        expected = loaded.model.generate(**inputs, max_new_tokens=6, do_sample=False, num_beams=1)
    model = source(tiny, family, generate=6)
    trace, (_, grown_inputs) = model.trace(), model.load_inputs()
    assert torch.equal([*grown_inputs.values()][-1], expected)
    prompt_length, ids = len([*inputs.values()][-1][0]), expected[0].tolist()
    assert trace.generated == len(ids) - prompt_length > 0
    last = [layer for layer in trace.layers if not layer.name.startswith("encoder")][-1]
    assert [isinstance(token, Generated) for token in last.tokens] == [at >= prompt_length for at in range(len(ids))]
    # Each generated token is the likeliest prediction at the position before it.
    assert [prediction.position for prediction in trace.predictions] == list(range(prompt_length - 1, len(ids)))
    if family != "Marian":  # whose generation excludes some tokens
        assert [prediction.ids[0] for prediction in trace.predictions[:-1]] == ids[prompt_length:]


@pytest.mark.parametrize("family", ["GPT-2", "T5", "Bloom"])
def test_text_is_read_up_to_the_chosen_prefix(tiny, family):
    complete = source(tiny, family, generate=5).trace()
    base = len(complete.input_tokens) - complete.generated
    for prefix in (0, 2, 99):
        trace = source(tiny, family, generate=5, prefix_len=prefix).trace()
        shown_tokens = min(prefix, complete.generated)
        assert (trace.input_tokens, trace.continuation) == (
            complete.input_tokens[: base + shown_tokens],
            complete.input_tokens[base + shown_tokens :],
        )
        assert trace.generated == shown_tokens
        assert [isinstance(token, Generated) for token in trace.continuation] == [True] * (
            complete.generated - shown_tokens
        )
        assert [prediction.position for prediction in trace.predictions] == list(range(base - 1, base + shown_tokens))
        if trace.continuation:
            assert trace.predictions[-1].tokens[0] == str(trace.continuation[0])
        short = next(layer for layer in trace.layers if not layer.name.startswith("encoder"))
        long = next(layer for layer in complete.layers if not layer.name.startswith("encoder"))
        assert short.weights == approx(long.weights[:, : base + shown_tokens, : base + shown_tokens])


def test_sampling_depends_on_its_seed_and_shorter_runs_are_prefixes(tiny):
    def ids(**more):
        CACHE.reset(2**28)
        return source(tiny, "GPT-2", generate_temperature=1.5, **more).load_inputs()[1]["input_ids"][0].tolist()

    torch.manual_seed(1)
    first, state = ids(generate=8), torch.get_rng_state()
    torch.manual_seed(2)
    assert ids(generate=8) == first != ids(generate=8, generate_seed=1)
    assert first[: len(ids(generate=3))] == ids(generate=3)
    assert not torch.equal(state, torch.get_rng_state())  # still the state of the other seed: generation did not use it
    # The frequencies of the samples follow the softmax.
    logits, drawn = torch.tensor([[0.0, 1.0, 2.0]]), running._GumbelSampler(2.0, 0)
    counts = torch.bincount(torch.tensor([int(drawn(logits, logits).argmax()) for _ in range(4000)]), minlength=3)
    assert counts / 4000 == approx((logits[0] / 2).softmax(-1), within=0.04, why="frequencies of 4,000 draws")


def test_generation_uses_interventions_and_neutral_ones_change_nothing(tiny):
    def ids(*interventions, **more):
        return (
            source(tiny, "Llama", generate=5, interventions=interventions, **more)
            .load_inputs()[1]["input_ids"][0]
            .tolist()
        )

    neutral, hot = Intervention(0, 0, ablate="zero", strength=0.0), Intervention(temperature=50.0)
    assert ids(neutral) == ids() != ids(hot)
    drawn = {"generate_temperature": 2.0, "generate_seed": 3}
    assert ids(neutral, **drawn) == ids(**drawn)
    # Each token is the likeliest prediction of the changed model after the tokens before it.
    trace = source(tiny, "Llama", generate=5, interventions=(hot,)).trace()
    assert [prediction.ids[0] for prediction in trace.predictions[:-1]] == ids(hot)[-trace.generated :]
    base = source(tiny, "Llama", generate=5).trace()
    compared = [
        predictions.matching_prediction(prediction, trace, base) is not None for prediction in trace.predictions
    ]
    assert compared[0]
    assert not all(compared)  # after the generated texts differ, predictions are not comparable


def test_generation_is_bounded_and_reports_its_end(tiny):
    trace = source(tiny, "BERT", generate=4).trace()
    assert trace.generated == 0
    assert any(note.startswith("0 of 4 requested tokens were generated") for note in trace.notes)
