"""What a model says: transformers' own logits in every family, ranks and distances worked out by hand, and text that grows."""

from __future__ import annotations

import math

import pytest
import torch
from tiny_models import FAMILIES

from attention import ConfigError, Intervention, Model, Prediction, TextError, Trace
from attention.formula.kept import KEPT
from attention.models import generating, predicting
from attention.numbers import predictions
from attention.tokens import Generated

TEXT = "the owl asked the <mask> and the moon"
MASKED, SILENT = ("BERT", "ModernBERT"), ("RoBERTa", "DistilBERT", "MPNet", "BART alone")
SPEAKING = [family for family in FAMILIES if family not in (*SILENT, "Mamba")]
TWO_TEXTS = ("BART", "Marian", "T5", "BART alone")


def source(tiny, family, **more):
    return Model(str(tiny(family)), TEXT, "the cat" if family in TWO_TEXTS else "", **more)


@pytest.mark.parametrize("family", SPEAKING)
def test_what_a_model_says_are_the_logits_that_transformers_has(tiny, family):
    model = source(tiny, family)
    loaded, given = model.loaded_and_given()
    with torch.no_grad():
        whole = loaded.model(**given).logits[0]
    ids = [*given.values()][-1][0].tolist()
    default = [ids.index(3)] if family in MASKED else [len(ids) - 1]
    for predict, at in (((), default), ((1, 0), [1, 0])):
        trace = source(tiny, family, predict=predict).trace()
        assert [one.position for one in trace.predictions] == at
        assert trace.unpredicted == ""
        assert trace.vectors is None
        for one, place in zip(trace.predictions, at, strict=True):
            torch.testing.assert_close(one.row, whole[place], atol=1e-5, rtol=1e-5)
            best = whole[place].softmax(-1).topk(10)
            assert one.probabilities == pytest.approx(best.values.tolist(), rel=1e-4)
            assert sorted(one.ids) == sorted(best.indices.tolist())
            assert len(one.tokens) == 10
            assert one.logits == pytest.approx(whole[place][list(one.ids)].tolist(), abs=1e-5)
            assert one.log_probabilities == pytest.approx([math.log(p) for p in one.probabilities])
            assert one.fills == (family in MASKED)


@pytest.mark.parametrize("family", SILENT)
def test_a_model_without_a_head_says_so_and_gives_its_vectors(tiny, family):
    model = source(tiny, family)
    trace = model.trace()
    loaded, given = model.loaded_and_given()
    with torch.no_grad():
        assert torch.equal(trace.vectors, loaded.model(**given).last_hidden_state[0])
    assert trace.predictions == ()
    assert "no language-model head" in trace.unpredicted
    assert [one.cosine for one in predictions.moved(trace, trace)] == pytest.approx([1.0] * len(trace.read))


def test_a_masked_model_asks_for_a_mask_and_a_position_must_be_there(tiny):
    assert "write <mask> in the text" in Model(str(tiny("BERT")), "the owl").trace().unpredicted
    for predict in ((99,), (-1,), (0,) * (predicting.MOST + 1)):
        with pytest.raises(ConfigError, match=r"[Pp]redictions? "):
            source(tiny, "GPT-2", predict=predict).trace()


def test_the_logits_that_are_kept_are_counted_before_they_are_made(tiny):
    one, five = (source(tiny, "GPT-2", predict=(0,) * n).needs for n in (1, 5))
    kept = source(tiny, "GPT-2").trace()
    assert five - one == 4 * kept.predictions[0].nbytes == 4 * 3 * 4 * 400
    with pytest.raises(ConfigError, match="choose a shorter text"):
        source(tiny, "GPT-2", max_bytes=one - 1).trace()


def said(*logits):
    row = torch.tensor(logits)
    order = row.argsort(descending=True).tolist()
    return Prediction(4, "·the", row, tuple(order), tuple("abcd"[one] for one in order))


def test_ranks_distances_and_differences_are_as_by_hand():
    before, after = said(math.log(4), math.log(2), math.log(1), math.log(1)), said(0.0, math.log(2), math.log(4), 0.0)
    rows = predictions.likeliest(after, before)
    assert [(one.token, one.rank, one.before.rank, one.moved) for one in rows] == [
        ("c", 1, 3, "↑ 2"), ("b", 2, 2, ""), ("a", 3, 1, "↓ 2"), ("d", 3, 3, ""),
    ]  # fmt: skip
    assert [one.probability for one in rows] == pytest.approx([1 / 2, 1 / 4, 1 / 8, 1 / 8])
    # Σ p log(p / q) = 1/2 log 4 + 1/4 log 1 + 1/8 log 1/4 + 1/8 log 1
    assert predictions.divergence(before, after) == pytest.approx(3 / 8 * math.log(4))
    assert predictions.difference(before, 0, 1) == pytest.approx(math.log(2))
    assert predictions.summed_up(after, before, (0, "a"), (1, "b")) == (
        "“a” 0.5 → 0.125; “c” is now the likeliest.",
        "Logit of “a” minus logit of “b”: 0.6931 → −0.6931 (logit difference).",
        "KL from the unchanged model: 0.5199 nats.",
    )
    assert predictions.summed_up(before, before)[0] == "The prediction is the same to rounding."
    turned = (
        Trace(("x",), (), vectors=torch.tensor([[0.0, 2.0]])),
        Trace(("x",), (), vectors=torch.tensor([[1.0, 1.0]])),
    )
    assert predictions.cosines(*turned).tolist() == pytest.approx([math.sqrt(1 / 2)])
    near = predictions.Moved(0, "x", 1 - 3e-5), predictions.Moved(1, "y", 1 - 5e-5)
    assert predictions.moved_briefly(near) == "Vectors moved: cosine 1 − 4e−5 on average."
    assert "a cosine of 1 − 5e−5 with the unchanged one" in predictions.moved_in_words(near)


