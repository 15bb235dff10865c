"""A row of weights over a video: a strip of frames, and the one that is asked for or that is looked at most, once more and large."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from margins import approx
from tiny_videos import TinyVideoModels, encoded, moving_bar, noise

from attention import Model
from attention.base.tokens import Patch
from attention.explanation import tables
from attention.pictures.marks import CHOSEN_COLOR, Spec
from attention.pictures.message_contract import NO_TOKEN
from attention.pictures.over_picture import LARGE, MapLine, TokenGrid, over_picture_json
from attention.trace.trace import Trace
from attention.video.film import Video


@pytest.fixture(scope="module")
def trace(video_models: TinyVideoModels) -> Trace:
    return Model(video_models("ViViT"), video=Video.open(encoded(moving_bar(16), fps=8))).trace()


def outlines(figure: Spec) -> list[list[float]]:
    own = (
        shape
        for shape in figure["layout"]["shapes"]
        if shape["line"]["color"] == CHOSEN_COLOR and "dash" not in shape["line"]
    )
    return [[shape[name] + 0.5 for name in ("x0", "y0", "x1", "y1")] for shape in own]


def test_strip_has_each_frame_and_below_it_a_large_one(trace: Trace) -> None:
    row = trace[1].matrix("weights", 2)[4]
    figure = over_picture_json(MapLine.of(trace, "weights", 1, 2, query=4))
    z, positions = figure["data"][0]["z"], figure["layout"]["meta"]["grid"]["positions"]
    top = figure["layout"]["meta"]["grid"]["top"]
    for position, patch in enumerate(trace[1].tokens):
        if isinstance(patch, Patch):
            at = top + patch.row, patch.picture * 4 + patch.column
            assert positions[at] == position
            assert z[at] == approx(float(row[position]))
    images = figure["layout"]["images"]
    assert [each.get("name") for each in images] == [None] * 4 + [LARGE]
    most = max(range(4), key=lambda group: float(row[1 + 9 * group :][:9].sum()))
    large = images[-1]
    factor = int(large["sizex"]) // 3
    assert factor == 2
    x, y = int(large["x"] + 0.5), int(large["y"] + 0.5)
    shown = positions[y : y + 3 * factor, x : x + 3 * factor]
    expected = np.arange(1 + 9 * most, 10 + 9 * most).reshape(3, 3).repeat(factor, 0).repeat(factor, 1)
    assert (shown == expected).all()
    assert (positions[top + 3 : y] == NO_TOKEN).all()
    texts = [each["text"] for each in figure["layout"]["annotations"]]
    assert [text for text in texts if "·" in text] == [
        "0–1 · 0 s",
        "2–3 · 0.5 s",
        "4–5 · 1 s",
        "6–7 · 1.5 s",
        f"{2 * most}–{2 * most + 1} · {most / 2:g} s",
    ]
    assert "over the video" in figure["layout"]["title"]["text"]
    assert "on the video" in figure["layout"]["title"]["subtitle"]["text"]


@pytest.mark.parametrize("group", range(4))
def test_frame_of_the_chosen_token_is_the_large_one(trace: Trace, group: int) -> None:
    chosen = 1 + 9 * group + 5  # row 1, column 2
    figure = over_picture_json(MapLine.of(trace, "weights", 0, 0, query=0), chosen=chosen)
    positions, large = figure["layout"]["meta"]["grid"]["positions"], figure["layout"]["images"][-1]
    y = int(large["y"] + 0.5)
    assert {*positions[y].tolist()} == {NO_TOKEN, *range(1 + 9 * group, 4 + 9 * group)}
    top = figure["layout"]["meta"]["grid"]["top"]
    assert figure["layout"]["meta"]["chosen"] == [top + 1, 4 * group + 2]
    small, big = outlines(figure)
    assert small == [4 * group + 2, top + 1, 4 * group + 3, top + 2]
    assert big == [4, y + 2, 6, y + 4]


def test_frames_without_times_have_numbers_alone(video_models: TinyVideoModels) -> None:
    trace = Model(video_models("VideoMAE"), video=noise()).trace()
    figure = over_picture_json(MapLine.of(trace, "weights", 0, 0, query=0))
    assert [each["text"] for each in figure["layout"]["annotations"]][:4] == ["0–1", "2–3", "4–5", "6–7"]


def test_other_pictures_have_no_large_one(trace: Trace) -> None:
    from dataclasses import replace

    still = replace(trace, pictures=tuple(replace(each, time=None) for each in trace.pictures))
    for each in (still, replace(trace, pictures=())):
        figure = over_picture_json(MapLine.of(each, "weights", 0, 0, query=0))
        assert not any(image.get("name") for image in figure["layout"].get("images", ()))


@pytest.mark.quick
def test_many_frames_stand_in_several_lines() -> None:
    def tokens(n_groups: int) -> list[Any]:
        places = torch.cartesian_prod(torch.arange(n_groups), torch.arange(8), torch.arange(10)).tolist()
        return [Patch(p, r, c, (c * 4, r * 4, c * 4 + 4, r * 4 + 4), f"frame {p}", (p, r, c)) for p, r, c in places]

    grid = TokenGrid.of(tokens(40))
    assert grid is not None
    assert {placed.y for placed in grid.pictures} == {0, 9, 18}
    assert grid.positions.shape[1] <= 200
    assert sorted(grid.patches.tolist()) == list(range(40 * 80))


def test_table_has_the_frames_and_seconds_of_each_patch(trace: Trace) -> None:
    frame = tables.frame(trace, "weights")
    token = trace.tokens[-1]
    assert frame["frames_from"].tolist()[-1] == token.place.frames[0]
    assert frame["frames_to"].tolist()[-1] == token.place.frames[1]
    assert frame["seconds_from"].tolist()[-1] == token.place.seconds[0]
    assert frame["row"].tolist()[-1] == token.place.row
    assert next(iter(tables.csv(trace, "weights"))).split(",")[4:8] == [
        "frames_from",
        "frames_to",
        "seconds_from",
        "seconds_to",
    ]
