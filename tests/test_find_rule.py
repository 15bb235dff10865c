"""Find: rules are parsed or refused in a sentence, mean the cells that they say, and planted heads come first, on one text and over many."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from tiny_models import TinyModels

from attention import ConfigError, File, Model, TypedText, metrics
from attention.analysis.metrics.find_rule import EXAMPLES, bare, find_heads, parse_rule
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
            (head, *_) = find_heads(File.of("w.npz", content.getvalue()).trace(), parse_rule(rule)) or [None]
            if head and (head.query, head.key) == (query, key) and head.weight == pytest.approx(0.9):
                found.add((query, key))
    return found


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('from "she" to "anna"', {(0, 2)}),
        ("from [she, it] to [anna, tom]", {(0, 2), (0, 6), (4, 2), (4, 6)}),
        ("FROM /^s/ TO offset +1", {(0, 1), (1, 2), (5, 6)}),
        ("from any to same word", {(1, 5), (5, 1)}),
        ('from "Tom" to previous sentence', {(6, 0), (6, 1), (6, 2), (6, 3)}),
        ("from [.] to any", {(3, key) for key in range(7)}),
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
        parse_rule(rule)
    assert len(str(refusal.value)) < 400


def test_expression_that_never_ends_is_refused() -> None:
    trace = TypedText("a" * 100).trace()
    with pytest.raises(ConfigError, match="takes too long"):
        find_heads(trace, parse_rule("from /^(a|aa|a?)+[^a]$/ to any"))


@pytest.mark.parametrize(("rule", "metric"), [("from any to offset -1", "previous"), ("from any to offset 0", "self")])
def test_offsets_are_the_metrics_of_the_same_name(rule: str, metric: str) -> None:
    trace = TypedText("the owl asked the moon and the moon blinked").trace()
    table = metrics.of(trace)
    found = {(each.layer, each.head): each for each in find_heads(trace, parse_rule(rule))}
    index = metrics.NAMES.index(metric)
    for head, value in zip(table.heads, table.column(metric), strict=True):
        assert found[head].value == pytest.approx(value, abs=1e-12)
        assert found[head].n_queries == table.counts[head][index]
        assert found[head].by_chance == pytest.approx(table.uniform[head[0], index], abs=1e-6)


def test_rule_over_many_texts_is_its_mean_over_single_texts(tiny: TinyModels, tmp_path: Path) -> None:
    texts = ("the owl asked the moon and the moon blinked", "keys and queries meet", "the cat and the moon")
    rule, folder = "from [the] to [moon, cat]", str(tiny("BERT"))
    plan, _ = scan.make_plan(LIBRARY.get(folder), texts, finds=(rule,))
    scan.scan(plan, texts, str(tmp_path))
    scan.merge(str(tmp_path))
    result = HeadsResult.open(tmp_path)
    assert result.metrics[-1] == rule
    special = LIBRARY.get(folder).tokenizer.all_special_tokens
    single = [find_heads(Model(folder, text).trace(), parse_rule(rule), special) for text in texts]
    for place, head in enumerate(result.heads):
        values = [each.value for found in single for each in found if (each.layer, each.head) == head]
        assert result.column(rule, "count")[place] == len(values)
        if values:
            assert result.column(rule, "mean")[place] == pytest.approx(np.mean(values), abs=1e-6)
    assert len(single[0]) == len(result.heads)
    assert not single[1]


def test_all_suggested_rules_are_rules() -> None:
    assert all(parse_rule(rule).metric.name == rule for rule in EXAMPLES)
    assert [bare(token) for token in ("##ing", "·The", "▁a", "·", "##", "It")] == ["ing", "the", "a", "·", "##", "it"]