def test_a_target_is_one_token_with_its_blank_where_there_is_such_a_token(tiny):
    loaded, _ = source(tiny, "GPT-2").loaded_and_given()
    ids = {text: predicting.token(loaded, text) for text in ("moon", "·moon", " moon", "</s>")}
    assert {one[1] for one in (ids["moon"], ids["·moon"], ids[" moon"])} == {"·moon"}
    assert ids["</s>"] == (2, "</s>")
    for bad in ("", "moon blinked"):
        with pytest.raises(TextError, match="one token of the model"):
            predicting.token(loaded, bad)


@pytest.mark.parametrize("family", ["GPT-2", "Llama", "Gemma 3", "T5", "Marian", "Falcon"])
def test_a_model_goes_on_as_transformers_own_generate(tiny, family):
    loaded, given = source(tiny, family).loaded_and_given()
    with torch.no_grad():
        theirs = loaded.model.generate(**given, max_new_tokens=6, do_sample=False, num_beams=1)
    model = source(tiny, family, generate=6)
    trace, (_, grown) = model.trace(), model.loaded_and_given()
    assert torch.equal([*grown.values()][-1], theirs)
    before, ids = len([*given.values()][-1][0]), theirs[0].tolist()
    assert trace.generated == len(ids) - before > 0
    last = [layer for layer in trace.layers if not layer.name.startswith("encoder")][-1]
    assert [isinstance(one, Generated) for one in last.tokens] == [at >= before for at in range(len(ids))]
    # Each was said where its prediction is read: the likeliest there, in the row before it.
    assert [one.position for one in trace.predictions] == list(range(before - 1, len(ids)))
    if family != "Marian":  # which may not say everything
        assert [one.ids[0] for one in trace.predictions[:-1]] == ids[before:]


@pytest.mark.parametrize("family", ["GPT-2", "T5", "Bloom"])
def test_the_text_is_read_as_it_was_after_so_many_tokens(tiny, family):
    whole = source(tiny, family, generate=5).trace()
    base = len(whole.read) - whole.generated
    for said in (0, 2, 99):
        trace = source(tiny, family, generate=5, said=said).trace()
        there = min(said, whole.generated)
        assert (trace.read, trace.later) == (whole.read[: base + there], whole.read[base + there :])
        assert trace.generated == there
        assert [isinstance(one, Generated) for one in trace.later] == [True] * (whole.generated - there)
        assert [one.position for one in trace.predictions] == list(range(base - 1, base + there))
        if trace.later:
            assert trace.predictions[-1].tokens[0] == str(trace.later[0])
        short = next(layer for layer in trace.layers if not layer.name.startswith("encoder"))
        long = next(layer for layer in whole.layers if not layer.name.startswith("encoder"))
        torch.testing.assert_close(short.weights, long.weights[:, : base + there, : base + there], atol=1e-6, rtol=0)


def test_what_is_drawn_is_of_its_seed_alone_and_fewer_tokens_are_the_beginning_of_more(tiny):
    def ids(**more):
        KEPT.hold(2**28)
        return source(tiny, "GPT-2", generate_temperature=1.5, **more).loaded_and_given()[1]["input_ids"][0].tolist()

    torch.manual_seed(1)
    first, state = ids(generate=8), torch.get_rng_state()
    torch.manual_seed(2)
    assert ids(generate=8) == first != ids(generate=8, generate_seed=1)
    assert first[: len(ids(generate=3))] == ids(generate=3)
    assert not torch.equal(state, torch.get_rng_state())  # of the other seed still: nobody drew from it
    # The shares of what is drawn are those of the softmax.
    logits, drawn = torch.tensor([[0.0, 1.0, 2.0]]), generating._Drawn(2.0, 0)
    counts = torch.bincount(torch.tensor([int(drawn(logits, logits).argmax()) for _ in range(4000)]), minlength=3)
    torch.testing.assert_close(counts / 4000, (logits[0] / 2).softmax(-1), atol=0.03, rtol=0)


def test_a_changed_model_writes_on_changed_and_one_that_is_changed_by_nothing_as_before(tiny):
    def ids(*those, **more):
        return (
            source(tiny, "Llama", generate=5, interventions=those, **more)
            .loaded_and_given()[1]["input_ids"][0]
            .tolist()
        )

    nothing, hot = Intervention(0, 0, silence="zero", strength=0.0), Intervention(temperature=50.0)
    assert ids(nothing) == ids() != ids(hot)
    drawn = {"generate_temperature": 2.0, "generate_seed": 3}
    assert ids(nothing, **drawn) == ids(**drawn)
    # Each token is the likeliest that the changed model gives after those before it.
    trace = source(tiny, "Llama", generate=5, interventions=(hot,)).trace()
    assert [one.ids[0] for one in trace.predictions[:-1]] == ids(hot)[-trace.generated :]
    unchanged = source(tiny, "Llama", generate=5).trace()
    compared = [predictions.before_of(one, trace, unchanged) is not None for one in trace.predictions]
    assert compared[0]
    assert not all(compared)  # from where they have written something else, they are not the same question


def test_generating_is_bounded_and_says_where_there_is_no_more(tiny):
    trace = source(tiny, "BERT", generate=4).trace()
    assert trace.generated == 0
    assert any(note.startswith("4 tokens were to be generated; 0 are") for note in trace.notes)
