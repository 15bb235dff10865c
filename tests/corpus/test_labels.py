"""Labels of heads: both numbers must be clear; random models get none, and MiniLM those that are known."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
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


def result(model: str, folder: Path, **options: Any) -> Table:
    plan, _ = scan.make_plan(LIBRARY.get(model), TEXTS, top=1, **options)
    scan.scan(plan, TEXTS, str(folder))
    scan.merge(str(folder))
    return Table(folder)


@pytest.mark.parametrize("family", ["GPT-2", "BERT", "Llama"])
def test_random_models_get_no_label(family: str, tiny: TinyModels, tmp_path: Path) -> None:
    table = result(str(tiny(family)), tmp_path, max_tokens=32)
    assert labels.of(table) == ((),) * len(table.heads)


def test_label_needs_its_control_and_enough_texts(tiny: TinyModels, tmp_path: Path) -> None:
    table = result(str(tiny("GPT-2")), tmp_path, max_tokens=32)
    (row,) = [row for row in table.rows if (row["layer"], row["head"], row["metric"]) == (0, 1, "distant induction")]
    row |= {"mean": 0.9, "uniform": 0.1, "random_mean": 0.8, "count": 5}
    (found,) = labels.of(table)[1]
    assert found.sentence == "induction: 0.90 of the weight on texts, 0.80 on random tokens that repeat, 0.10 by chance"
    for change in ({"random_mean": 0.1}, {"random_mean": None}, {"uniform": 0.895}, {"count": 4}):
        before = {name: row[name] for name in change}
        row |= change
        assert labels.of(table)[1] == (), change
        row |= before


def test_run_without_controls_gives_no_label(tiny: TinyModels, tmp_path: Path) -> None:
    table = result(str(tiny("GPT-2")), tmp_path, max_tokens=32, controls=())
    assert labels.of(table) == ((),) * len(table.heads)
    assert "too few texts" in Chance.of(table, "previous", 0).sentence


def test_chance_is_the_paired_difference_with_its_error(tiny: TinyModels, tmp_path: Path) -> None:
    table = result(str(tiny("GPT-2")), tmp_path, max_tokens=32)
    chance = Chance.of(table, "local", 2)
    assert chance.texts == len(TEXTS)
    assert chance.difference == pytest.approx(chance.value - chance.shuffled)
    (row,) = [row for row in table.rows if (row["layer"], row["head"], row["metric"]) == (0, 2, "local")]
    assert chance.standard_error == pytest.approx(row["difference_sd"] / len(TEXTS) ** 0.5)
    assert row["difference_sd"] < row["sd"] + row["shuffled_sd"]
    assert "standard errors over 6 texts" in chance.sentence


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
