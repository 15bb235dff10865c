"""Sums over spans, against sums that are written out; and what is lost while a span is hidden, against the model's own 4D mask."""

from __future__ import annotations

import math
import sys
from typing import Any

import pytest
import torch
import transformers
from margins import approx
from tiny_models import FAMILIES, TinyModels

from attention import ConfigError, Intervention, MissingError, Model, ShapeError, Trace, TypedText, metrics, spans
from attention.base.errors import SizeError
from attention.metrics.aggregates import find_aggregate
from attention.models import running
from attention.spans import span_table
from attention.spans.looked_at import hide_each
from attention.spans.span_table import REST, SINK

TEXT = "the owl asked the moon and the moon blinked"
PLACES = {"bird": range(1, 3), "moon": [range(4, 6), range(6, 7)]}


def load(tiny: TinyModels, family: str) -> Any:
    running.silence_warnings()
    return getattr(transformers, FAMILIES[family][1]).from_pretrained(tiny(family), attn_implementation="eager")


def traced(tiny: TinyModels, family: str, tokenizer: Any, **options: Any) -> tuple[Any, Trace]:
    model = load(tiny, family)
    return model, Model.of(model, tokenizer, TEXT, spans=PLACES, **options).trace()


@pytest.mark.parametrize("family", ["GPT-2", "Gemma 3", "BERT"])
def test_table_is_the_sum_that_is_written_out(family: str, tiny: TinyModels, tokenizer: Any) -> None:
    _, trace = traced(tiny, family, tokenizer)
    n = len(trace.tokens)
    groups = {"bird": [1, 2], "moon 1": [4, 5], "moon 2": [6], REST: [i for i in range(n) if i not in (1, 2, 4, 5, 6)]}
    table = spans.table(trace)
    assert table.names == tuple(groups)
    assert table.sizes == tuple(map(len, groups.values()))
    frame = table.frame().set_index(["layer", "head", "query span", "key span"])
    for layer in range(2):
        weights = trace.layers[layer].weights.double()
        # The masks of the families: none; causal; and, of Gemma 3's first layer, the last four keys alone.
        window = 4 if family == "Gemma 3" and layer == 0 else n
        visible = torch.tensor([[family == "BERT" or i - window < j <= i for j in range(n)] for i in range(n)])
        for head in range(4):
            for a, queries in groups.items():
                for b, keys in groups.items():
                    row = frame.loc[layer, head, a, b]
                    total = sum(float(weights[head, q, k]) for q in queries for k in keys) / len(queries)
                    assert row["sum"] == approx(total, scale=1)
                    assert row["mean per key"] == approx(total / len(keys), scale=1)
                    chance = sum(sum(bool(visible[q, k]) for k in keys) / int(visible[q].sum()) for q in queries)
                    assert row["by chance"] == approx(chance / len(queries), scale=1)
    assert table.values.sum(-1) == approx(1, dtype="float32")  # as rows do
    assert spans.table(trace, layer=1, head=2).values == approx(table.values[1:, 2:3])
    one = table.mean()
    assert one.values[0, 0] == approx(table.values.mean((0, 1)))


def test_any_map_and_any_numbers_of_tokens(tiny: TinyModels, tokenizer: Any) -> None:
    _, trace = traced(tiny, "GPT-2", tokenizer)
    weights = trace.layers[1].weights[2]
    table = spans.table(trace, layer=1, head=2)
    assert spans.sums(trace, weights).to_numpy() == approx(table.values[0, 0])
    rollout = find_aggregate("rollout").matrix(trace, 1)
    assert spans.sums(trace, rollout).loc["moon 1", "bird"] == approx(float(rollout[4:6, 1:3].sum()) / 2)
    numbers = torch.arange(len(trace.tokens)).double() + 1
    summed = spans.sums(trace, numbers)
    assert summed.loc["moon 1"].tolist() == [2, 5 + 6, 5.5]
    assert summed["sum"].sum() == float(numbers.sum())
    with pytest.raises(ShapeError, match=r"Spans add up numbers of \d+ tokens, .*; got the shape \[4, 9, 9\]"):
        spans.sums(trace, torch.zeros(4, 9, 9))


