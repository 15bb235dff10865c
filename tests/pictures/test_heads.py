"""All heads of all layers: the mosaic, the chart of their metrics, the derived maps, and the page that shows them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
import torch
from conftest import ROOT, unpack_message
from margins import approx
from streamlit.testing.v1 import AppTest

from attention import AttentionConfig, Cell, Layer, MissingError, Trace, TypedText, metrics
from attention.explanation.derived import NORMS
from attention.metrics import aggregates
from attention.metrics import table as frames
from attention.pictures import charts, heatmap
from attention.pictures.heatmap import derived_map_json
from attention.pictures.mosaic import SCREEN_CELLS, HeadOrder, layers_json

TEXT = "the owl asked the moon and the moon blinked at the owl"


def trace(n_layers: int = 3, text: str = TEXT, **knobs: object) -> Trace:
    """A trace with layers of several seeds, whose heads are computed singly like those of a long text or a model."""
    config = {"n_heads": 4, "mask": "causal", **knobs}
    base = [TypedText(text, AttentionConfig(seed=seed, **config)).trace().layers[0] for seed in range(n_layers)]
    return Trace(
        base[0].tokens,
        tuple(
            Layer("", layer.tokens, layer.key_tokens, layer.recorded, layer.formula, materialize_all_heads=False)
            for layer in base
        ),
    )


@pytest.mark.quick
@pytest.mark.parametrize("step", ["weights", "masked_scores", "value", "output"])
def test_mosaic_places_every_head_and_a_click_finds_it(step: str) -> None:
    sample = trace()
    figure = layers_json(sample, step, Cell(1, "weights", 2, 0, 0))
    meta, numbers = figure["layout"]["meta"], figure["data"][0]["z"]
    assert len(meta["panels"]) == (12 if step != "output" else 3)
    for panel in meta["panels"]:
        part = numbers[panel["y"] : panel["y"] + panel["rows"], panel["x"] : panel["x"] + panel["columns"]]
        matrix = sample.layers[panel["layer"]].matrix(step, panel["head"]).numpy()
        mask = sample.layers[panel["layer"]].mask
        hidden = ~mask.numpy() if mask is not None and step in ("weights", "masked_scores") else False
        np.testing.assert_array_equal(part, np.where(hidden, np.nan, matrix))
        cell = heatmap.cell_at(figure, panel["x"] + 1, panel["y"] + 3)
        assert cell == Cell(panel["layer"], step, panel["head"], 3, 1)
    layers = "yaxis" if step != "output" else "xaxis"  # one matrix a layer: the layers stand side by side
    assert figure["layout"][layers]["ticktext"] == ["L0", "L1", "L2"]
    if step != "output":
        assert figure["layout"]["xaxis"]["ticktext"] == ["H0", "H1", "H2", "H3"]
        (frame,) = figure["layout"]["shapes"]
        assert (frame["x0"] + 0.5, frame["y0"] + 0.5) == next((p["x"], p["y"]) for p in meta["panels"] if (p["layer"], p["head"]) == (1, 2))  # fmt: skip
    if step == "weights":
        assert all(
            "causal" in layer.formula.mask.kind for layer in sample.layers if layer.formula and layer.formula.mask
        )
        assert numbers.dtype == np.float32
        assert "3 layers, 12 heads · 12 × 12" in figure["layout"]["title"]["subtitle"]["text"]
        assert meta["alt"].startswith(
            "Heatmaps of weights (A = softmax of M over key_pos, 3 layers, 12 heads, 12 × 12)"
        )


@pytest.mark.quick
def test_sorted_mosaic_begins_with_the_largest_head_and_labels_blocks() -> None:
    sample = trace()
    order = metrics.of(sample).sorted_by("first token")
    figure = layers_json(
        sample, "weights", cells=500, order=HeadOrder(dict.fromkeys(order, 0.5), "first token, on this text")
    )
    panels = figure["layout"]["meta"]["panels"]
    places = sorted(panels, key=lambda panel: (panel["y"], panel["x"]))
    assert [(place["layer"], place["head"]) for place in places] == list(order)
    assert {note["text"].partition("<br>")[0] for note in figure["layout"]["annotations"]} == {
        f"L{i} H{h}" for i in range(3) for h in range(4)
    }
    subtitle = figure["layout"]["title"]["subtitle"]["text"]
    assert "each cell the largest of 2 × 2 · sorted by first token, on this text, the largest first" in subtitle
    first = places[0]
    cell = heatmap.cell_at(figure, first["x"], first["y"] + 1)
    assert cell is not None
    matrix = sample.layers[cell.layer].matrix("weights", cell.head)
    assert float(matrix[cell.row, cell.column]) == float(matrix[2:4, 0:2].max())


@pytest.mark.quick
def test_values_under_tiles_are_those_of_the_metric() -> None:
    sample = trace()
    table = metrics.of(sample)
    for name in ("first token", "distance", "next"):  # the last is not defined under a causal mask
        order = table.sorted_by(name)
        values = dict(zip(table.heads, table.column(name).tolist(), strict=True))
        by_value = HeadOrder({head: values[head] for head in order}, name)
        layout = layers_json(sample, "weights", order=by_value)["layout"]
        for label, panel in zip(layout["annotations"], layout["meta"]["panels"], strict=True):
            words, value = re.fullmatch(r"(.+)<br><b>(.+)</b>", label["text"]).groups()
            head = panel["layer"], panel["head"]
            assert words == "L{} H{}".format(*head)
            assert value == ("–" if np.isnan(values[head]) else f"{values[head]:.2f}")
            assert label["font"]["size"] == 12
            assert (label["x"] + 0.5, label["y"] + 0.5) == (panel["x"], panel["y"] + panel["rows"])  # under its tile
        if name != "next":
            assert values[order[0]] == table.column(name).max()


@pytest.mark.quick
@pytest.mark.parametrize(("n_layers", "n_heads"), [(30, 9), (12, 12), (6, 12), (2, 1)])
@pytest.mark.parametrize("text", [TEXT, "a b", "a"])
def test_square_tiles_of_all_heads_fit_on_one_screen(n_layers: int, n_heads: int, text: str) -> None:
    (layer,) = TypedText(text, AttentionConfig(n_heads=n_heads, d_model=4 * n_heads)).trace().layers
    sample = Trace(layer.tokens, (layer,) * n_layers)
    heads = [(i, head) for i in range(n_layers) for head in range(n_heads)]
    for order in (None, HeadOrder(dict.fromkeys(heads, 0.5), "")):
        layout = layers_json(sample, "weights", cells=SCREEN_CELLS, order=order)["layout"]
        panels, margin = layout["meta"]["panels"], layout["margin"]
        assert sorted((panel["layer"], panel["head"]) for panel in panels) == heads
        down, across = (abs(axis["range"][0] - axis["range"][1]) for axis in (layout["yaxis"], layout["xaxis"]))
        row = (layout["height"] - margin["t"] - margin["b"]) / down
        column = (900 - margin["l"] - margin["r"]) / across
        assert row / column == approx(
            layout["yaxis"]["scaleratio"], within=0.02, why="the width of a page is not that of the figure"
        )  # a tile is square
        if len(layer.tokens) > 1:  # a gap is a cell at least
            assert layout["height"] < 720 - 195
    if n_layers > n_heads:
        assert layers_json(sample, "weights")["layout"]["xaxis"]["ticktext"] == [f"L{i}" for i in range(n_layers)]


@pytest.mark.quick
def test_layers_may_differ_in_tokens_heads_and_names() -> None:
    longer, shorter = TypedText("a b c d", AttentionConfig(n_heads=4)), TypedText("x y", AttentionConfig(n_heads=2))
    cross = TypedText("x y", AttentionConfig(n_heads=2), text2="a b c d")
    named = [
        Layer(name, layer.tokens, layer.key_tokens, layer.recorded, layer.formula)
        for name, layer in zip(
            ("encoder 0", "decoder 0", "cross 0"), (s.trace().layers[0] for s in (longer, shorter, cross)), strict=True
        )
    ]
    sample = Trace(named[0].tokens, (*named, Layer("mlp", ("a",), recorded={"input": torch.ones(1, 2)})))
    figure = layers_json(sample, "weights")
    meta = figure["layout"]["meta"]
    assert [(p["layer"], p["head"], p["rows"], p["columns"]) for p in meta["panels"]] == [
        *((0, head, 4, 4) for head in range(4)), *((1, head, 2, 2) for head in range(2)), *((2, head, 2, 4) for head in range(2)),
    ]  # fmt: skip
    assert figure["layout"]["yaxis"]["ticktext"] == ["L0 encoder 0", "L1 decoder 0", "L2 cross 0"]
    assert meta["rows"] == meta["columns"] == {"labelalias": {}}  # a position is a different token in each layer
    with pytest.raises(MissingError, match="no layer of this source has position"):
        layers_json(sample, "position")


@pytest.mark.quick
def test_heads_are_points_beside_the_line_of_uniform_attention() -> None:
    sample = trace()
    table = metrics.of(sample)
    figure = charts.head_scatter_json(table, "layer", "first token", (1, 2))
    line, points, ring = figure["data"]
    assert points["text"] == [f"L{layer} H{head}" for layer, head in table.heads]
    np.testing.assert_array_equal(points["y"], table.column("first token"))
    assert np.round(points["x"]).tolist() == [layer for layer, _ in table.heads]
    assert line["y"][:2] == [table.uniform[0, [*metrics.all_metrics()].index("first token")]] * 2
    assert (ring["x"][0], ring["y"][0]) == (points["x"][6], points["y"][6])
    points_of_two = charts.head_scatter_json(table, "previous", "self")["data"][1]
    np.testing.assert_array_equal(points_of_two["x"], table.column("previous"))
    empty = charts.head_scatter_json(table, "next", "self")
    assert "0 heads, 12 without a number" in empty["layout"]["title"]["subtitle"]["text"]


@pytest.mark.quick
@pytest.mark.parametrize("reading", [*aggregates.AGGREGATES, NORMS], ids=lambda derived: derived.name)
def test_derived_map_is_drawn_like_any_other_map(reading: Any) -> None:
    sample = trace()
    figure = derived_map_json(sample, reading, Cell(1, "weights", 2, 5, 3))
    np.testing.assert_array_equal(figure["data"][0]["z"], reading.matrix(sample, 1, 2))
    meta = figure["layout"]["meta"]
    assert meta["chosen"] == [5, 3]
    assert reading.step.formula in figure["layout"]["title"]["subtitle"]["text"]
    assert "every number hidden" not in meta["alt"]


@pytest.mark.quick
def test_head_tables_name_the_text_and_the_count_of_queries() -> None:
    sample = trace()
    table = metrics.of(sample)
    frame = frames.frame(sample, table, table.sorted_by("self"), "self", counts=True)
    first = ["layer", "head", "self, on this text", "self, queries", "entropy, on this text", "entropy, queries"]
    assert list(frame.columns[:6]) == first
    assert frame["self, on this text"].is_monotonic_decreasing
    assert frame["next, on this text"].isna().all()
    layer, head = table.sorted_by("self")[2]
    assert frames.rank_words(table, layer, head, "self") == "3rd of 12 by self, on this text"
    text = frames.describe_head(table, layer, head, "self")
    assert text.startswith(f"L{layer} H{head}, 3rd of 12 by self, on this text: entropy 0.")
    assert "next not defined" in text
    assert "(11)" in text
    about = frames.describe_metric(metrics.find("previous"), table)
    assert "a_i,i−1; 0 … 1; a mean over 11 queries of this text" in about
    assert "not defined on this text" in frames.describe_metric(metrics.find("next"), table)
    assert [frames._ordinal(n) for n in (1, 2, 3, 4, 11, 22, 113)] == ["1st", "2nd", "3rd", "4th", "11th", "22nd", "113th"]  # fmt: skip


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives every typed text three layers, like a model."""
    original = TypedText.trace

    def three_layers(source: TypedText) -> Trace:
        from dataclasses import replace

        base = original(source)
        seeds = [replace(source, config=replace(source.config, seed=seed)) for seed in range(3)]
        return replace(base, layers=tuple(original(seed).layers[0] for seed in seeds))

    monkeypatch.setattr(TypedText, "trace", three_layers)


