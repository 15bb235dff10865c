"""Weights over the lines of a series: cells at their steps, lines at their pixels, and the same from a saved file."""

from __future__ import annotations

from dataclasses import replace
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from margins import approx
from PIL import Image
from tiny_series import SMALL, SMALL_TIMESFM, WALK, model_of

from attention import File, Model
from attention.base.tokens import Patch
from attention.explanation import tables
from attention.media import medium_of
from attention.pictures.over_picture import MapLine, over_picture_json
from attention.series.drawing import SeriesPlace
from attention.series.examples import EXAMPLES, example_series
from attention.series.table import Series

LAYOUTS = {
    "overlap": ("PatchTSTForPrediction", SMALL, WALK),
    "odd overlap": ("PatchTSTModel", SMALL | {"patch_length": 8, "patch_stride": 5, "use_cls_token": True}, WALK),
    "side by side": ("PatchTSTModel", SMALL | {"patch_stride": 8}, WALK),
    "gaps": ("PatchTSTModel", SMALL | {"patch_length": 4, "patch_stride": 7}, WALK),
    "one step each": ("PatchTSTModel", SMALL | {"patch_length": 1, "patch_stride": 1}, WALK),
    "padding": ("TimesFmModelForPrediction", SMALL_TIMESFM, WALK[:20]),
    "many patches": ("PatchTSTModel", SMALL | {"context_length": 1200, "patch_length": 3, "patch_stride": 2, "num_input_channels": 1}, np.sin(np.arange(1200) / 40)),
}  # fmt: skip


def trace_of(layout: str) -> Any:
    name, values, series = LAYOUTS[layout]
    return Model.of(model_of(name, **values), series=series).trace()


def dark(rgb: np.ndarray) -> np.ndarray:
    """Where the line is, [row column]."""
    return rgb[..., 0] < 120


@pytest.mark.sample(1)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_boxes_lie_at_the_steps_of_their_patches_and_places_come_back_from_them(layout: str) -> None:
    trace = trace_of(layout)
    seen, medium = trace.pictures[0], medium_of("series")
    assert (seen.noun, seen.x.unit, seen.y.names) == ("series", "step", ("column 0", "column 1")[: seen.rows])
    per_step = seen.rgb.shape[1] / (seen.x.stop - seen.x.start)
    patches = [token for token in trace.layers[0].tokens if isinstance(token, Patch)]
    assert len(patches) == seen.rows * seen.columns
    for token in patches:
        left, top, right, bottom = token.box
        height, width = seen.patch_size
        assert (top, bottom) == (token.row * height, (token.row + 1) * height)
        assert left == token.column * width
        assert right <= seen.rgb.shape[1]
        start = seen.x.start + left / per_step
        stop = seen.x.start + right / per_step
        assert token.place.start == approx(max(0, start))
        assert token.place.stop == approx(stop)
        again = medium.place(seen, token)
        assert again == token.place
        assert isinstance(again, SeriesPlace)


def test_the_line_is_where_its_numbers_are() -> None:
    """A single jump of one column: low before its step, and high from it on, at the pixels of the axis."""
    jump, flat = np.zeros(40), np.linspace(0, 1, 40)
    jump[25:] = 1
    model = model_of("PatchTSTModel", **SMALL | {"patch_stride": 8})
    seen = Model.of(model, series=np.stack([jump, flat], 1)).trace().pictures[0]
    lines = dark(seen.rgb)
    height, per_step = seen.patch_size[0], seen.rgb.shape[1] / 32
    for step in (9, 20, 24, 25, 30, 38):
        column = round((step - seen.x.start + 0.5) * per_step)
        rows = np.flatnonzero(lines[:height, column])
        middle = rows.mean() / height
        assert (middle > 0.6) == (step < 25), step
    rising = [np.flatnonzero(lines[height:, round((step + 0.5) * per_step)]).mean() for step in range(1, 31)]
    assert all(a > b for a, b in zip(rising, rising[3:], strict=False)), "up is more"


