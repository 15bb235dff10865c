"""Find rules: one form, sentences for mistakes, words and sentences of a text, planted heads, and a run over texts."""

from __future__ import annotations

import math
import re

import pytest
import torch
from margins import approx

from attention import ConfigError, Layer, Trace
from attention.metrics import FindRule, find_heads, find_rule
from attention.metrics.find_rule import EXAMPLES, _TextWords

pytestmark = pytest.mark.quick

WORDPIECES = ("[CLS]", "the", "anim", "##al", "was", "tired", ".", "it", "slept", "!", '"', "The", "[SEP]")


def cells(rule: str, tokens: tuple[str, ...]) -> set[tuple[int, int]]:
    """The cells of a rule that a bidirectional head of uniform weights counts, and a check of its value."""
    weights = torch.rand(1, len(tokens), len(tokens), generator=torch.Generator().manual_seed(0)).double()
    trace = Trace(tokens, (Layer(tokens=tokens, recorded={"weights": weights}),))
    parsed = FindRule.parse(rule)
    mask = parsed._of_text(tokens, frozenset())
    (found,) = find_heads(trace, parsed)
    defined = mask.any(-1)
    assert found.queries == int(defined.sum())
    if found.queries:
        rows = (weights[0] * mask).sum(-1)[defined]
        assert found.value == approx(float(rows.mean()))
        assert found.uniform == approx(float(mask.sum(-1)[defined].double().mean()) / len(tokens))
        assert mask[found.query, found.key]
        assert found.weight == approx(float(weights[0, found.query, found.key]))
        null = "" if math.isnan(found.by_distance) else ".* if only distances counted, "  # patches have no distances
        assert re.fullmatch(rf".* of its queries; by chance {null}.* the same weight", found.words)
    return {(int(query), int(key)) for query, key in mask.nonzero()}


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        *((rule, rule) for rule in EXAMPLES),
        ("FROM  'it' TO “Animal”", 'from "it" to "Animal"'),
        ('from ["he", she,he ] to ["a,b", x]', 'from [he, she] to ["a,b", x]'),
        (r"from /a\/b/i to offset −3", r"from /a\/b/i to offset -3"),
        ('from "\\"" to Same  Word', 'from "\\"" to same word'),
        ("from special to [it]", 'from special to "it"'),
    ],
)
def test_rule_has_one_form_that_is_read_again(written: str, canonical: str) -> None:
    rule = FindRule.parse(written)
    assert rule.text == rule.metric.name == canonical
    assert FindRule.parse(canonical) == rule
    assert hash(FindRule.parse(canonical)) == hash(rule)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        ("", "needs from at character 1; got the end: write"),
        ("from it to any", r"needs one of .* at character 6; got 'it to any': put a word into quotes"),
        ("from any to offset x", "an integer .* at character 20"),
        ("from any to offset 99999", "from −4,096 to 4,096"),
        ('from "a b" to any', "one word without blanks"),
        ('from any to "x', "at the end of the word at character 13"),
        ("from [a b] to any", "a comma or ]"),
        ("from [a, ] to any", "a word of a list"),
        ("from same word to any", "needs one of"),
        ("from any to any x", "needs the end of the rule at character 17"),
        ("from any to /a/g", "no flag but i at character 16"),
        ("from any to /(/", "a regular expression at character"),
        ("from any to /(((a{1000}){1000}){1000})/", "repetitions are"),
        (r"from any to /(a)\1/", "references to groups"),
        ("from any to /(?R)/", r"groups are \( \)"),
        ("from any to /" + "a" * 201 + "/", "at most 200 characters"),
        ("from any to [" + ",".join(map(str, range(101))) + "]", "at most 100 words"),
        ("from any to " + "x" * 1000, "at most 1,000 characters"),
        ('from "a\x00" to any', "characters that can be seen"),
    ],
)
def test_mistakes_are_sentences_with_their_place(text: str, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        FindRule.parse(text)


def test_slow_regular_expression_is_refused_once(monkeypatch: pytest.MonkeyPatch) -> None:
    rule, words = FindRule.parse("from any to /(a|a)*$/"), ("a" * 60 + "b",)
    with pytest.raises(ConfigError, match=r"0.12 s .* /\(a\|a\)\*\$/ takes longer: write one without"):
        rule._of_text(words, frozenset())
    assert rule.keys.of_words(_TextWords.of(("aa",)))  # refused for that text alone
    monkeypatch.setattr(find_rule.regex, "compile", lambda *_: pytest.fail("a page asks again in every run"))
    with pytest.raises(ConfigError, match="takes longer"):
        rule._of_text(words, frozenset())


def test_an_expression_stopped_by_others_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(find_rule.time, "thread_time", lambda: 0.0)  # other threads have the processor
    rule, remembered = FindRule.parse("from /(b|b)*$/ to any"), find_rule._is_found.cache_info().currsize
    with pytest.raises(ConfigError, match="takes longer"):
        rule._of_text(("b" * 60 + "a",), frozenset())
    assert find_rule._is_found.cache_info().currsize == remembered


def test_words_join_pieces_and_end_sentences() -> None:
    words = _TextWords.of(WORDPIECES)
    assert words.names[2] == "animal"
    assert words.word_of.tolist() == [0, 1, 2, 2, *range(3, 12)]
    assert words.sentence_of.tolist() == [-1, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, -1]
    assert _TextWords.of(("Hel", "lo", "·wor", "ld", ",", "·x")).names == ("Hello", "world", ",", "x")
    assert _TextWords.of(("an", "owl")).names == ("an", "owl")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('from "it" to "animal"', {(7, 2), (7, 3)}),
        ('from "animal" to [IT, it]', {(2, 7), (3, 7)}),
        ("from any to The", None),
        ('from "it" to "The"', {(7, 11)}),
        ('from "it" to "the"', {(7, 1), (7, 11)}),
        ("from /^T/ to same word", {(11, 1)}),
        ("from any to same word", {(1, 11), (11, 1)}),
        ("from special to special", {(0, 12), (12, 0)}),
        ('from "it" to punctuation', {(7, 6), (7, 9), (7, 10)}),
        ('from "slept" to same sentence', {(8, 7), (8, 9), (8, 10)}),
        ('from "slept" to previous sentence', {(8, key) for key in range(1, 7)}),
        ('from "." to next sentence', {(6, key) for key in (7, 8, 9, 10)}),
        ('from "animal" to offset -1', {(2, 1), (3, 2)}),
        ("from /SLEPT/i to offset 0", {(8, 8)}),
        ('from "dog" to any', set()),
    ],
)
def test_cells_of_a_rule_are_those_counted_by_hand(rule: str, expected: set[tuple[int, int]] | None) -> None:
    if expected is None:
        with pytest.raises(ConfigError):
            FindRule.parse(rule)
    else:
        assert cells(rule, WORDPIECES) == expected


def test_matrix_without_tokens_has_offsets() -> None:
    rule = FindRule.parse("from any to offset -1")
    weights = torch.eye(4).double()[None, [0, 0, 1, 2]]
    (found,) = find_heads(Trace((), (Layer(recorded={"weights": weights}),)), rule)
    assert (found.value, found.queries) == (1.0, 3)