def test_a_metric_of_the_queries_of_a_span(tiny: TinyModels, tokenizer: Any) -> None:
    _, trace = traced(tiny, "GPT-2", tokenizer)
    frame = spans.metric(trace, "previous").set_index(["layer", "head", "query span"])
    weights = trace.layers[1].weights[3]
    assert frame.loc[(1, 3, "moon 1"), "previous"] == approx(float(weights[4, 3] + weights[5, 4]) / 2)
    assert frame.loc[(1, 3, REST), "queries"] == len(trace.tokens) - 6  # the first token has none before it
    whole = metrics.of(trace)
    total = (frame["previous"] * frame["queries"]).loc[1, 3].sum() / frame["queries"].loc[1, 3].sum()
    assert total == approx(float(whole.column("previous")[7]))


def test_layers_of_other_tokens_have_no_number(tiny: TinyModels, tokenizer: Any) -> None:
    model = load(tiny, "BART")
    trace = Model.of(model, tokenizer, TEXT, text2="a cat", spans=PLACES).trace()
    values = spans.table(trace).values
    assert [bool(math.isnan(layer[0, 0, 0])) for layer in values] == [False, False, True, True, True, True]


def test_traces_without_spans_and_other_steps_are_refused() -> None:
    trace = TypedText(TEXT).trace()
    with pytest.raises(
        MissingError, match=r"^This trace has no spans: name stretches of its tokens with Model\(…, spans=…\)"
    ):
        spans.table(trace)
    named = trace.with_spans({"bird": range(2)})
    assert spans.table(named).values.shape == (1, 4, 2, 2)
    with pytest.raises(
        MissingError, match=r"^Spans add up weights; got the step scores: give weights, or a map of your own"
    ):
        spans.table(named, "scores")
    with pytest.raises(MissingError, match="this trace has none of transformers behind it"):
        spans.looked_at(named, hide=True)


def hidden_mask(n: int, first: int, last: int, causal: bool, window: int) -> torch.Tensor:
    """An additive mask [1 1 query key], written out cell by cell."""
    mask = torch.zeros(1, 1, n, n)
    for q in range(n):
        for k in range(n):
            is_out = first <= k <= last and not first <= q <= last
            if is_out or (causal and not q - window < k <= q):
                mask[0, 0, q, k] = torch.finfo(torch.float32).min
    return mask


@pytest.mark.parametrize("family", ["GPT-2", "Llama", "Qwen 3", "GPT-NeoX"])
def test_hiding_a_span_is_the_run_with_that_mask(family: str, tiny: TinyModels, tokenizer: Any) -> None:
    model, trace = traced(tiny, family, tokenizer)
    ids = torch.tensor([trace.model_run.token_ids]) if trace.model_run else torch.zeros(1, 1)
    n = ids.shape[1]
    with torch.no_grad():
        plain = model(ids).logits[0, -1].double().log_softmax(-1)
    target = int(plain.argmax())
    found = spans.looked_at(trace, hide=True)
    assert found.baseline == approx(float(plain[target]))
    changes = dict(zip(found.names, found.changes, strict=True))
    for span in trace.spans:
        mask = hidden_mask(n, span.first, span.last, True, n)
        with torch.no_grad():
            hidden = model(ids, attention_mask=mask).logits[0, -1].double().log_softmax(-1)
        assert changes[span.name] == approx(float(hidden[target] - plain[target]), terms=16384, scale=1)
        assert abs(changes[span.name]) > 1e-3  # something happened
    assert math.isnan(changes[SINK])
    assert math.isnan(changes[REST])


def test_the_answer_is_measured_token_by_token(tiny: TinyModels, tokenizer: Any) -> None:
    model, trace = traced(tiny, "Llama", tokenizer, generate=3)
    ids = torch.tensor([trace.model_run.token_ids]) if trace.model_run else torch.zeros(1, 1)
    n = ids.shape[1]

    def log_probability(mask: torch.Tensor) -> float:
        with torch.no_grad():
            rows = model(ids, attention_mask=mask).logits[0].double().log_softmax(-1)
        return sum(float(rows[i - 1, ids[0, i]]) for i in range(n - 3, n))

    plain = log_probability(hidden_mask(n, n, n, True, n))
    found = spans.looked_at(trace, hide=True)
    assert (found.answer, found.quantity) == ("answer", "log-probability of the answer (3 tokens)")
    assert found.baseline == approx(plain)
    changes = dict(zip(found.names, found.changes, strict=True))
    assert changes["bird"] == approx(log_probability(hidden_mask(n, 1, 2, True, n)) - plain, terms=1024)
    assert math.isnan(changes["answer"])
    # The shares are those of the queries that predict it, n − 4 to n − 2, over all heads of both layers.
    weights = torch.stack([layer.weights.double() for layer in trace.layers]).mean((0, 1))[n - 4 : n - 1].mean(0)
    shares = dict(zip(found.names, found.shares, strict=True))
    assert shares["moon 1"] == approx(float(weights[4:6].sum()))
    assert shares[SINK] == approx(float(weights[0]))
    assert sum(shares.values()) == approx(1)
    chance = dict(zip(found.names, found.by_chance, strict=True))
    assert chance["bird"] == approx(sum(2 / (q + 1) for q in range(n - 4, n - 1)) / 3)
    with pytest.raises(ConfigError, match="A target is a token at one query; got the answer of several tokens"):
        spans.looked_at(trace, target=5)
    with pytest.raises(
        MissingError,
        match="The answer is one of the spans bird, moon 1, moon 2, answer, which follow something; got 'x'",
    ):
        spans.looked_at(trace, "x")


