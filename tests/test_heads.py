"""All heads of all layers: the mosaic, the chart of their metrics, the readings as maps, and the page that shows them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT, unpacked
from streamlit.testing.v1 import AppTest

from attention import AttentionConfig, Cell, Layer, MissingError, Trace, TypedText, metrics
from attention.export import paper
from attention.numbers import aggregates, norms
from attention.numbers.metrics import frames
from attention.pictures import charts, heatmap, layers
from attention.pictures.changed import drawn
from attention.pictures.read_off import reading_json

TEXT = "the owl asked the moon and the moon blinked at the owl"


def trace(many: int = 3, text: str = TEXT, **knobs: object) -> Trace:
    """Layers of several seeds, made head by head as those of a long text or of a model are."""
    config = {"n_heads": 4, "mask": "causal", **knobs}
    made = [TypedText(text, AttentionConfig(seed=seed, **config)).trace().layers[0] for seed in range(many)]
    return Trace(
        made[0].tokens,
        tuple(Layer("", one.tokens, one.key_tokens, one.recorded, one.formula, whole=False) for one in made),
    )


@pytest.mark.parametrize("step", ["weights", "masked_scores", "value", "output"])
def test_every_head_stands_in_its_row_and_column_and_a_click_finds_it(step: str) -> None:
    made = trace()
    figure = layers.layers_json(made, step, Cell(1, "weights", 2, 0, 0))
    meta, numbers = figure["layout"]["meta"], figure["data"][0]["z"]
    assert len(meta["panels"]) == (12 if step != "output" else 3)
    for panel in meta["panels"]:
        part = numbers[panel["y"] : panel["y"] + panel["rows"], panel["x"] : panel["x"] + panel["columns"]]
        own = made.layers[panel["layer"]].matrix(step, panel["head"]).numpy()
        np.testing.assert_array_equal(part, np.where(np.isfinite(own), own, np.nan))
        found = heatmap.cell_at(figure, panel["x"] + 1, panel["y"] + 3)
        assert found == Cell(panel["layer"], step, panel["head"], 3, 1)
    assert figure["layout"]["yaxis"]["ticktext"] == ["L0", "L1", "L2"]
    if step != "output":
        assert figure["layout"]["xaxis"]["ticktext"] == ["H0", "H1", "H2", "H3"]
        (frame,) = figure["layout"]["shapes"]
        assert (frame["x0"] + 0.5, frame["y0"] + 0.5) == next((p["x"], p["y"]) for p in meta["panels"] if (p["layer"], p["head"]) == (1, 2))  # fmt: skip
    if step == "weights":
        assert all("causal" in layer.formula.mask.kind for layer in made.layers if layer.formula and layer.formula.mask)
        assert numbers.dtype == np.float32
        assert "3 layers, 12 heads · 12 × 12" in figure["layout"]["title"]["subtitle"]["text"]
        assert meta["alt"].startswith(
            "Heatmaps of weights (A = softmax of M over key_pos, 3 layers, 12 heads, 12 × 12)"
        )


def test_a_sorted_mosaic_begins_with_the_head_that_has_most_and_blocks_say_so() -> None:
    made = trace()
    order = metrics.of(made).sorted_by("first token")
    figure = layers.layers_json(made, "weights", cells=500, order=order, by="first token, on this text")
    panels = figure["layout"]["meta"]["panels"]
    places = sorted(panels, key=lambda one: (one["y"], one["x"]))
    assert [(one["layer"], one["head"]) for one in places] == list(order)
    assert {note["text"] for note in figure["layout"]["annotations"]} == {
        f"L{i} H{h}" for i in range(3) for h in range(4)
    }
    told = figure["layout"]["title"]["subtitle"]["text"]
    assert "each cell the largest of 2 × 2 · sorted by first token, on this text, the largest first" in told
    first = places[0]
    found = heatmap.cell_at(figure, first["x"], first["y"] + 1)
    assert found is not None
    own = made.layers[found.layer].matrix("weights", found.head)
    assert float(own[found.row, found.column]) == float(own[2:4, 0:2].max())


def test_layers_may_differ_in_tokens_heads_and_names() -> None:
    one, two = TypedText("a b c d", AttentionConfig(n_heads=4)), TypedText("x y", AttentionConfig(n_heads=2))
    cross = TypedText("x y", AttentionConfig(n_heads=2), text2="a b c d")
    named = [
        Layer(name, layer.tokens, layer.key_tokens, layer.recorded, layer.formula)
        for name, layer in zip(
            ("encoder 0", "decoder 0", "cross 0"), (s.trace().layers[0] for s in (one, two, cross)), strict=True
        )
    ]
    made = Trace(named[0].tokens, (*named, Layer("mlp", ("a",), recorded={"input": torch.ones(1, 2)})))
    figure = layers.layers_json(made, "weights")
    meta = figure["layout"]["meta"]
    assert [(p["layer"], p["head"], p["rows"], p["columns"]) for p in meta["panels"]] == [
        *((0, head, 4, 4) for head in range(4)), *((1, head, 2, 2) for head in range(2)), *((2, head, 2, 4) for head in range(2)),
    ]  # fmt: skip
    assert figure["layout"]["yaxis"]["ticktext"] == ["L0 encoder 0", "L1 decoder 0", "L2 cross 0"]
    assert meta["rows"] == meta["columns"] == {"labelalias": {}}  # a place is not the same token in each of them
    with pytest.raises(MissingError, match="no layer of this source has position"):
        layers.layers_json(made, "position")


def test_heads_are_points_beside_the_line_of_uniform_attention() -> None:
    made = trace()
    table = metrics.of(made)
    figure = charts.heads_of(table, "layer", "first token", (1, 2))
    line, points, ring = figure["data"]
    assert points["text"] == [f"L{layer} H{head}" for layer, head in table.heads]
    np.testing.assert_array_equal(points["y"], table.column("first token"))
    assert np.round(points["x"]).tolist() == [layer for layer, _ in table.heads]
    assert line["y"][:2] == [table.uniform[0, metrics.NAMES.index("first token")]] * 2
    assert (ring["x"][0], ring["y"][0]) == (points["x"][6], points["y"][6])
    both = charts.heads_of(table, "previous", "self")["data"][1]
    np.testing.assert_array_equal(both["x"], table.column("previous"))
    empty = charts.heads_of(table, "next", "self")
    assert "0 heads, 12 without a number" in empty["layout"]["title"]["subtitle"]["text"]


@pytest.mark.parametrize("reading", [*aggregates.AGGREGATES, norms.NORMS], ids=lambda one: one.name)
def test_a_reading_is_a_map_like_any_other(reading: Any) -> None:
    made = trace()
    figure = reading_json(made, reading, Cell(1, "weights", 2, 5, 3))
    np.testing.assert_array_equal(figure["data"][0]["z"], reading.matrix(made, 1, 2))
    meta = figure["layout"]["meta"]
    assert meta["chosen"] == [5, 3]
    assert reading.step.formula in figure["layout"]["title"]["subtitle"]["text"]
    assert "every number hidden" not in meta["alt"]


def test_what_is_drawn_of_all_heads_is_saved_as_a_picture() -> None:
    made = trace()
    table = metrics.of(made)
    mosaic = layers.layers_json(made, "weights", order=table.sorted_by("self"), by="self")
    chart = charts.heads_of(table, "previous", "self", (0, 1))
    rollout = reading_json(made, aggregates.find("rollout"), Cell(2, "weights", 0, 0, 0))
    for figure, words in ((mosaic, ("L0 H0", "L2 H3")), (chart, ("previous", "L2")), (rollout, ("rollout", "owl"))):
        svg = paper.picture([drawn(figure)], "svg", 16.0, True).decode()
        assert all(word in svg for word in words)


def test_tables_say_on_this_text_and_how_many_queries_a_number_rests_on() -> None:
    made = trace()
    table = metrics.of(made)
    shown = frames.frame(made, table, table.sorted_by("self"), "self", counts=True)
    first = ["layer", "head", "self, on this text", "self, queries", "entropy, on this text", "entropy, queries"]
    assert list(shown.columns[:6]) == first
    assert shown["self, on this text"].is_monotonic_decreasing
    assert shown["next, on this text"].isna().all()
    layer, head = table.sorted_by("self")[2]
    assert frames.placed(table, layer, head, "self") == "3rd of 12 by self, on this text"
    said = frames.said(table, layer, head, "self")
    assert said.startswith(f"L{layer} H{head}, 3rd of 12 by self, on this text: entropy 0.")
    assert "next not defined" in said
    assert "(11)" in said
    about = frames.about(metrics.find("previous"), table)
    assert "a_i,i−1; 0 … 1; a mean over 11 queries of this text" in about
    assert "not defined on this text" in frames.about(metrics.find("next"), table)
    assert [frames._ordinal(n) for n in (1, 2, 3, 4, 11, 22, 113)] == ["1st", "2nd", "3rd", "4th", "11th", "22nd", "113th"]  # fmt: skip


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every typed text has three layers, as a model has."""
    one = TypedText.trace

    def several(source: TypedText) -> Trace:
        from dataclasses import replace

        base = one(source)
        seeds = [replace(source, config=replace(source.config, seed=seed)) for seed in range(3)]
        return replace(base, layers=tuple(one(seed).layers[0] for seed in seeds))

    monkeypatch.setattr(TypedText, "trace", several)