def opened(**link: str) -> AppTest:
    app = AppTest.from_file(str(ROOT / "pages" / "heads.py"), default_timeout=60)
    for key, value in link.items():
        app.query_params[key] = value
    app.run()
    assert not app.exception
    return app


def metas(app: AppTest) -> list[dict[str, Any]]:
    messages = [
        unpack_message(component.proto.bytes)
        for component in app.get("bidi_component")
        if b'"figures":' in component.proto.bytes
    ]
    return [figure["layout"]["meta"] for message in messages for figure in message["figures"]]


@pytest.mark.usefixtures("model")
def test_heads_page_shows_all_layers_metrics_and_the_requested_aggregate() -> None:
    app = opened(text="a b a c a b", heads_sort="self", aggregate="rollout", layer="2", head="1", q="3", k="1")
    mosaic, chart, rollout = metas(app)
    assert len(mosaic["panels"]) == 12
    assert "sorted by self, on this text" in str(mosaic["alt"])
    assert "entropy against layer" in str(chart["alt"])
    assert (rollout["step"], rollout["chosen"]) == ("rollout", [3, 1])
    table, similar, numbers = (dataframe.value for dataframe in app.dataframe[:3])
    assert len(table) == 12
    assert table["self, on this text"].is_monotonic_decreasing
    assert len(similar) == 8
    assert similar["distance, on this text"].is_monotonic_increasing
    assert numbers["Σ row"].to_numpy() == approx(1)
    captions = " ".join(caption.value for caption in app.caption)
    assert "12 by self, on this text: entropy" in captions
    assert "Abnar and Zuidema 2020" in captions
    single = opened(text="a b a c a b", heads_layers="one layer", layer="1")
    assert len(metas(single)[0]["panels"]) == 4
    assert "rollout" not in [meta["step"] for meta in metas(single)]  # not requested


