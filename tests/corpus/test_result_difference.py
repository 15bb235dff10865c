"""Two results: the change of each head with its standard error, and what differs between the runs in words."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from margins import approx
from test_corpus import TEXTS, run
from tiny_models import TinyModels

from attention import MissingError
from attention.corpus.labels import HeadChanges, describe
from attention.corpus.result import HeadsResult


@pytest.fixture(scope="module")
def folders(tiny: TinyModels, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Results of two models, and of one model on other texts."""
    root = tmp_path_factory.mktemp("results")
    run(tiny("GPT-2"), root / "a")
    run(tiny("OPT"), root / "b")
    run(tiny("GPT-2"), root / "other texts", TEXTS[:1], controls=())
    return {name: root / name for name in ("a", "b", "other texts")}


def test_change_and_standard_error_follow_their_formulas(folders: dict[str, Path]) -> None:
    rows = [pq.read_table(folders[name] / "heads.parquet").to_pylist() for name in ("a", "b")]
    results = [HeadsResult.open(folders[name]) for name in ("a", "b")]
    assert describe(*results) == "The models differ: GPT-2 and OPT."
    for a, b in zip(*rows, strict=True):
        changes = HeadChanges.of(*results, a["metric"])
        place = changes.heads.index((a["layer"], a["head"]))
        if a["mean"] is None or b["mean"] is None:
            assert np.isnan(changes.change[place])
            continue
        assert changes.change[place] == b["mean"] - a["mean"]
        if a["sd"] and b["sd"]:
            error = (a["sd"] ** 2 / a["count"] + b["sd"] ** 2 / b["count"]) ** 0.5
            assert changes.error[place] == approx(error)
            assert changes.in_errors[place] == approx((b["mean"] - a["mean"]) / error)
    changes = HeadChanges.of(*results, "local")
    ranked = np.abs(changes.change[changes.order])
    assert list(ranked) == sorted(ranked, reverse=True)
    frame = changes.frame(("base", "tuned"))
    assert frame["change"].tolist() == changes.change[changes.order].tolist()
    assert frame["mean, tuned"][0] - frame["mean, base"][0] == frame["change"][0]


def test_same_result_has_no_change(folders: dict[str, Path]) -> None:
    a = HeadsResult.open(folders["a"])
    same = HeadsResult.open(folders["a"] / "heads.parquet")
    assert describe(a, same) == ""
    changes = HeadChanges.of(a, same, "local")
    assert not changes.change.any()
    assert not changes.in_errors.any()


def test_one_text_has_no_spread_and_other_texts_are_named(folders: dict[str, Path]) -> None:
    results = HeadsResult.open(folders["a"]), HeadsResult.open(folders["other texts"])
    words, changes = describe(*results), HeadChanges.of(*results, "local")
    assert "The texts differ, 7 and 1" in words
    assert "The controls differ." in words
    assert np.isnan(changes.error).all()
    assert np.isnan(changes.in_errors).all()
    assert not np.isnan(changes.change).any()


def test_heads_and_metrics_of_one_result_are_left_out(folders: dict[str, Path]) -> None:
    a = HeadsResult.open(folders["a"])
    fewer = HeadsResult.of("fewer", without_last_layer(folders["b"] / "heads.parquet"))
    assert "4 heads that one result does not have are left out." in describe(a, fewer)
    assert HeadChanges.of(a, fewer, "self").heads == tuple(head for head in a.heads if head[0] == 0)
    elsewhere = HeadsResult.of("x", without_last_layer(folders["b"] / "heads.parquet", layer=7))
    assert HeadChanges.of(a, elsewhere, "self").heads == ()
    with pytest.raises(MissingError, match="has the metrics"):
        HeadChanges.of(a, fewer, "no metric")


def without_last_layer(path: Path, layer: int = 0) -> bytes:
    """The table of the first layer alone, under this number."""
    table = pq.read_table(path)
    metadata = table.schema.metadata
    info = json.loads(metadata[b"attention_lab"])
    kept = table.filter(pa.compute.equal(table["layer"], 0))
    kept = kept.set_column(0, "layer", pa.array([layer] * len(kept), pa.int32()))
    info |= {"layers": [layer], "heads": info["heads"][:1]}
    sink = pa.BufferOutputStream()
    kept = kept.replace_schema_metadata({**metadata, b"attention_lab": json.dumps(info)})
    pq.write_table(kept, sink, compression="zstd")
    return sink.getvalue().to_pybytes()
