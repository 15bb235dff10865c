"""Labels of heads: both numbers must be clear; random models get none, and MiniLM those that are known."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from margins import approx
from tiny_models import TinyModels

from attention.corpus import labels, scan
from attention.corpus.labels import Chance
from attention.models.library import LIBRARY

TEXTS = (
    "The owl asked the moon why nights are so dark, and the moon blinked twice before it answered.",
    "Three letters lay in the drawer, and nobody knew who had written them or when they had come.",
    "A painter bought a ladder, a bucket and a brush, but the wall that she wanted to paint was gone.",
    "When the train stopped, the children counted the wagons; there were nine, and one was painted green.",
    "Water boils sooner on a mountain than at the sea, because the air above it is thinner there.",
    "He sold his bicycle to a neighbour, who sold it to a baker, who rides it every morning to the mill.",
)


class Table:
    """A result read with pyarrow, as `HeadsResult` gives it."""

    def __init__(self, folder: Path) -> None:
        self.rows: list[dict[str, Any]] = pq.read_table(folder / "heads.parquet").to_pylist()

    @cached_property
    def heads(self) -> tuple[tuple[int, int], ...]:
        return tuple(dict.fromkeys((row["layer"], row["head"]) for row in self.rows))

    def column(self, metric: str, name: str) -> np.ndarray[Any, Any]:
        return np.array([row[name] for row in self.rows if row["metric"] == metric], np.float64)


def result(model: str, folder: Path, texts: tuple[str, ...] = TEXTS, **options: Any) -> Table:
    plan, _ = scan.make_plan(LIBRARY.get(model), texts, top=1, **options)
    scan.scan(plan, texts, str(folder))
    scan.merge(str(folder))
    return Table(folder)


@pytest.mark.sample(2)
@pytest.mark.parametrize("family", ["GPT-2", "BERT", "Llama"])
def test_random_models_get_no_label(family: str, tiny: TinyModels, tmp_path: Path) -> None:
    table = result(str(tiny(family)), tmp_path, max_tokens=32)
    assert labels.of(table) == ((),) * len(table.heads)


def set_head(table: Table, head: int, metric: str, **numbers: float | None) -> dict[str, Any]:
    """Changes the numbers of a head of a table; its row."""
    (row,) = [row for row in table.rows if (row["layer"], row["head"], row["metric"]) == (*table.heads[head], metric)]
    row |= numbers
    return row


def test_induction_is_labelled_by_repeated_random_tokens(tiny: TinyModels, tmp_path: Path) -> None:
    """A small value on texts is enough where random tokens that repeat are clear, unless it is below the null."""
    table = result(str(tiny("GPT-2")), tmp_path, max_tokens=32)
    numbers = {"mean": 0.03, "excess_mean": 0.02, "uniform": 0.08, "random_mean": 0.9, "count": 5}
    row = set_head(table, 1, "distant induction", **numbers)
    ((found,),) = labels.of(table)[1:2]
    typical = np.median(table.column("distant induction", "random_mean"))
    assert found.sentence == (
        f"induction: 0.90 on random repeated tokens ({typical:.2f} in the median head), 0.03 on texts, 0.01 if only distances counted"
    )
    for change in ({"random_mean": 0.4}, {"random_mean": None}, {"excess_mean": -0.01}, {"count": 4}):
        before = {name: row[name] for name in change}
        row |= change
        assert labels.of(table)[1] == (), change
        row |= before
    row |= {"excess_mean": None}  # a file of an earlier version
    assert labels.of(table)[1][0].sentence.endswith("0.03 on texts")


def test_label_of_most_heads_goes_to_those_that_stand_out(tiny: TinyModels, tmp_path: Path) -> None:
    table = result(str(tiny("GPT-2")), tmp_path, max_tokens=32)
    for head, value in enumerate((0.6, 0.6, 0.65, 0.7, 0.7, 0.75, 0.8, 0.95)):
        set_head(table, head, "first token", mean=value, shuffled_mean=value, uniform=0.1, count=6)
    assert [[label.name for label in of_head] for of_head in labels.of(table)] == [[]] * 7 + [["first token"]]
    for head in range(7):
        set_head(table, head, "first token", mean=0.1)
    set_head(
        table, 0, "first token", mean=0.6
    )  # few have it, so half of what is left above uniform attention is enough
    assert [bool(of_head) for of_head in labels.of(table)] == [True, *[False] * 6, True]


def test_run_without_controls_gives_no_label(tiny: TinyModels, tmp_path: Path) -> None:
    table = result(str(tiny("GPT-2")), tmp_path, max_tokens=32, controls=())
    assert labels.of(table) == ((),) * len(table.heads)
    assert "shuffled" not in Chance.of(table, "previous", 0).sentence


def test_chance_is_the_paired_difference_from_its_null(tiny: TinyModels, tmp_path: Path) -> None:
    table = result(str(tiny("GPT-2")), tmp_path, max_tokens=32)
    chance = Chance.of(table, "local", 2)
    assert (chance.texts, chance.null, chance.control) == (len(TEXTS), "uniform attention", "shuffled")
    assert chance.difference == approx(chance.value - chance.uniform, scale=1)
    row = set_head(table, 2, "local")
    assert chance.standard_error == approx(row["excess_sd"] / len(TEXTS) ** 0.5)


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("mean", "excess", "answer"),
    [
        (0.5, 0.3, "Yes: 0.50 on texts, 0.20 if only distances counted; 0.300 ± 0.010 more over 100 texts, 28.0 standard errors"),
        (0.21, 0.01, "No: 0.21 on texts, 0.20 if only distances counted; 0.010 ± 0.010 more over 100 texts, which is within a tenth"),
        (0.24, 0.04, "Not clear: 0.24 on texts, 0.20 if only distances counted; 0.040 ± 0.010 more over 100 texts, 2.0 standard errors"),
        (0.1, -0.1, "No, less: 0.10 on texts, 0.20 if only distances counted; 0.100 ± 0.010 less over 100 texts, 8.0 standard errors"),
    ],
)  # fmt: skip
def test_sentence_answers_whether_it_is_chance(
    mean: float, excess: float, answer: str, tiny: TinyModels, tmp_path: Path
) -> None:
    table = result(str(tiny("GPT-2")), tmp_path, max_tokens=32)
    numbers = {"mean": mean, "excess_mean": excess, "excess_sd": 0.1, "excess_count": 100, "random_mean": 0.75}
    set_head(table, 1, "induction", **numbers)
    chance = Chance.of(table, "induction", 1)
    assert chance.sentence.startswith(answer)
    assert chance.sentence.endswith("0.75 on random repeated tokens (the positive control).")
    assert chance.is_more is answer.startswith("Yes")
    set_head(table, 1, "induction", excess_count=1)
    assert Chance.of(table, "induction", 1).is_more is None
    assert "Unknown, too few texts" in Chance.of(table, "induction", 1).sentence


def test_null_of_unknown_metrics_is_none() -> None:
    assert labels.declared("from any to") == ("", "")
    assert labels.declared('from "a" to "b"') == ("its own distances", "")


def test_minilm_has_the_heads_that_are_known(tmp_path: Path) -> None:
    table = result("all-MiniLM-L6-v2", tmp_path)
    found = dict(zip(table.heads, labels.of(table), strict=True))
    names = {head: tuple(label.name for label in of_head) for head, of_head in found.items() if of_head}
    assert names[0, 2] == ("previous token",)  # and not induction, by which it leads
    assert names[1, 8] == ("position",)
    assert found[1, 8][0].metric == "offset +1"
    assert names[4, 5] == ("first token",)
    assert not any("induction" in of_head for of_head in names.values())
    assert len(names) < len(table.heads) / 3


def test_rule_of_word_order_is_no_more_than_chance(tmp_path: Path) -> None:
    """MiniLM's L1 H8 looks at the next token, whatever it is; L2 H9 at other occurrences of the word."""
    texts = tuple(
        f"{text} It is {text.split()[1]} that says so, and this was {text.split()[-2]}." for text in TEXTS * 2
    )
    order, words = "from [it, this, that] to /s$/", "from any to same word"
    table = result("all-MiniLM-L6-v2", tmp_path, texts, finds=(order, words, "from any to offset 1"))
    place = {head: index for index, head in enumerate(table.heads)}
    for rule in (order, "from any to offset 1"):
        chance = Chance.of(table, rule, place[1, 8])
        assert chance.value > 2 * chance.uniform
        assert not chance.is_more
    assert Chance.of(table, words, place[2, 9]).is_more
