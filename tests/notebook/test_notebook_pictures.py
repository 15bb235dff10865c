"""Outputs of a notebook, and the page without a server, of a trace with a picture: the picture beside the maps follows every click as Python draws it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from margins import approx
from PIL import Image
from playwright.sync_api import Frame, Page
from test_notebook_outputs import click, open_outputs, served, settled, unpacked
from tiny_pictures import WITH_TEXT, TinyPictureModels, noise

from attention import Cell, Model, Trace
from attention.demo.site import write
from attention.export.packing import pack_trace
from attention.export.states import State
from attention.formula.override import Override
from attention.models.library import LIBRARY, Settings
from attention.notebook import bring_scripts, show
from attention.pictures.marks import Spec
from attention.pictures.steps_view import maps_over_picture

__all__ = ["open_outputs", "served"]  # fixtures

DRAWN = """() => { const { data, layout } = document.querySelector('.figures').figureState.figures[0];
    const rows = (z) => Array.from(z, (row) => Array.from(row, (number) => (Number.isNaN(number) ? null : number)));
    return { data: data.map(({ z, ...trace }) => ({ ...trace, z: rows(z) })),
             subtitle: layout.title.subtitle.text, shapes: layout.shapes, images: layout.images, annotations: layout.annotations,
             meta: { ...layout.meta, grid: { ...layout.meta.grid, positions: rows(layout.meta.grid.positions) } } }; }"""


@pytest.fixture(scope="module")
def models(picture_models: TinyPictureModels) -> TinyPictureModels:
    return picture_models


@pytest.fixture(autouse=True)
def new_session() -> None:
    bring_scripts()


def trace_of(models: TinyPictureModels, family: str) -> Trace:
    text = "the owl <b> asked" if family in WITH_TEXT else ""
    return Model(models(family), text, image=Image.fromarray(noise())).trace()


def check_drawn(found: dict[str, Any], expected: Spec) -> None:
    """Check that the first figure of a page is the picture that Python draws."""
    layout = expected["layout"]
    for trace, expected_trace in zip(found["data"], expected["data"], strict=True):
        z = np.array(trace["z"], dtype=float)
        assert z == approx(np.asarray(expected_trace["z"], dtype=float), nan=True, dtype="float32")
        assert trace["text"] == expected_trace["text"]
        assert trace["hovertemplate"] == expected_trace["hovertemplate"]
        assert trace.get("opacity") == expected_trace["opacity"]
    heat = expected["data"][0]
    assert (found["data"][0]["zmin"], found["data"][0]["zmax"]) == approx((heat["zmin"], heat["zmax"]))
    assert found["subtitle"] == layout["title"]["subtitle"]["text"]
    assert found["shapes"] == layout["shapes"]
    assert found["images"] == layout["images"]
    assert found["annotations"] == layout["annotations"]
    meta = found["meta"]
    for key in ("alt", "file", "chosen", "step", "layer", "axes"):
        assert meta[key] == layout["meta"][key], key
    grid, expected_grid = meta["grid"], layout["meta"]["grid"]
    assert grid["positions"] == expected_grid["positions"].tolist()
    assert [grid[key] for key in ("at", "reads", "same", "top")] == [
        expected_grid[key] for key in ("at", "reads", "same", "top")
    ]


def python_figure(trace: Trace, cell: Cell) -> Spec:
    (figure,) = maps_over_picture(trace, cell, "stretched")
    return figure


def test_output_packs_the_pixels_once(models: TinyPictureModels) -> None:
    trace = trace_of(models, "ViT")
    content = pack_trace(trace)
    packed = unpacked(content)
    assert len(packed["grids"]) == 1
    assert content.count(b"data:image/png;base64,") == 1
    figures = [figure for layer in packed["layers"].values() for figure in layer["figures"]]
    over = [figure for figure in figures if "packed" in figure["layout"]["meta"]]
    assert len(over) > 10
    assert not any("z" in figure["data"][0] for figure in over)


def test_layer_alone_and_texts_have_outputs(models: TinyPictureModels) -> None:
    layer = trace_of(models, "LLaVA").layers[-1]
    assert "srcdoc" in (layer._repr_html_() or "")
    from attention import TypedText

    assert unpacked(pack_trace(TypedText("a b").trace()))["grids"] == []


@pytest.mark.sample(1)
@pytest.mark.browser
@pytest.mark.parametrize(
    "family", ["ViT", *(pytest.param(name, marks=pytest.mark.long) for name in ("LLaVA", "LLaVA-NeXT"))]
)
def test_output_draws_the_picture_as_python(open_outputs: Any, models: TinyPictureModels, family: str) -> None:
    trace = trace_of(models, family)
    layer = len(trace.layers) - 1
    _, (frame,) = open_outputs(show(trace, layer=layer, head=1, q=4, k=2)._repr_html_())
    check_drawn(frame.evaluate(DRAWN), python_figure(trace, Cell(layer, "weights", 1, 4, 2)))
    frame.locator(".controls [name=head]").select_option("3")
    settled(frame)
    check_drawn(frame.evaluate(DRAWN), python_figure(trace, Cell(layer, "weights", 3, 4, 2)))
    offered = frame.locator(".strip button").evaluate_all("(buttons) => buttons.map(({ name }) => name)")
    steps = {step.name: step for step in trace.layers[layer].steps}
    for step in map(steps.__getitem__, filter(offered.__contains__, steps)):
        frame.locator(f".strip button[name={step.name}]").click()
        settled(frame)
        row, column = (int(frame.locator(f".side.{side} input").input_value()) for side in "qk")
        check_drawn(frame.evaluate(DRAWN), python_figure(trace, Cell(layer, step.name, 3 * step.per_head, row, column)))


@pytest.mark.browser
def test_click_in_the_picture_chooses_the_patch(open_outputs: Any, models: TinyPictureModels) -> None:
    trace = trace_of(models, "ViT")
    _, (frame,) = open_outputs(show(trace, layer=1, head=1, q=4, k=2)._repr_html_())
    place = np.argwhere(np.array(frame.evaluate(DRAWN)["meta"]["grid"]["positions"]) == 6)[0]
    click_picture(frame, 0, *place, (4, 6))
    check_drawn(frame.evaluate(DRAWN), python_figure(trace, Cell(1, "weights", 1, 4, 6)))
    click(frame, 2, 3, 5)  # in the map of weights
    settled(frame)
    check_drawn(frame.evaluate(DRAWN), python_figure(trace, Cell(1, "weights", 1, 3, 5)))


def click_picture(frame: Frame, index: int, row: int, column: int, expected: tuple[int, int]) -> None:
    """Clicks a cell of a picture, which chooses the query and the key `expected`."""
    place = frame.evaluate(
        """([i, row, column]) => { const { xaxis, yaxis } = document.querySelectorAll('.js-plotly-plot')[i]._fullLayout;
            return [xaxis._offset + xaxis.l2p(column), yaxis._offset + yaxis.l2p(row)].map(Math.round); }""",
        [index, int(row), int(column)],
    )
    frame.locator(".js-plotly-plot").nth(index).click(position={"x": place[0], "y": place[1]}, force=True)
    frame.wait_for_function(
        "([q, k]) => document.querySelector('.side.q input').value === q && document.querySelector('.side.k input').value === k",
        arg=[str(number) for number in expected],
    )
    settled(frame)


@pytest.mark.sample(1)
@pytest.mark.browser
@pytest.mark.parametrize("family", ["ViT", pytest.param("LLaVA", marks=pytest.mark.long)])
def test_temperature_repaints_the_picture(open_outputs: Any, models: TinyPictureModels, family: str) -> None:
    trace = trace_of(models, family)
    layer = len(trace.layers) - 1
    _, (frame,) = open_outputs(show(trace, layer=layer, head=1, q=4, k=2)._repr_html_())
    frame.locator(".controls input[name=temperature]").focus()
    for _ in range(12):
        frame.page.keyboard.press("ArrowLeft")
    settled(frame)
    temperature = float(frame.locator(".controls label[data-name=temperature] output").inner_text())
    assert temperature < 1
    # The page shows a rounded temperature: the numbers are compared as far as that allows.
    found = np.array(frame.evaluate(DRAWN)["data"][0]["z"], dtype=float)
    turned = trace.with_config(Override(temperature=temperature))
    expected = python_figure(turned, Cell(layer, "weights", 1, 4, 2))["data"][0]["z"]
    assert found == approx(expected, nan=True)
    before = python_figure(trace, Cell(layer, "weights", 1, 4, 2))["data"][0]["z"]
    assert np.nanmax(np.abs(found - before)) > 0.02
    assert not math.isnan(float(np.nansum(found)))


@pytest.fixture
def local_models(models: TinyPictureModels) -> Iterator[TinyPictureModels]:
    LIBRARY.hold(Settings(models.folder))
    yield models
    LIBRARY.hold(Settings())


@pytest.mark.browser
def test_page_without_a_server_draws_the_picture(
    local_models: TinyPictureModels, tmp_path: Path, open_page: Callable[..., Page]
) -> None:
    local_models("ViT")
    link = {"source": "model", "model": "ViT", "image": "example:odd-patch"}
    state = State(
        "photo", "A picture", "Where does it look?", link, knobs=("temperature",), layer=1, q=3, k=2, skip=("output",)
    )
    complaints: list[str] = []
    write(tmp_path / "site", tell=complaints.append, states=(state,))
    assert not complaints
    page = open_page((tmp_path / "site" / "index.html").as_uri(), figure=False, bypass_csp=False)
    page.wait_for_function("document.querySelector('.figures')?.figureState?.painted")
    from attention.export.packing import source_and_trace

    _, trace = source_and_trace(state)
    check_drawn(page.evaluate(DRAWN), python_figure(trace, Cell(1, "weights", 0, 3, 2)))
