"""Find: rules are parsed or refused in a sentence, mean the cells that they say, and planted heads come first, on one text and over many."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from tiny_models import TinyModels

from attention import ConfigError, File, Model, Trained, TypedText, metrics
from attention.analysis.metrics import FindRule, find_heads
from attention.analysis.metrics.find_rule import EXAMPLES
from attention.corpus import scan
from attention.corpus.heads_result import HeadsResult
from attention.models.library import LIBRARY

TOKENS = ("she", "saw", "anna", ".", "it", "saw", "tom")


def cells(rule: str) -> set[tuple[int, int]]:
    """The cells that a rule means: those on which a map of equal weights finds the query and the key."""
    found = set()
    for query in range(len(TOKENS)):
        for key in range(len(TOKENS)):
            weights = np.full((1, len(TOKENS), len(TOKENS)), 1e-3)
            weights[0, query, key] = 0.9
            content = io.BytesIO()
            np.savez(content, weights=weights, tokens=np.array(TOKENS))
            (head,) = find_heads(File.of("w.npz", content.getvalue()).trace(), FindRule.parse(rule))
            if head.queries and (head.query, head.key) == (query, key) and head.weight == pytest.approx(0.9):
                found.add((query, key))
    return found


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('from "she" to "anna"', {(0, 2)}),
        ("from [she, it] to [anna, tom]", {(0, 2), (0, 6), (4, 2), (4, 6)}),
        ("FROM /^s/ TO offset +1", {(0, 1), (1, 2), (5, 6)}),
        ("from any to same word", {(1, 5), (5, 1)}),
        ('from "tom" to previous sentence', {(6, 0), (6, 1), (6, 2), (6, 3)}),
        ("from [.] to any", {(3, key) for key in range(7) if key != 3}),
    ],
)
def test_rule_means_its_cells(rule: str, expected: set[tuple[int, int]]) -> None:
    assert cells(rule) == expected


@pytest.mark.parametrize(
    "rule",
    ["", "from", "from a to b", "to any from any", "from [] to any", "from /(/ to any", "from any to offset x", "from any to offset -1 or 2", "from any to " + "x" * 400, 'from "" to any'],
)  # fmt: skip
def test_other_rules_are_refused_in_a_sentence(rule: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        FindRule.parse(rule)
    assert len(str(refusal.value)) < 400


def test_expression_that_never_ends_is_refused() -> None:
    trace = TypedText("a" * 100).trace()
    with pytest.raises(ConfigError, match="takes longer"):
        find_heads(trace, FindRule.parse("from /^(a|aa|a?)+[^a]$/ to any"))


@pytest.mark.parametrize(("rule", "metric"), [("from any to offset -1", "previous"), ("from any to offset 0", "self")])
def test_offsets_are_the_metrics_of_the_same_name(rule: str, metric: str) -> None:
    trace = TypedText("the owl asked the moon and the moon blinked").trace()
    table = metrics.of(trace)
    found = {(each.layer, each.head): each for each in find_heads(trace, FindRule.parse(rule))}
    index = metrics.NAMES.index(metric)
    for head, value in zip(table.heads, table.column(metric), strict=True):
        assert found[head].value == pytest.approx(value, abs=1e-12)
        assert found[head].queries == table.counts[head][index]
        assert found[head].uniform == pytest.approx(table.uniform[head[0], index], abs=1e-6)


def test_rule_over_many_texts_is_its_mean_over_single_texts(tiny: TinyModels, tmp_path: Path) -> None:
    texts = ("the owl asked the moon and the moon blinked", "keys and queries meet", "the cat and the moon")
    rule, folder = "from [the, a] to [moon, cat]", str(tiny("BERT"))
    plan, _ = scan.make_plan(LIBRARY.get(folder), texts, finds=(rule,))
    scan.scan(plan, texts, str(tmp_path))
    scan.merge(str(tmp_path))
    result = HeadsResult.open(tmp_path)
    assert result.metrics[-1] == rule
    single = [find_heads(Model(folder, text).trace(), FindRule.parse(rule)) for text in texts]
    for place, head in enumerate(result.heads):
        values = [each.value for found in single for each in found if (each.layer, each.head) == head and each.queries]
        assert result.column(rule, "count")[place] == len(values)
        if values:
            assert result.column(rule, "mean")[place] == pytest.approx(np.mean(values), abs=1e-6)
    assert [any(each.queries for each in found) for found in single] == [True, False, True]


def test_all_suggested_rules_are_rules() -> None:
    assert all(FindRule.parse(rule).metric.name == rule for rule in EXAMPLES)


def test_words_of_a_rule_are_whole_words_in_any_case() -> None:
    tokens = ("[CLS]", "The", "un", "##believ", "##able", "owl", "[SEP]")
    weights = np.full((1, 7, 7), 1 / 7)
    content = io.BytesIO()
    np.savez(content, weights=weights, tokens=np.array(tokens))
    trace = File.of("w.npz", content.getvalue()).trace()
    for rule, n_queries, n_keys in (
        ('from "the" to "unbelievable"', 1, 3), ('from "unbelievable" to "owl"', 3, 1), ('from "owl" to "believ"', 0, 0),
        ('from "owl" to special', 1, 2), ('from "the" to any', 1, 6), ('from "owl" to "The"', 1, 1), ('from "owl" to "THE"', 0, 0),
    ):  # fmt: skip
        (head,) = find_heads(trace, FindRule.parse(rule))
        assert head.queries == n_queries, rule
        if n_queries:
            assert head.value == head.uniform == pytest.approx(n_keys / 7), rule


def test_planted_heads_of_a_trained_model_are_found() -> None:
    trace = Trained("induction").trace()
    previous = find_heads(trace, FindRule.parse("from any to offset -1"))[0]
    table = metrics.of(trace)
    assert (previous.layer, previous.head) == table.sorted_by("previous")[0]
    assert previous.layer == 0
    assert previous.value > 0.6 > 3 * previous.uniform
