"""Attention drawn over a picture: every number at the place of its patch, and the pixels that the model saw below it."""

from __future__ import annotations

from base64 import b64decode
from dataclasses import replace
from io import BytesIO
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from PIL import Image
from tiny_pictures import TinyPictureModels, bright_patch, noise

from attention import Cell, Model, TypedText, explain
from attention.base.errors import ConfigError, MissingError
from attention.base.tokens import Patch
from attention.explanation.derived import NORMS
from attention.pictures.marks import CHOSEN_COLOR, Spec
from attention.pictures.message import pack
from attention.pictures.message_contract import NO_TOKEN
from attention.pictures.over_picture import (
    _MAX_LINES,
    _MAX_SIDE,
    MapLine,
    TokenGrid,
    image_source,
    over_picture,
    over_picture_json,
)
from attention.pictures.scales import FITTED
from attention.pictures.steps_view import OverPicture, available_views, lab_maps
from attention.trace.trace import SeenPicture, Trace

TEXT = "the owl asked the moon"


def trace_of(picture_models: TinyPictureModels, family: str, text: str = "") -> Trace:
    return Model(picture_models(family), text, image=Image.fromarray(noise())).trace()


def outlines(figure: Spec) -> list[dict[str, Any]]:
    """The outlines of chosen tokens, without the edges of patches and boxes."""
    return [shape for shape in figure["layout"]["shapes"] if shape["line"]["color"] == CHOSEN_COLOR]


def check_places(figure: Spec, numbers: np.ndarray, tokens: tuple[str, ...]) -> None:
    """Check that each patch has its number at its row and column, below the lines of other tokens."""
    cells = figure["data"][0]["z"]
    patches = {(token.row, token.column): at for at, token in enumerate(tokens) if isinstance(token, Patch)}
    n_rows = max(row for row, _ in patches) + 1
    assert patches
    for (row, column), at in patches.items():
        place = len(cells) - n_rows + row, column
        assert cells[place] == numbers[at]
        assert figure["data"][0]["text"][place[0]][place[1]] == f"{at} patch row {row}, column {column}"


@pytest.mark.parametrize("family", ["ViT", "DeiT", "DINOv2 with registers", "SigLIP vision"])
def test_row_of_query_has_each_number_at_its_patch(picture_models: TinyPictureModels, family: str) -> None:
    trace = trace_of(picture_models, family)
    for query in (0, 3):
        figure = over_picture_json(MapLine.of(trace, "weights", layer=1, head=2, query=query))
        check_places(figure, trace.layers[1].matrix("weights", 2)[query].numpy(), trace.layers[1].tokens)