def test_what_is_lost_depends_on_the_run_to_patch_from(tiny: TinyModels, tokenizer: Any) -> None:
    model = load(tiny, "Llama")
    patch = Intervention(0, patch="head_output")
    changes = []
    for text in ("the moon asked the owl and the owl blinked", "the moon and the moon asked and the owl"):
        other = Model.of(model, tokenizer, text)
        source = Model.of(model, tokenizer, TEXT, spans=PLACES, interventions=(patch,), other=other)
        found = spans.looked_at(source.trace(), hide=True, target=5)
        plain = source.run_with_hooks({})[-1].double().log_softmax(-1)[5]
        assert found.baseline == approx(float(plain))
        changes.append(found.changes)
    assert changes[0] != changes[1]


def test_many_spans_are_counted_before(tiny: TinyModels, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "the owl. " * 30
    named = TypedText(text).trace()
    named = named.with_spans([("part", range(i, i + 1)) for i in range(len(named.tokens))])
    n = len(named.spans)
    monkeypatch.setattr(span_table, "_MOST_NUMBERS", 4 * n * n)
    assert spans.table(named).values.shape[2:] == (n, n)
    monkeypatch.setattr(span_table, "_MOST_NUMBERS", 4 * n * n - 1)
    with pytest.raises(
        SizeError, match=r"A table of spans has at most .* numbers; .* spans in 1 layers of 4 heads have"
    ):
        spans.table(named)
    source = Model(str(tiny("Llama")), TEXT, spans=PLACES)
    monkeypatch.setattr(sys.modules[hide_each.__module__], "_MAX_SECONDS", 0.0)
    with pytest.raises(SizeError, match=r"^Hiding 3 spans in turn would take about .* s here; at most 0 s are allowed"):
        next(hide_each(source, source.trace().spans))


def test_a_mask_token_is_looked_at_too(tiny: TinyModels, tokenizer: Any) -> None:
    model = load(tiny, "BERT")
    trace = Model.of(
        model, tokenizer, "the owl asked the <mask> and the moon", spans={"bird": "the owl", "rest": "and the moon"}
    ).trace()
    (prediction,) = trace.predictions
    found = spans.looked_at(trace, prediction.position, hide=True)
    n = len(trace.tokens)
    ids = torch.tensor([trace.model_run.token_ids]) if trace.model_run else torch.zeros(1, 1)
    last = trace.spans[1]
    with torch.no_grad():
        rows = (
            model(ids, attention_mask=hidden_mask(n, last.first, last.last, False, n))
            .logits[0]
            .double()
            .log_softmax(-1)
        )
    expected = float(rows[prediction.position, prediction.ids[0]]) - prediction.log_probabilities[0]
    assert dict(zip(found.names, found.changes, strict=True))["rest"] == approx(expected, terms=16384, scale=1)


def test_the_sentence_says_both() -> None:
    found = spans.LookedAt("answer", ("system", "user", REST), (4, 6, 2), (0.5, 0.25, 0.25), (0.25, 0.5, 0.25))
    assert found.sentence == "The answer looks most at “system”: 50 % of its weight, 25 % by chance."
    changed = spans.LookedAt(
        "answer",
        found.names,
        found.sizes,
        found.shares,
        found.by_chance,
        "log-probability",
        -1.0,
        (-0.5, -3.0, math.nan),
    )
    assert changed.sentence == (
        "The answer looks most at “system”: 50 % of its weight, 25 % by chance; it needs “user” most: hidden, the log-probability goes from "
        "−1.00 to −4.00; with “system” hidden it changes by −0.50."
    )
    assert changed.frame()["span"].tolist() == ["system", "user", REST]
