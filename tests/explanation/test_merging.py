"""Merged subwords and special tokens: the page shows the sum over keys and the mean over queries of the model's weights."""

from __future__ import annotations

import pytest
import torch
from margins import approx

from attention import Layer, Override, TextError, Trace, explain
from attention.explanation.subwords import TokenGroups, merge_tokens
from attention.trace.attend import attend

pytestmark = pytest.mark.quick

TOKENS = ("[CLS]", "un", "##believ", "##able", "owl", "##s", "[SEP]")
SPECIAL = ("[CLS]", "[SEP]")
WORDS = ((0,), (1, 2, 3), (4, 5), (6,))


def layer() -> Layer:
    rows = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 7, 4, generator=rows, dtype=torch.float64) for _ in range(3))
    attention = attend(query, key, value)
    return Layer("layer 0", TOKENS, TOKENS, dict(attention.recorded), attention.formula)


def merged_directly(weights: torch.Tensor, groups: tuple[tuple[int, ...], ...]) -> torch.Tensor:
    rows = [[sum(weights[i, j] for i in a for j in b) / len(a) for b in groups] for a in groups]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(
    ("words", "special", "groups"),
    [
        (True, "show", WORDS),
        (True, "hide", WORDS[1:3]),
        (False, "hide", tuple((i,) for i in range(1, 6))),
        (True, "renormalise", WORDS[1:3]),
        (False, "renormalise", tuple((i,) for i in range(1, 6))),
    ],
)
@pytest.mark.parametrize("all_heads", [True, False])
def test_merged_weights_sum_over_keys_and_average_over_queries(
    words: bool, special: str, groups: tuple[tuple[int, ...], ...], all_heads: bool
) -> None:
    base = layer()
    view = merge_tokens(
        base if all_heads else Layer("", TOKENS, TOKENS, base.recorded, base.formula, False), SPECIAL, words, special
    )
    for head in range(2):
        expected = merged_directly(base["weights"][head], groups)
        if special == "renormalise":
            expected = expected / expected.sum(dim=-1, keepdim=True)
        assert view.matrix("weights", head) == approx(expected)
        assert view.blocks("weights", heads=slice(head, head + 1), rows=slice(1, 2))[0][0] == approx(expected[1:2])
    sums = view["weights"].sum(dim=-1)
    facts = view.stats("weights")
    assert (facts.min_row_sum, facts.max_row_sum) == approx((float(sums.min()), float(sums.max())))
    assert (special == "hide") == bool((sums < 0.999).any())
    assert [step.name for step in view.steps] == ["weights"]
    assert view.shape("weights") == (2, len(groups), len(groups))
    trace = Trace(view.tokens, (view,))
    for q in range(len(groups)):
        for k in range(len(groups)):
            explanation = explain(trace, "weights", 0, 1, q, k)
            assert explanation.result == approx(explanation.value)
            assert "as recorded" not in explanation.words


def test_merged_words_read_as_they_were_typed() -> None:
    assert merge_tokens(layer(), SPECIAL, True, "show").tokens == ("[CLS]", "unbelievable", "owls", "[SEP]")
    assert merge_tokens(layer(), SPECIAL, False, "show").tokens == TOKENS
    pieces = (
        "The",
        "·qu",
        "iet",
        ",",
        "·owl",
        "'",
        "s",
        "⏎",
        "Oh",
        "·<0xF0>",
        "<0x9F>",
        "<0xA6>",
        "<0x89>",
        "·<0xFF>",
        "!",
    )
    assert TokenGroups.of(pieces, [False] * len(pieces), True, False).names == (
        "The", "·quiet", ",", "·owl", "'", "s", "⏎", "Oh", "·🦉", "·<0xFF>", "!",
    )  # fmt: skip


def test_override_applies_to_the_layer_behind_merged_weights() -> None:
    base = layer()
    cold = merge_tokens(base, SPECIAL, True, "show").with_config(Override(temperature=0.2))
    assert cold.matrix("weights", 0) == approx(
        merged_directly(base.with_config(Override(temperature=0.2))["weights"][0], WORDS)
    )


def test_text_of_special_tokens_only_gets_one_sentence() -> None:
    with pytest.raises(TextError, match="All tokens are special, and hidden"):
        merge_tokens(Layer("", SPECIAL, SPECIAL, {"weights": torch.full((1, 2, 2), 0.5)}), SPECIAL, False, "hide")