def test_column_of_key_and_of_feature_are_drawn(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    layer = trace.layers[0]
    check_places(
        over_picture_json(MapLine.of(trace, "scores", key=4)), layer.matrix("scores", 0)[:, 4].numpy(), layer.tokens
    )
    feature = over_picture_json(MapLine.of(trace, "value", head=1, key=5))
    check_places(feature, layer.matrix("value", 1)[:, 5].numpy(), layer.tokens)
    assert not outlines(feature)  # a feature is no patch
    whole = over_picture_json(MapLine.of(trace, "output", key=1))
    check_places(whole, layer.matrix("output", 0)[:, 1].numpy(), layer.tokens)
    assert " H0" not in whole["layout"]["title"]["subtitle"]["text"]  # of no single head
    assert "column of d_v 5" in feature["layout"]["title"]["subtitle"]["text"]


def test_tooltip_says_which_token_is_the_key(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    for reads, lines in ({"query": 2}, ["query 2", "key %{text}"]), ({"key": 2}, ["key 2", "query %{text}"]):
        template = over_picture_json(MapLine.of(trace, "weights", **reads))["data"][0]["hovertemplate"]
        assert all(f"<br>{line}" in template for line in lines)


def test_effect_on_a_logit_is_not_offered_for_pictures(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "LLaVA", TEXT)
    assert trace.predictions
    assert available_views(trace, trace.layers[-1]) == ("norms",)


def test_words_of_llava_look_at_the_picture(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "LLaVA", TEXT)
    number = next(i for i, layer in enumerate(trace.layers) if layer.name.startswith("text"))
    layer = trace.layers[number]
    query = len(layer.tokens) - 1
    row = layer.matrix("weights", 0)[query].numpy()
    figure = over_picture_json(MapLine.of(trace, "weights", number, query=query))
    check_places(figure, row, layer.tokens)
    on_picture = sum(row[at] for at, token in enumerate(layer.tokens) if isinstance(token, Patch))
    assert (
        f"{on_picture:.2f} on the picture, {row.sum() - on_picture:.2f} on other tokens"
        in figure["layout"]["title"]["subtitle"]["text"]
    )


def test_share_of_other_tokens_needs_other_tokens(picture_models: TinyPictureModels) -> None:
    hidden = Model(picture_models("ViT"), image=Image.fromarray(noise()), special="hide").trace()
    row = hidden.layers[0].weights[0, 0]
    assert row.sum() < 0.99  # the rest is on [CLS], which is hidden
    facts = over_picture_json(MapLine.of(hidden, "weights", query=0))["layout"]["title"]["subtitle"]["text"]
    assert f"{row.sum():.2f} on the picture" in facts
    assert "other tokens" not in facts


def test_picture_below_the_patches_is_what_the_model_saw(picture_models: TinyPictureModels) -> None:
    trace = Model(picture_models("ViT"), image=bright_patch(1, 2)).trace()
    figure = over_picture_json(MapLine.of(trace, "weights", query=0))
    (image,) = figure["layout"]["images"]
    enlarged = np.asarray(Image.open(BytesIO(b64decode(image["source"].split(",")[1]))))
    factor = len(enlarged) // len(trace.pictures[0].rgb)
    assert factor > 1  # without smoothing: each pixel is a square
    np.testing.assert_array_equal(enlarged, np.kron(trace.pictures[0].rgb, np.ones((factor, factor, 1), np.uint8)))
    pixels = enlarged[::factor, ::factor]
    # The brightest patch of the pixels lies under the cell of that patch.
    seen = trace.pictures[0]
    height, width = seen.patch_size
    grid = TokenGrid.of(trace.layers[0].tokens)
    assert grid is not None
    bright = next(
        at for at, token in enumerate(trace.layers[0].tokens)
        if isinstance(token, Patch) and (token.row, token.column) == (1, 2)
    )  # fmt: skip
    x, y, columns, rows = grid.box(bright) or (0, 0, 0, 0)
    left, top = round((x - 0.5 - image["x"]) * width), round((y - 0.5 - image["y"]) * height)
    mean = pixels.mean(axis=2)
    inside = mean[top : top + height, left : left + width].mean()
    assert (columns, rows) == (1, 1)
    assert inside > mean.mean() + 50
    assert (image["sizex"], image["sizey"]) == (seen.columns, seen.rows)


def test_query_that_is_a_patch_is_outlined(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    grid = TokenGrid.of(trace.tokens)
    assert grid is not None
    own, chosen = outlines(over_picture_json(MapLine.of(trace, "weights", query=4), chosen=2))
    for shape, position, dash in ((own, 4, "dot"), (chosen, 2, None)):
        x, y, *_ = grid.box(position) or ()
        assert (shape["x0"], shape["y0"], shape["line"].get("dash")) == (x - 0.5, y - 0.5, dash)


@pytest.mark.parametrize("family", ["DINOv2 with registers", "LLaVA"])
def test_edges_of_patches_do_not_cross_other_tokens(picture_models: TinyPictureModels, family: str) -> None:
    trace = trace_of(picture_models, family, TEXT if family == "LLaVA" else "")
    number = len(trace.layers) - 1
    layout = over_picture_json(MapLine.of(trace, "weights", number, query=0))["layout"]
    grid = TokenGrid.of(trace.layers[number].tokens)
    assert grid is not None
    (placed,) = grid.pictures
    lines = [shape for shape in layout["shapes"] if shape["type"] == "line"]
    assert len(lines) == placed.rows + placed.columns + 2
    assert min(shape["y0"] for shape in lines) == placed.y - 0.5 > max(token.y for token in grid.others) + 0.5
    boxes = [
        shape for shape in layout["shapes"] if shape["type"] == "rect" and shape not in outlines({"layout": layout})
    ]
    assert [(box["x0"] + 0.5, box["x1"] - box["x0"]) for box in boxes] == [
        (token.x, token.columns) for token in grid.others
    ]


def test_fitted_colours_reach_up_to_the_largest_patch(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    row = trace.layers[0].matrix("weights", 0)[2].numpy()
    heat = over_picture_json(MapLine.of(trace, "weights", query=2), colors=FITTED)["data"][0]
    assert (heat["zmin"], heat["zmax"]) == (0, row[1:].max())  # without [CLS]
    scores = trace.layers[0].matrix("scores", 0)[2].numpy()
    heat = over_picture_json(MapLine.of(trace, "scores", query=2), colors=FITTED, opacity=0.3)["data"][0]
    assert -heat["zmin"] == heat["zmax"] == np.abs(scores[1:]).max()
    assert heat["opacity"] == 0.3


@pytest.mark.quick
def test_pages_send_large_pictures_compressed() -> None:
    seen = SeenPicture(noise(640, 480), 24, 32, (20, 20), "", "")
    exact, compressed = (image_source(seen, 480, 640, exact) for exact in (True, False))
    assert exact.startswith("data:image/png")
    assert compressed.startswith("data:image/jpeg")
    assert len(compressed) < len(exact) / 2


def test_keys_that_the_mask_hides_are_marked(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "LLaVA", TEXT)
    number = len(trace.layers) - 1
    grid = TokenGrid.of(trace.layers[number].tokens)
    assert grid is not None
    heat, hidden = over_picture_json(MapLine.of(trace, "weights", number, query=3))["data"]
    np.testing.assert_array_equal(hidden["z"] == 1, grid.positions > 3)
    seen = (grid.positions >= 0) & (grid.positions <= 3)
    np.testing.assert_array_equal(np.isfinite(heat["z"]), seen)


@pytest.mark.quick
def test_several_pictures_stand_side_by_side() -> None:
    box = (0, 0, 4, 4)
    tokens = ("[CLS]", *(Patch(p, r, c, box) for p in range(2) for r in range(2) for c in range(3)), "dog")
    grid = TokenGrid.of(tokens)
    assert grid is not None
    assert [(placed.x, placed.rows, placed.columns) for placed in grid.pictures] == [(0, 2, 3), (4, 2, 3)]
    shown = [at for at in np.unique(grid.positions) if at != NO_TOKEN]
    assert shown == list(range(len(tokens)))
    top = grid.pictures[0].y
    assert grid.positions[top : top + 2, 4:7].tolist() == [[7, 8, 9], [10, 11, 12]]


@pytest.mark.quick
def test_words_without_a_place_are_counted() -> None:
    tokens = (Patch(0, 0, 0, (0, 0, 4, 4)), *["word"] * 500)
    grid = TokenGrid.of(tokens)
    assert grid is not None
    assert max(token.y for token in grid.others) == _MAX_LINES - 1
    assert grid.n_left_out == 500 - len(grid.others) > 0
    assert TokenGrid.of(("a", "b")) is None


def test_figure_is_one_that_plotly_accepts(picture_models: TinyPictureModels) -> None:
    for colors in ("fixed", "stretched", "log"):
        drawn = over_picture(MapLine.of(trace_of(picture_models, "DINOv2"), "weights", query=0), colors=colors)
        go.Figure(drawn.to_plotly_json())


@pytest.mark.quick
def test_large_pictures_are_reduced_in_the_figure(picture_models: TinyPictureModels) -> None:
    seen = SeenPicture(np.zeros((2048, 512, 3), np.uint8), 8, 2, (256, 256), "", "")
    source = image_source(seen, 2048, 512)
    assert max(Image.open(BytesIO(b64decode(source.split(",")[1]))).size) == _MAX_SIDE


def test_wrong_requests_are_refused_in_a_sentence(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "CLIP", TEXT)
    with pytest.raises(MissingError, match="got both"):
        over_picture_json(MapLine.of(trace, "weights", query=0, key=0))
    assert MapLine.of(trace, "weights").at == 0  # [CLS]
    with pytest.raises(MissingError, match="no patches"):
        over_picture_json(MapLine.of(trace, "weights", layer=len(trace.layers) - 1, query=0))
    with pytest.raises(MissingError, match="no patches"):
        over_picture_json(MapLine.of(TypedText("a b").trace(), "weights", query=0))
    with pytest.raises(MissingError):
        over_picture_json(MapLine.of(trace, "weights", query=1000))
    with pytest.raises(ConfigError):
        over_picture_json(MapLine.of(trace, "weights", query=0), colors="rainbow")


def test_message_with_a_large_picture_is_small(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    photo = np.asarray(Image.fromarray(noise(40, 27)).resize((1200, 800), Image.Resampling.BICUBIC))
    trace = replace(trace, pictures=(SeenPicture(photo, 2, 3, (400, 400), "", ""),))
    message = pack(lab_maps(trace, Cell(0, "weights", 0, 3, 5), "overview", "fixed"))
    assert len(message) < 150_000


@pytest.mark.parametrize("reads", ["row", "column"])
def test_derived_view_is_drawn_over_the_picture(picture_models: TinyPictureModels, reads: str) -> None:
    trace = trace_of(picture_models, "ViT")
    cell = Cell(1, "weights", 2, 3, 5)
    figure, *maps = lab_maps(trace, cell, "norms", "fixed", OverPicture(reads))
    numbers = NORMS.matrix(trace, 1, 2).numpy()
    check_places(figure, numbers[3] if reads == "row" else numbers[:, 5], trace.layers[1].tokens)
    meta = figure["layout"]["meta"]
    assert [meta["step"], *(spec["layout"]["meta"]["step"] for spec in maps)] == [NORMS.name, "weights", NORMS.name]
    assert (meta["grid"]["reads"], meta["grid"]["at"]) == (("query", 3) if reads == "row" else ("key", 5))


@pytest.mark.quick
def test_picture_of_which_patches_were_cut_counts_the_others_only() -> None:
    box = (0, 0, 4, 4)
    grid = TokenGrid.of(("[CLS]", Patch(0, 0, 0, box), Patch(0, 1, 1, box), "dog"))
    assert grid is not None
    assert grid.patches.tolist() == [1, 2]


def test_patch_of_several_pictures_is_named_with_its_picture(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    layer = trace.layers[1]
    tokens = tuple(
        Patch(1, token.row, token.column, token.box) if isinstance(token, Patch) and token.row else token
        for token in layer.tokens
    )
    several = replace(layer, tokens=tokens, key_tokens=tokens)
    trace = replace(trace, layers=(trace.layers[0], several), pictures=trace.pictures * 2)
    figure = over_picture_json(MapLine.of(trace, "weights", layer=1, query=2))
    texts = [text for line in figure["data"][0]["text"] for text in line if text]
    assert "2 patch row 0, column 1 of picture 0" in texts
    assert "5 patch row 1, column 1 of picture 1" in texts
    assert figure["layout"]["title"]["subtitle"]["text"].startswith("query 2 patch row 0, column 1 of picture 0")
    assert "key 5 (patch row 1, column 1 of picture 1)" in explain(trace, "weights", 1, 0, 2, 5).words