def opened(**link: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "heads.py"), default_timeout=60)
    for key, value in link.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception
    return app


def metas(app: AppTest) -> list[dict[str, Any]]:
    messages = [unpacked(one.proto.bytes) for one in app.get("bidi_component") if b'"figures":' in one.proto.bytes]
    return [figure["layout"]["meta"] for message in messages for figure in message["figures"]]


@pytest.mark.usefixtures("model")
def test_the_page_shows_all_layers_their_numbers_and_an_aggregate_that_was_asked_for() -> None:
    app = opened(text="a b a c a b", heads_sort="self", aggregate="rollout", layer="2", head="1", q="3", k="1")
    mosaic, chart, rollout = metas(app)
    assert len(mosaic["panels"]) == 12
    assert "sorted by self, on this text" in str(mosaic["alt"])
    assert "entropy against layer" in str(chart["alt"])
    assert (rollout["step"], rollout["chosen"]) == ("rollout", [3, 1])
    table, alike, numbers = (one.value for one in app.dataframe[:3])
    assert len(table) == 12
    assert table["self, on this text"].is_monotonic_decreasing
    assert len(alike) == 8
    assert alike["distance, on this text"].is_monotonic_increasing
    np.testing.assert_allclose(numbers["Σ row"], 1, atol=1e-6)
    captions = " ".join(one.value for one in app.caption)
    assert "12 by self, on this text: entropy" in captions
    assert "Abnar and Zuidema 2020" in captions
    single = opened(text="a b a c a b", heads_layers="one layer", layer="1")
    assert len(metas(single)[0]["panels"]) == 4
    assert "rollout" not in [meta["step"] for meta in metas(single)]  # nobody asked


@pytest.mark.usefixtures("model")
def test_numbers_that_take_long_wait_until_somebody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages.ui.head_numbers.METRIC_SECONDS", 0)
    app = opened(text="e f g h e f", heads_sort="previous")
    assert "sorted" not in str(metas(app)[0]["alt"])
    assert not app.dataframe
    (ask, *_) = (one for one in app.button if one.label.startswith("Compute the metrics of 12 heads"))
    ask.click().run()
    assert "sorted by previous" in str(metas(app)[0]["alt"])
    assert len(app.dataframe[0].value) == 12