@pytest.mark.usefixtures("model")
def test_heads_are_sorted_by_buttons_for_the_metrics_that_declare_one() -> None:
    app = opened(text="a b a c a b", heads_sort="induction")
    messages = [
        unpack_message(each.proto.bytes) for each in app.get("bidi_component") if b'"figures":' in each.proto.bytes
    ]
    (sort,) = (control for message in messages for control in message["controls"] if control["name"] == "heads_sort")
    declared = sorted((each.chip, each.name) for each in metrics.all_metrics().values() if each.chip)
    assert sort["buttons"] == [charts.UNSORTED, *(name for _, name in declared)]
    assert sort["buttons"][1:] == ["induction", "previous", "first token", "duplicate token"]
    assert sort["option_names"] == {name: words for (_, words), name in declared}
    assert set(sort["options"]) == {charts.UNSORTED, *metrics.names_of(trace())}
    assert (sort["value"], sort["more"]) == ("induction", "all metrics")


@pytest.mark.usefixtures("model")
def test_slow_metrics_wait_for_a_click(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pages.ui.page.heads_panels.METRIC_SECONDS", 0)
    app = opened(text="e f g h e f", heads_sort="previous")
    assert "sorted" not in str(metas(app)[0]["alt"])
    assert not app.dataframe
    (ask, *_) = (button for button in app.button if button.label.startswith("Compute the metrics of 12 heads"))
    ask.click().run()
    assert "sorted by previous" in str(metas(app)[0]["alt"])
    assert len(app.dataframe[0].value) == 12
