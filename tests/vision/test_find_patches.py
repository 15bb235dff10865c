"""Find rules over a picture: its patches by kind, by place and by neighbourhood, beside words."""

from __future__ import annotations

import pytest
from test_find_rule import cells

from attention import ConfigError
from attention.base.tokens import Patch
from attention.metrics import FindRule
from attention.metrics.find_rule import PICTURE_EXAMPLES

pytestmark = pytest.mark.quick

BOX = (0, 0, 4, 4)
TOKENS = (
    "<s>",
    "·a",
    *(Patch(0, row, column, BOX) for row in range(3) for column in range(4)),
    "·dog",
    ".",
    *(Patch(1, 0, column, BOX) for column in range(2)),
    "·Dog",
    "</s>",
)
PATCHES = {at for at, token in enumerate(TOKENS) if isinstance(token, Patch)}
FIRST = {at for at in PATCHES if TOKENS[at].picture == 0}


def at(row: int, column: int) -> int:
    """The position of a patch of the first picture."""
    return 2 + 4 * row + column


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        ('from "dog" to picture', {(query, key) for query in (14, 18) for key in PATCHES}),
        ("from picture to words", {(query, key) for query in PATCHES for key in (1, 14, 15, 18)}),
        ("from special to special", {(0, 19), (19, 0)}),
        ("from patch row 1, column 2 to near patches", {(at(1, 2), at(r, c)) for r in range(3) for c in (1, 2, 3) if (r, c) != (1, 2)}),
        ('from "patch row 0, column 3" to same row', {(at(0, 3), at(0, c)) for c in range(3)}),
        ("from row 2, column 0 to same column", {(at(2, 0), at(r, 0)) for r in range(2)}),
        ('from "Dog" to patches rows 0-1, columns 1-2', {(18, at(r, c)) for r in (0, 1) for c in (1, 2)} | {(18, 17)}),
        ('from "Dog" to patch row 0, column 0-1 of picture 1', {(18, 16), (18, 17)}),
        ('from "Dog" to "patch row 0, column 1 of picture 1"', {(18, 17)}),
        ('from "Dog" to row 0, column 1, picture 0', {(18, at(0, 1))}),
        ("from /row 2,/ to patch row 0, column 0", {(at(2, c), key) for c in range(4) for key in (2, 16)}),
        ("from any to same word", {(14, 18), (18, 14)}),
        ("from words to offset 1", {(14, 15), (18, 19)}),
        ("from picture to offset 0", {(key, key) for key in PATCHES}),
        ("from picture to offset 1", set()),
        ("from picture to same sentence", set()),
    ],
)  # fmt: skip
def test_rule_over_a_picture_counts_these_cells(rule: str, expected: set[tuple[int, int]]) -> None:
    assert cells(rule, TOKENS) == expected


def test_registers_are_found_beside_patches() -> None:
    tokens = ("[CLS]", "[register 0]", "[register 1]", *(Patch(0, 0, column, BOX) for column in range(3)))
    assert cells("from picture to registers", tokens) == {(query, key) for query in (3, 4, 5) for key in (1, 2)}
    assert cells("from picture to special", tokens) == {(query, key) for query in (3, 4, 5) for key in (0, 1, 2)}
    assert cells('from "[CLS]" to picture', tokens) == {(0, key) for key in (3, 4, 5)}


@pytest.mark.parametrize(
    ("written", "canonical"),
    [
        *((rule, rule) for rule in PICTURE_EXAMPLES),
        ('from "patch row 3, column 7" to Near  Patches', "from patch row 3, column 7 to near patches"),
        ("from row 1, column 2, picture 1 to any", "from patch row 1, column 2 of picture 1 to any"),
        ("from rows 4–2 columns 1 to any", "from patch row 2-4, column 1 to any"),
    ],
)
def test_rule_of_patches_has_one_form(written: str, canonical: str) -> None:
    rule = FindRule.parse(written)
    assert rule.text == rule.metric.name == canonical
    assert FindRule.parse(canonical) == rule
    assert "patch" in rule.metric.meaning


def test_mistaken_patches_are_refused_in_a_sentence() -> None:
    for text in ("from patch 3, 7 to any", "from picture to patch row 3", "from row to any"):
        with pytest.raises(ConfigError, match="A find rule needs"):
            FindRule.parse(text)


def test_words_of_a_text_mean_the_same_without_a_picture() -> None:
    assert cells("from words to punctuation", ("the", "owl", ".")) == {(0, 2), (1, 2)}
    assert cells("from any to picture", ("the", "owl", ".")) == set()
