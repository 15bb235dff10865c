"""Find rules in a run over many texts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from margins import approx
from test_followed import (
    TEXT,
    make,
)
from tiny_models import TinyModels

from attention import ConfigError, Model
from attention.corpus import scan
from attention.corpus.chunk import text_sites
from attention.metrics import FindRule, find_heads
from attention.models.library import LIBRARY
from attention.models.loaded import LoadedModel


def test_finds_of_a_run_are_those_of_single_texts(tiny: TinyModels, tmp_path: Path) -> None:
    texts = ("the owl asked the moon and the moon blinked", "the cat", "she sells, sea shells. The sea") * 2
    loaded = LIBRARY.get(str(tiny("BERT")))
    written = ("FROM 'moon' to [ the ]", "from any to same word", "from any to same  word")
    plan, _ = scan.make_plan(loaded, texts, chunk_size=4, finds=written)
    assert plan.finds == ('from "moon" to "the"', "from any to same word")
    scan.scan(plan, texts, str(tmp_path))
    info = scan.merge(str(tmp_path))
    assert tuple(info["metrics"][-2:]) == plan.finds
    traces = [Model(str(tiny("BERT")), text).trace() for text in texts]
    rows = [row for row in pq.read_table(tmp_path / "heads.parquet").to_pylist() if row["metric"] in plan.finds]
    assert len(rows) == 2 * sum(info["heads"])
    for row in rows:
        found = [
            next(
                each
                for each in find_heads(trace, FindRule.parse(row["metric"]))
                if each[:2] == (row["layer"], row["head"])
            )
            for trace in traces
        ]
        defined = [each for each in found if each.queries]
        assert row["count"] == len(defined) > 0
        assert row["mean"] == approx(np.mean([each.value for each in defined]))
        assert row["uniform"] == approx(np.mean([each.uniform for each in defined]))
        assert row["queries"] == sum(each.queries for each in defined)
        of_queries = sum(each.value * each.queries for each in defined) / row["queries"]
        assert row["query_mean"] == approx(of_queries)
        assert row["difference_mean"] == approx(row["mean"] - row["shuffled_mean"])
        example = row["top"][0]
        best = found[example["number"]]
        assert (example["query"], example["key"]) == (best.query, best.key)


def test_run_refuses_bad_and_many_rules(tiny: TinyModels) -> None:
    loaded = LIBRARY.get(str(tiny("BERT")))
    with pytest.raises(ConfigError, match="A find rule needs"):
        scan.make_plan(loaded, ("a b",), finds=("x",))
    with pytest.raises(ConfigError, match="at most 16 find rules"):
        scan.make_plan(loaded, ("a b",), finds=tuple(f'from "{i}" to any' for i in range(17)))


def test_runs_over_many_texts_have_the_same_heads(tokenizer: Any) -> None:
    for family, layers in (("Funnel", [0, 2]), ("SqueezeBert", [0, 1]), ("Longformer", [0, 1])):
        loaded: LoadedModel = Model.of(make(family), tokenizer, TEXT).load()
        assert [(site.layer, site.n_heads) for site in text_sites(loaded)] == [(layer, 4) for layer in layers]