def test_missing_numbers_leave_a_gap_and_what_is_in_no_patch_is_grey() -> None:
    series = WALK.copy()
    series[16:24, 0] = np.nan
    seen = Model.of(model_of("PatchTSTModel", **SMALL | {"patch_stride": 8}), series=series).trace().pictures[0]
    height, per_step = seen.patch_size[0], seen.rgb.shape[1] / 32
    first = dark(seen.rgb)[: height - 4]
    assert not first[:, round(8.7 * per_step) : round(15.3 * per_step)].any()
    assert first[:, : round(7 * per_step)].any(0).mean() > 0.9
    gaps = trace_of("gaps").pictures[0]
    per_step = gaps.rgb.shape[1] / (gaps.x.stop - gaps.x.start)
    assert gaps.rgb[2, round(2 * per_step), 0] == 250
    assert gaps.rgb[2, round(5.5 * per_step), 0] == 216, "from 4 to 7 is in no patch"
    padded = trace_of("padding").pictures[0]
    assert padded.x.start == -4
    assert padded.rgb[2, 3, 0] == 216


def test_cells_of_a_figure_are_those_of_the_weights_at_their_strides() -> None:
    trace = trace_of("overlap")
    figure = over_picture_json(MapLine.of(trace, "weights", 0, 1, query=9))
    cells = np.array(figure["data"][0]["z"], float)
    weights = trace.layers[0].weights[1, 9]
    assert np.isnan(cells[0, :7]).all(), "query 9 is of the second column"
    assert cells[1, :7] == approx(weights[7:].numpy())
    assert figure["layout"]["yaxis"]["ticktext"] == ["column 0", "column 1"]
    ticks = dict(zip(figure["layout"]["xaxis"]["ticktext"], figure["layout"]["xaxis"]["tickvals"], strict=True))
    assert len(ticks) > 3
    for step, place in ticks.items():
        assert place == approx(-0.5 + (int(step) - 8) / 4, scale=1), "a cell begins every 4 steps, the first at step 8"
    assert "over the series" in figure["layout"]["title"]["text"]
    assert figure["data"][0]["text"][0][1] == "1 column 0 12–19"
    image = figure["layout"]["images"][0]
    assert (image["sizex"], image["sizey"]) == (7, 2)
    assert "overlap: one begins every 4 steps" in trace.pictures[0].words


@pytest.mark.sample(5)
@pytest.mark.parametrize("layout", ["overlap", "odd overlap", "padding", "gaps"])
@pytest.mark.parametrize("ending", ["npz", "safetensors"])
def test_a_saved_trace_opens_with_the_same_places(layout: str, ending: str, tmp_path: Path) -> None:
    trace = trace_of(layout)
    path = tmp_path / f"trace.{ending}"
    trace.save(path)
    again = File.open(path).trace()
    for layer, same in zip(trace.layers, again.layers, strict=True):
        assert [getattr(token, "place", token) for token in layer.tokens] == [getattr(token, "place", token) for token in same.tokens]  # fmt: skip
        assert list(layer.tokens) == list(same.tokens)
    seen, opened = trace.pictures[0], again.pictures[0]
    np.testing.assert_array_equal(seen.rgb, opened.rgb)
    assert (seen.noun, seen.x, seen.y, seen.words) == (opened.noun, opened.x, opened.y, opened.words)


def test_a_file_without_axes_is_opened_with_rows_and_columns() -> None:
    trace = trace_of("overlap")
    bare = replace(trace.pictures[0], x=None, y=None)
    assert medium_of("series").place(bare, trace.layers[0].tokens[0]) is None


def test_tables_have_the_steps_of_each_patch() -> None:
    trace = trace_of("overlap")
    frame = pd.read_csv(StringIO("".join(tables.csv(trace, "weights"))))
    assert [*frame.columns[:6]] == ["query_pos", "picture", "row", "column", "start", "stop"]
    assert [*frame["start"]] == [*range(8, 36, 4)] * 2
    assert [*frame["stop"]] == [*range(16, 44, 4)] * 2


@pytest.mark.quick
@pytest.mark.parametrize("name", EXAMPLES)
def test_previews_show_the_lines_of_each_column(name: str) -> None:
    series = example_series(name)
    image = np.asarray(Image.open(BytesIO(medium_of("series").preview(series, 240))).convert("L"))
    assert image.shape[1] == 240
    assert (image < 150).any(0).mean() > 0.9
    assert medium_of("series").size_in_words(series) == "96 steps of 2 columns"
    tall = Series.open(np.random.default_rng(0).normal(size=(3, 200)))
    assert Image.open(BytesIO(medium_of("series").preview(tall, 240))).height < 1000


def test_hidden_weights_of_a_row_sum_to_one_over_its_column() -> None:
    trace = trace_of("side by side")
    for layer in trace.layers:
        assert layer.weights[:, :4, :4].sum(-1) == approx(torch.ones(2, 4))
        assert float(layer.weights[:, :4, 4:].abs().max()) == 0
