"""Figures over a picture as files: the picture is inside, below its cells, upright and at its place."""

from __future__ import annotations

import re
from base64 import b64decode
from io import BytesIO
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from margins import approx
from PIL import Image
from tiny_pictures import TinyPictureModels, bright_patch, noise, two_pictures

from attention import Cell, Layer, Model, Trace, paper
from attention.base.tokens import Patch
from attention.paper import marks
from attention.pictures.heatmap import heatmap
from attention.pictures.marks import CHOSEN_COLOR
from attention.pictures.message import to_plotly
from attention.pictures.over_picture import MapLine, over_picture
from attention.pictures.steps_view import lab_maps
from attention.trace.trace import SeenPicture

SVG = "{http://www.w3.org/2000/svg}"
LINK = "{http://www.w3.org/1999/xlink}href"
DOTS = 300 / 72  # of a PNG for each point of an SVG


def over(picture_models: TinyPictureModels, image: Any, family: str = "I-JEPA") -> go.Figure:
    return over_picture(
        MapLine.of(Model(picture_models(family), image=image).trace(), "weights", layer=1, head=1, query=0)
    )


def parsed(svg: bytes) -> Any:
    return ElementTree.fromstring(svg)


def image_boxes(tree: Any) -> list[tuple[float, float, float, float]]:
    """Left, top, right and bottom of each picture in an SVG."""
    boxes = []
    for image in tree.iter(f"{SVG}image"):
        a, b, c, d, e, f = map(float, re.findall(r"-?[\d.]+", image.get("transform")))
        assert (b, c) == (0, 0)
        width, height = float(image.get("width")), float(image.get("height"))
        left, right = sorted((e, e + a * width))
        top, bottom = sorted((f, f + d * height))
        boxes.append((left, top, right, bottom))
    return boxes


def cells_box(tree: Any) -> tuple[float, float, float, float]:
    numbers = np.array([
        list(map(float, pair)) for group in tree.iter(f"{SVG}g") if (group.get("id") or "").startswith("cells-")
        for path in group.iter(f"{SVG}path") for pair in re.findall(r"[ML] (-?[\d.]+) (-?[\d.]+)", path.get("d"))
    ])  # fmt: skip
    return (*numbers.min(0), *numbers.max(0))


def check_pixels(image: Any, expected: np.ndarray) -> None:
    """Check that a picture in an SVG is this one, upright as its transform shows it; a small one is enlarged by a whole number."""
    rgb = np.asarray(Image.open(BytesIO(b64decode(image.get(LINK).split(",")[1]))).convert("RGB"))
    upright = rgb[::-1] if float(re.findall(r"-?[\d.]+", image.get("transform"))[3]) < 0 else rgb
    factor = len(rgb) // len(expected)
    np.testing.assert_array_equal(upright, expected.repeat(factor, 0).repeat(factor, 1))


def test_svg_has_the_picture_inside_below_its_cells(picture_models: TinyPictureModels) -> None:
    trace = Model(picture_models("I-JEPA"), image=Image.fromarray(noise())).trace()
    figure = over_picture(MapLine.of(trace, "weights", layer=1, head=1, query=0))
    svg = paper.picture(figure, "svg")
    assert svg == paper.picture(figure, "svg")
    tree = parsed(svg)
    (image,) = tree.iter(f"{SVG}image")
    check_pixels(image, trace.pictures[0].rgb)
    (box,) = image_boxes(tree)
    assert box == approx(cells_box(tree), terms=1024, dtype="float32")  # half of the gap between cells
    columns, rows = trace.pictures[0].columns, trace.pictures[0].rows
    assert (box[2] - box[0]) / columns == approx(
        (box[3] - box[1]) / rows, within=0.05, why="a hundredth of a point on each side of many cells"
    )  # square cells
    assert svg.index(b"<image") < svg.index(b'id="cells-0"')
    assert b"opacity: 0.6" in svg
    assert b"http" not in re.sub(rb'xmlns\S*="[^"]*"|<metadata>.*</metadata>|<!DOCTYPE[^>]*>', b"", svg, flags=re.S)


@pytest.mark.sample(1)
@pytest.mark.parametrize("place", [(0, 0), (1, 2)])
def test_bright_patch_is_bright_in_the_png(picture_models: TinyPictureModels, place: tuple[int, int]) -> None:
    figure = over(picture_models, bright_patch(*place))
    left, top, right, bottom = np.array(image_boxes(parsed(paper.picture(figure, "svg")))[0]) * DOTS
    drawn = np.asarray(Image.open(BytesIO(paper.picture(figure, "png"))).convert("L"), dtype=float)
    means = np.array([
        [
            drawn[round(top + (row + 0.2) * (bottom - top) / 2) : round(top + (row + 0.8) * (bottom - top) / 2),
                  round(left + (column + 0.2) * (right - left) / 3) : round(left + (column + 0.8) * (right - left) / 3)].mean()
            for column in range(3)
        ] for row in range(2)
    ])  # fmt: skip
    assert np.unravel_index(means.argmax(), means.shape) == place
    assert means[place] > np.sort(means.ravel())[-2] + 60


