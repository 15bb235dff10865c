"""Pieces as words and special tokens: what stands on the page is the sum over keys and the mean over queries of what the model gave."""

from __future__ import annotations

import pytest
import torch

from attention import Layer, TextError, Trace, WhatIf, explain
from attention.formula.attend import attend
from attention.formula.merging import Groups, merged

TOKENS = ("[CLS]", "un", "##believ", "##able", "owl", "##s", "[SEP]")
SPECIAL = ("[CLS]", "[SEP]")
WORDS = ((0,), (1, 2, 3), (4, 5), (6,))


def layer() -> Layer:
    rows = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 7, 4, generator=rows, dtype=torch.float64) for _ in range(3))
    made = attend(query, key, value)
    return Layer("layer 0", TOKENS, TOKENS, dict(made.recorded), made.formula)


def by_hand(weights: torch.Tensor, groups: tuple[tuple[int, ...], ...]) -> torch.Tensor:
    rows = [[sum(weights[i, j] for i in a for j in b) / len(a) for b in groups] for a in groups]
    return torch.tensor(rows, dtype=torch.float64)


@pytest.mark.parametrize(
    ("words", "what", "groups"),
    [
        (True, "show", WORDS),
        (True, "hide", WORDS[1:3]),
        (False, "hide", tuple((i,) for i in range(1, 6))),
        (True, "renormalise", WORDS[1:3]),
        (False, "renormalise", tuple((i,) for i in range(1, 6))),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_merged_weights_sum_over_keys_and_average_over_queries(
    words: bool, what: str, groups: tuple[tuple[int, ...], ...], whole: bool
) -> None:
    own = layer()
    seen = merged(own if whole else Layer("", TOKENS, TOKENS, own.recorded, own.formula, False), SPECIAL, words, what)
    for head in range(2):
        expected = by_hand(own["weights"][head], groups)
        if what == "renormalise":
            expected = expected / expected.sum(dim=-1, keepdim=True)
        torch.testing.assert_close(seen.matrix("weights", head), expected)
        torch.testing.assert_close(
            seen.part("weights", heads=slice(head, head + 1), rows=slice(1, 2))[0][0], expected[1:2]
        )
    sums = seen["weights"].sum(dim=-1)
    facts = seen.facts("weights")
    assert (facts.least, facts.most) == pytest.approx((float(sums.min()), float(sums.max())))
    assert (what == "hide") == bool((sums < 0.999).any())
    assert [step.name for step in seen.steps] == ["weights"]
    assert seen.shape("weights") == (2, len(groups), len(groups))
    trace = Trace(seen.tokens, (seen,))
    for q in range(len(groups)):
        for k in range(len(groups)):
            told = explain(trace, "weights", 0, 1, q, k)
            assert told.result == pytest.approx(told.value, rel=1e-6)
            assert "as recorded" not in told.words


def test_merged_words_read_as_they_were_typed() -> None:
    assert merged(layer(), SPECIAL, True, "show").tokens == ("[CLS]", "unbelievable", "owls", "[SEP]")
    assert merged(layer(), SPECIAL, False, "show").tokens == TOKENS
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
    assert Groups.of(pieces, [False] * len(pieces), True, False).names == (
        "The", "·quiet", ",", "·owl", "'", "s", "⏎", "Oh", "·🦉", "·<0xFF>", "!",
    )  # fmt: skip


def test_override_applies_to_the_layer_behind_merged_weights() -> None:
    own = layer()
    cold = merged(own, SPECIAL, True, "show").turned(WhatIf(temperature=0.2))
    torch.testing.assert_close(
        cold.matrix("weights", 0), by_hand(own.turned(WhatIf(temperature=0.2))["weights"][0], WORDS)
    )


def test_text_of_special_tokens_only_gets_one_sentence() -> None:
    with pytest.raises(TextError, match="All tokens are special, and hidden"):
        merged(Layer("", SPECIAL, SPECIAL, {"weights": torch.full((1, 2, 2), 0.5)}), SPECIAL, False, "hide")
