"""All heads as small pictures: each number at its patch, and a click that finds its head and its cell."""

from __future__ import annotations

from base64 import b64decode
from io import BytesIO

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from conftest import unpack_message
from margins import approx
from PIL import Image
from tiny_pictures import TinyPictureModels, noise

from attention import Cell, Model, TypedText
from attention.base.errors import MissingError
from attention.base.tokens import Patch
from attention.formula.formula import Formula
from attention.pictures.heads_over_picture import (
    _THUMBNAIL,
    estimate_seconds,
    heads_over_picture,
    heads_over_picture_json,
    reads_query,
)
from attention.pictures.marks import CHOSEN_COLOR
from attention.pictures.message import pack
from attention.pictures.message_contract import NO_TOKEN
from attention.pictures.mosaic import HeadOrder, cell_at
from attention.pictures.over_picture import MapLine, TokenGrid, default_query
from attention.pictures.scales import FITTED
from attention.trace.layer import Layer
from attention.trace.trace import Trace

TEXT = "the owl asked the moon"


def trace_of(picture_models: TinyPictureModels, family: str, text: str = "") -> Trace:
    return Model(picture_models(family), text, image=Image.fromarray(noise())).trace()


@pytest.mark.parametrize("family", ["ViT", "DINOv2 with registers", "SigLIP vision"])
@pytest.mark.parametrize("all_layers", [True, False])
def test_every_cell_is_the_number_of_its_head_and_patch(
    picture_models: TinyPictureModels, family: str, all_layers: bool
) -> None:
    trace = trace_of(picture_models, family)
    figure = heads_over_picture_json(MapLine.of(trace, "weights", 1, query=3), all_layers=all_layers)
    z = figure["data"][0]["z"]
    found = set()
    for y, x in np.ndindex(z.shape):
        cell = cell_at(figure, x, y)
        assert (cell is None) == bool(np.isnan(z[y, x]))
        if cell is not None:
            assert cell.step == "weights"
            assert cell.row == 3
            assert z[y, x] == trace.layers[cell.layer].matrix("weights", cell.head)[cell.row, cell.column]
            found.add((cell.layer, cell.head, cell.column))
    layers = (0, 1) if all_layers else (1,)
    assert found == {(i, h, k) for i in layers for h in range(4) for k in range(len(trace.tokens))}