def test_several_pictures_stand_side_by_side_in_the_svg() -> None:
    trace = two_pictures()
    figure = over_picture(MapLine.of(trace, "weights", layer=2, query=0))
    tree = parsed(paper.picture(figure, "svg", 12))
    first, second = image_boxes(tree)
    assert first[2] < second[0]
    assert first[1::2] == second[1::2]
    images = list(tree.iter(f"{SVG}image"))
    for image, seen in zip(images, trace.pictures, strict=True):
        check_pixels(image, seen.rgb[:8, :12])


def test_figures_of_a_page_have_their_picture_inside(picture_models: TinyPictureModels) -> None:
    # Pages send a large picture as a JPEG.
    patches = tuple(
        Patch(0, r, c, (c * 160, r * 160, c * 160 + 160, r * 160 + 160)) for r in range(2) for c in range(3)
    )
    layer = Layer(recorded={"weights": torch.full((2, 6, 6), 1 / 6)}, tokens=patches, key_tokens=patches)
    seen = SeenPicture(noise(480, 320), 2, 3, (160, 160), "", "")
    trace = Trace(patches, (layer,), pictures=(seen,))
    over_it, *maps = lab_maps(trace, Cell(0, "weights", 1, 4, 2), "overview", "fixed")
    assert over_it["layout"]["images"][0]["source"].startswith("data:image/jpeg")
    tree = parsed(paper.picture([to_plotly(figure) for figure in (over_it, *maps)], "svg", 60))
    (image,) = tree.iter(f"{SVG}image")
    drawn = np.asarray(Image.open(BytesIO(b64decode(image.get(LINK).split(",")[1]))).convert("RGB"))
    assert drawn.shape == (320, 480, 3)


def test_words_stand_on_a_ground_in_every_kind(picture_models: TinyPictureModels) -> None:
    trace = Model(picture_models("LLaVA"), "the owl <b> asked", image=Image.fromarray(noise())).trace()
    figure = over_picture(
        MapLine.of(trace, "weights", layer=len(trace.layers) - 1, query=len(trace.layers[-1].tokens) - 1)
    )
    svg = paper.picture(figure, "svg")
    texts = {text.text for text in parsed(svg).iter(f"{SVG}text")}
    assert {"the", "·owl", "·asked"} <= texts
    assert b'id="note-0-0"' in svg
    assert paper.picture(figure, "pdf").startswith(b"%PDF")
    assert not {text for text in texts if text and re.fullmatch(r"[2-9]", text)}  # the places of cells are no labels


def test_picture_and_map_stand_side_by_side(picture_models: TinyPictureModels) -> None:
    trace = Model(picture_models("ViT"), image=Image.fromarray(noise())).trace()
    both = [heatmap(trace, "weights", 1, 1), over_picture(MapLine.of(trace, "weights", layer=1, head=1, query=0))]
    tree = parsed(paper.picture(both, "svg", 24))
    assert len(list(tree.iter(f"{SVG}image"))) == 1
    assert any("patch" in (text.text or "") for text in tree.iter(f"{SVG}text"))
    assert any((group.get("id") or "").startswith("part-1-picture-0") for group in tree.iter(f"{SVG}image"))


def test_chosen_query_is_dotted_and_chosen_key_is_not(picture_models: TinyPictureModels) -> None:
    trace = Model(picture_models("ViT"), image=Image.fromarray(noise())).trace()
    svg = paper.picture(over_picture(MapLine.of(trace, "weights", layer=1, head=1, query=3), chosen=5), "svg").decode()
    outlines = re.findall(rf'style="([^"]*stroke: {CHOSEN_COLOR}[^"]*)"', svg)
    assert ["stroke-dasharray" in style for style in outlines] == [True, False]


def test_html_has_the_picture_inside_and_asks_for_nothing(picture_models: TinyPictureModels) -> None:
    page = paper.html(over(picture_models, Image.fromarray(noise())))
    assert "data:image/png;base64," in page
    assert "img-src data: blob:" in page


@pytest.mark.parametrize("texts", [("0", "0.00469", "0.00938"), ("0", "0.5", "1"), ("−0.0117", "0", "0.0117")])
def test_numbers_of_a_short_colour_bar_stand_apart(texts: tuple[str, str, str]) -> None:
    class Page:
        """Writes nothing and keeps the ends of each number."""

        def __init__(self) -> None:
            self.ends: list[tuple[float, float]] = []

        def width_of(self, text: str, size: float) -> float:
            return 0.6 * size * len(text)

        def write(self, x: float, _: float, text: str, size: float, align: str) -> None:
            left = x - self.width_of(text, size) * {"left": 0, "center": 0.5, "right": 1}[align]
            self.ends.append((left, left + self.width_of(text, size)))

        def boxes(self, *_: Any, **__: Any) -> None:
            """Draws nothing."""

    settings = {"tickfont": {"size": 10}, "tickvals": [0, 0.5, 1], "ticktext": texts, "len": 0.1, "thickness": 8}
    bar, page = marks.ColorBar(settings, ((0, "#000000"), (1, "#ffffff")), 0, 1, ""), Page()
    marks.draw_colorbar(page, bar, SimpleNamespace(width=300, right=310), 0)
    assert page.ends == sorted(page.ends)
    assert all(right + 3 < left for (_, right), (left, _) in pairwise(page.ends))
