"""Labels of heads: both numbers are those of the result, and a head without clear evidence has none."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from test_many_texts_page import heads_parquet
from tiny_models import TinyModels

from attention.corpus import labels, scan
from attention.corpus.heads_result import HeadsResult
from attention.models.library import LIBRARY


@dataclass
class Numbers:
    """A result of three heads with the same number for every metric but some."""

    numbers: dict[tuple[str, str], list[float]] = field(default_factory=dict)
    metrics: tuple[str, ...] = ("previous", "next", "self", "first token", "distant induction", "duplicate token", "punctuation", "local")  # fmt: skip
    heads: tuple[tuple[int, int], ...] = ((0, 0), (0, 1), (1, 0))

    def column(self, metric: str, name: str) -> np.ndarray:
        if name == "shuffled_mean" and (metric, name) not in self.numbers:
            name = "mean"
        return np.array(self.numbers.get((metric, name), [0.1, 0.1, 0.1]))


def names(numbers: dict[tuple[str, str], list[float]]) -> list[list[str]]:
    return [[label.name for label in of_head] for of_head in labels.of(Numbers(numbers))]  # type: ignore[arg-type]


def test_label_needs_a_large_weight_far_above_chance() -> None:
    assert names({}) == [[], [], []]
    assert names({("previous", "mean"): [0.9, 0.39, np.nan]}) == [["previous token"], [], []]
    large = {("punctuation", "mean"): [0.5, 0.5, 0.5], ("punctuation", "uniform"): [0.1, 0.2, np.nan]}
    assert names(large) == [["punctuation"], [], []]


def test_place_must_show_on_shuffled_words_too() -> None:
    values = {("previous", "mean"): [0.9, 0.9, 0.9], ("previous", "shuffled_mean"): [0.8, 0.3, np.nan]}
    assert names(values) == [["previous token"], [], []]
    peaks = {("previous", "peak_offset"): [-2, -1, -3], ("previous", "peak_weight"): [0.7, 0.7, 0.7]}
    assert names(peaks | {("previous", "shuffled_peak_weight"): [0.6, 0.6, 0.1]}) == [["position"], [], []]


def test_induction_must_show_on_random_tokens_and_on_texts() -> None:
    random = {("distant induction", "random_mean"): [0.8, 0.8, np.nan]}
    assert names(random | {("distant induction", "mean"): [0.3, 0.05, 0.9]}) == [["induction"], [], []]


def test_local_is_said_only_where_nothing_more_exact_is() -> None:
    numbers = {("local", "mean"): [0.95, 0.95, 0.7], ("previous", "mean"): [0.9, 0.1, 0.1]}
    assert names(numbers | {("local", "uniform"): [0.3, 0.3, 0.3]}) == [["previous token"], ["local"], []]


def test_previous_token_head_of_minilm_has_both_numbers() -> None:
    result = HeadsResult.of("first", heads_parquet())
    (label,) = labels.of(result)[2]
    assert label.name == "previous token"
    assert label.value == pytest.approx(result.column("previous", "mean")[2])
    assert label.null_value == pytest.approx(result.column("previous", "uniform")[2])
    control = result.column("previous", "shuffled_mean")[2]
    assert re.fullmatch(
        rf"previous token: 0\.99\d* of the weight over the texts, {control:.3f}\d* on shuffled words, [\d.]+ under uniform attention",
        label.sentence,
    )


@pytest.mark.parametrize("family", ["GPT-2", "BERT"])
def test_random_weights_have_no_label(family: str, tiny: TinyModels, tmp_path: Path) -> None:
    texts = tuple(
        f"{text} ." for text in ("the owl asked the moon and the moon blinked", "keys and queries meet the owl")
    )
    plan, _ = scan.make_plan(LIBRARY.get(str(tiny(family))), texts)
    scan.scan(plan, texts, str(tmp_path))
    scan.merge(str(tmp_path))
    assert not any(labels.of(HeadsResult.open(tmp_path)))