def test_patches_of_every_head_lie_at_their_rows_and_columns(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    figure = heads_over_picture_json(MapLine.of(trace, "weights", query=0))
    grid = TokenGrid.of(trace.tokens)
    assert grid is not None
    for panel in figure["layout"]["meta"]["panels"]:
        (placed,) = grid.pictures
        for at, token in enumerate(trace.tokens):
            if isinstance(token, Patch):
                x, y = panel["x"] + placed.x + token.column, panel["y"] + placed.y + token.row
                assert cell_at(figure, x, y) == Cell(panel["layer"], "weights", panel["head"], 0, at)


def test_pictures_lie_under_the_patches_of_their_heads(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    figure = heads_over_picture_json(MapLine.of(trace, "weights", query=0))
    panels, images = figure["layout"]["meta"]["panels"], figure["layout"]["images"]
    grid = TokenGrid.of(trace.tokens)
    assert grid is not None
    assert len(images) == len(panels) == 8
    for panel, image in zip(panels, images, strict=True):
        (placed,) = grid.pictures
        assert (image["x"], image["y"]) == (panel["x"] + placed.x - 0.5, panel["y"] + placed.y - 0.5)
        assert (image["sizex"], image["sizey"]) == (placed.columns, placed.rows)
    pixels = Image.open(BytesIO(b64decode(images[0]["source"].split(",")[1])))
    assert max(pixels.size) <= _THUMBNAIL


def test_message_has_a_picture_once_and_its_places(picture_models: TinyPictureModels) -> None:
    figure = heads_over_picture_json(MapLine.of(trace_of(picture_models, "ViT"), "weights", query=0))
    message = unpack_message(pack([figure]))
    assert message["sources"] == [figure["layout"]["images"][0]["source"]]
    (sent,) = message["figures"]
    assert [image["source"] for image in sent["layout"]["images"]] == [0] * 8
    np.testing.assert_array_equal(
        sent["layout"]["meta"]["panel_grid"]["positions"], figure["layout"]["meta"]["panel_grid"]["positions"]
    )
    assert "base64" in figure["layout"]["images"][0]["source"]  # the figure itself is unchanged


def test_blocks_find_the_patch_of_the_largest_number(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    figure = heads_over_picture_json(MapLine.of(trace, "weights", query=2), cells=100)
    z = figure["data"][0]["z"]
    assert figure["layout"]["meta"]["panels"][0]["block"] > 1
    assert "each cell the largest of" in figure["layout"]["title"]["subtitle"]["text"]
    cells = [(cell, z[y, x]) for y, x in np.ndindex(z.shape) if (cell := cell_at(figure, x, y))]
    assert cells
    for cell, number in cells:
        assert number == trace.layers[cell.layer].matrix("weights", cell.head)[2, cell.column]


def test_column_of_a_key_and_of_a_feature_is_drawn(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    assert reads_query(trace, "weights", 0) is True
    assert reads_query(trace, "value", 0) is False
    for step, key in (("weights", 4), ("value", 5)):
        figure = heads_over_picture_json(MapLine.of(trace, step, key=key))
        z = figure["data"][0]["z"]
        cells = [(cell, z[y, x]) for y, x in np.ndindex(z.shape) if (cell := cell_at(figure, x, y))]
        assert len({cell for cell, _ in cells}) == 8 * len(trace.tokens)
        for cell, number in cells:
            assert cell.column == key
            assert number == trace.layers[cell.layer].matrix(step, cell.head)[cell.row, key]


def patch_layer(materialize_all_heads: bool) -> Layer:
    """A layer of two patches in a row above two others, whose heads are computed from queries and keys."""
    tokens = tuple(Patch(0, i // 2, i % 2, (0, 0, 1, 1)) for i in range(4))
    query, key = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0))
    recorded = {"query": query, "key": key}
    return Layer(
        tokens=tokens, recorded=recorded, formula=Formula(divisor=2.0), materialize_all_heads=materialize_all_heads
    )


@pytest.mark.quick
def test_columns_of_streamed_heads_are_estimated_then_cached() -> None:
    layers = [patch_layer(materialize_all_heads) for materialize_all_heads in (True, False)]
    whole, streamed = (Trace(layer.tokens, (layer,)) for layer in layers)
    assert estimate_seconds(MapLine.of(whole, "weights", key=1)) == 0
    assert estimate_seconds(MapLine.of(streamed, "weights")) == 0
    assert estimate_seconds(MapLine.of(streamed, "weights", key=1)) > 0
    expected, found = (heads_over_picture_json(MapLine.of(trace, "weights", key=1)) for trace in (whole, streamed))
    assert found["data"][0]["z"] == approx(expected["data"][0]["z"], nan=True)
    assert estimate_seconds(MapLine.of(streamed, "weights", key=1)) == 0
    assert estimate_seconds(MapLine.of(streamed, "weights", key=2)) > 0


def test_too_many_pictures_under_heads_are_left_out(
    picture_models: TinyPictureModels, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = trace_of(picture_models, "ViT")
    monkeypatch.setattr("attention.pictures.heads_over_picture._MAX_IMAGES", 7)
    figure = heads_over_picture_json(MapLine.of(trace, "weights"))
    assert "images" not in figure["layout"]
    assert "without the pictures" in figure["layout"]["title"]["subtitle"]["text"]
    one_layer = heads_over_picture_json(MapLine.of(trace, "weights"), all_layers=False)
    assert len(one_layer["layout"]["images"]) == 4
    assert "without the pictures" not in one_layer["layout"]["title"]["subtitle"]["text"]


def test_only_layers_with_the_same_tokens_are_drawn(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "LLaVA", TEXT)
    text_layers = [i for i, layer in enumerate(trace.layers) if layer.name.startswith("text")]
    figure = heads_over_picture_json(MapLine.of(trace, "weights", text_layers[0]))
    meta = figure["layout"]["meta"]
    assert sorted({panel["layer"] for panel in meta["panels"]}) == text_layers
    assert "2 more layers have other tokens" in figure["layout"]["title"]["subtitle"]["text"]
    # Without a query, the last word looks: no token of this axis is [CLS].
    assert meta["panel_grid"]["at"] == len(trace.layers[text_layers[0]].tokens) - 1


@pytest.mark.quick
def test_default_query_is_cls_then_the_last_word() -> None:
    patch = Patch(0, 0, 0, (0, 0, 4, 4))
    assert default_query(("a", "[CLS]", patch)) == 1
    assert default_query(("a", patch, "b", patch)) == 2
    assert default_query((patch, patch)) == 0


def test_heads_follow_an_order_and_the_chosen_is_outlined(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    order = [(1, 2), (0, 0), *((i, h) for i in range(2) for h in range(4) if (i, h) not in ((1, 2), (0, 0)))]
    figure = heads_over_picture_json(
        MapLine.of(trace, "weights", 1, 2, query=0), order=HeadOrder(dict.fromkeys(order, 0.5), "self")
    )
    panels = figure["layout"]["meta"]["panels"]
    in_lines = sorted(panels, key=lambda panel: (panel["y"], panel["x"]))
    assert [(panel["layer"], panel["head"]) for panel in in_lines] == order
    (shape,) = (each for each in figure["layout"]["shapes"] if each["line"]["color"] == CHOSEN_COLOR)
    assert (shape["x0"], shape["y0"]) == (-0.5, -0.5)
    assert "sorted by self" in figure["layout"]["title"]["subtitle"]["text"]


def test_colours_reach_to_the_largest_drawn_number(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "ViT")
    figure = heads_over_picture_json(MapLine.of(trace, "weights", query=1), colors="stretched")
    largest = max(float(layer.matrix("weights", h)[1].max()) for layer in trace.layers for h in range(4))
    assert figure["data"][0]["zmax"] == approx(largest)
    fitted = heads_over_picture_json(MapLine.of(trace, "weights", query=1), colors=FITTED)
    at_patches = [at for at, token in enumerate(trace.tokens) if isinstance(token, Patch)]
    rows = [layer.matrix("weights", head)[1, at_patches] for layer in trace.layers for head in range(4)]
    assert fitted["data"][0]["zmax"] == approx(max(float(row.max()) for row in rows))
    for colors in ("fixed", "log", FITTED):
        go.Figure(heads_over_picture(MapLine.of(trace, "weights", query=1), colors=colors).to_plotly_json())


def test_heads_without_a_picture_are_refused(picture_models: TinyPictureModels) -> None:
    words = TypedText("a b").trace()
    assert reads_query(words, "weights", 0) is None
    with pytest.raises(MissingError, match="no patches"):
        heads_over_picture_json(MapLine.of(words, "weights"))
    with pytest.raises(MissingError, match="got both"):
        heads_over_picture_json(MapLine.of(trace_of(picture_models, "ViT"), "weights", query=0, key=0))
    with pytest.raises(MissingError):
        heads_over_picture_json(MapLine.of(trace_of(picture_models, "ViT"), "weights", query=99))
    assert NO_TOKEN == -1  # the page's script knows it, too


def test_keys_that_the_mask_hides_are_gray(picture_models: TinyPictureModels) -> None:
    trace = trace_of(picture_models, "LLaVA", TEXT)
    tokens = trace.layers[2].tokens
    query = next(at for at, token in enumerate(tokens) if isinstance(token, Patch)) + 4
    heat, hidden, *_ = heads_over_picture_json(MapLine.of(trace, "weights", 2, query=query))["data"]
    figure = heads_over_picture_json(MapLine.of(trace, "weights", 2, query=query))
    for y, x in np.ndindex(heat["z"].shape):
        cell = cell_at(figure, x, y)
        assert bool(np.isfinite(hidden["z"][y, x])) == (cell is not None and cell.column > query)
    (*_, bar) = heads_over_picture_json(MapLine.of(trace_of(picture_models, "ViT"), "weights", query=0))["data"]
    assert bar["type"] == "heatmap"  # no mask, no second heatmap
    assert len(heads_over_picture_json(MapLine.of(trace_of(picture_models, "ViT"), "weights", query=0))["data"]) == 1
