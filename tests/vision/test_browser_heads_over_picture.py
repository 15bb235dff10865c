"""The heads over a picture in a browser: painted at their patches, opened with a click, read with arrow keys."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import act_and_settle, click_cell, painted_numbers, place_of_cell, running_process, wait_until_settled
from playwright.sync_api import expect
from test_browser import Open, query
from tiny_pictures import TinyPictureModels

from attention import Model
from attention.base.tokens import Patch
from attention.pictures.heads_over_picture import heads_over_picture_json
from attention.pictures.over_picture import MapLine, TokenGrid
from attention.pictures.scales import FITTED
from attention.vision.examples import example_picture

pytestmark = [pytest.mark.browser, pytest.mark.long]  # a server with models that read pictures
OVER = "heads_drawn=over+the+picture"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return TinyPictureModels(Path(tmp_path_factory.mktemp("picture models")))("ViT")


@pytest.fixture(scope="module")
def picture_server(folder: str) -> Iterator[str]:
    assert folder  # made before the server starts
    with running_process(LAB_ALLOW_LOCAL_MODELS="yes") as (address, _):
        yield address


def test_click_on_a_patch_of_a_head_opens_its_cell(open_page: Open, picture_server: str, folder: str) -> None:
    trace = Model(folder, image=example_picture("two-cats")).trace()
    page = open_page(f"{picture_server}/heads?source=model&model={folder}&image=example:two-cats&{OVER}&q=3")
    drawn = heads_over_picture_json(MapLine.of(trace, "weights", query=3), colors=FITTED)
    np.testing.assert_array_equal(painted_numbers(page, 0), drawn["data"][0]["z"])
    images = page.locator(".figures .js-plotly-plot").first.locator(".imagelayer image")
    expect(images).to_have_count(8)
    expect(page.get_by_text("query 3 patch row 0, column 2")).to_be_visible()

    grid = TokenGrid.of(trace.tokens)
    assert grid is not None
    (placed,) = grid.pictures
    panels = drawn["layout"]["meta"]["panels"]
    panel = next(panel for panel in panels if (panel["layer"], panel["head"]) == (1, 2))
    row, column = panel["y"] + placed.y + 1, panel["x"] + placed.x

    # The arrow keys read the same cell.
    page.locator(".figures .js-plotly-plot").first.focus()
    for _ in range(column + 1):
        page.keyboard.press("ArrowRight")
    for _ in range(row):
        page.keyboard.press("ArrowDown")
    number = float(f"{float(trace.layers[1].matrix('weights', 2)[3, 4]):.4g}")
    spoken = page.locator(".figures .js-plotly-plot").first.locator(".visually-hidden")
    assert trace.tokens[4] == "patch row 1, column 0"
    assert isinstance(trace.tokens[4], Patch)
    expect(spoken).to_have_text(f"weights, layer 1 head 2, patch row 0, column 2 to patch row 1, column 0, {number:g}")

    # So does the mouse; between [CLS] and the picture there is nothing to read.
    tip = page.locator(".figures .js-plotly-plot").first.locator(".tip")
    page.mouse.move(*place_of_cell(page, 0, row, column))
    expect(tip).to_contain_text("L1 H2")
    expect(tip).to_contain_text("key 4 patch row 1, column 0")
    expect(tip).to_contain_text(f"{number:g}")

    act_and_settle(page, lambda: click_cell(page, 0, row=row, column=column))
    expect(page.get_by_role("heading", name="Attention Lab")).to_be_visible()
    state = query(page)
    assert (state["layer"], state["head"], state["q"], state["k"]) == ("1", "2", "3", "4")
    page.go_back()
    expect(page.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
    wait_until_settled(page)
    expect(images).to_have_count(8)


def test_mouse_reads_a_hidden_key_as_hidden(open_page: Open, picture_server: str, folder: str) -> None:
    folder = TinyPictureModels(Path(folder).parent)("LLaVA")
    trace = Model(folder, "the owl", image=example_picture("two-cats")).trace()
    page = open_page(
        f"{picture_server}/heads?source=model&model={folder}&text=the+owl&image=example:two-cats&{OVER}&layer=2&q=3"
    )
    grid = TokenGrid.of(trace.layers[2].tokens)
    assert grid is not None
    tip = page.locator(".figures .js-plotly-plot").first.locator(".tip")
    for position, words in (
        (5, "hidden by the mask"),
        (2, f"{float(trace.layers[2].matrix('weights', 0)[3, 2]):.5f}"[:6]),
    ):
        x, y, *_ = grid.box(position) or ()
        page.mouse.move(*place_of_cell(page, 0, y, x))
        expect(tip).to_contain_text(f"key {position} {trace.layers[2].tokens[position]}")
        expect(tip).to_contain_text(words)


def test_single_head_over_a_picture_opens_its_cell(open_page: Open, picture_server: str) -> None:
    page = open_page(f"{picture_server}/heads?source=trained&task=shapes&{OVER}&q=5")
    plot = page.locator(".figures .js-plotly-plot").first
    positions = page.evaluate(
        "Array.from(document.querySelector('.figures .js-plotly-plot').layout.meta.panel_grid.positions, (row) => Array.from(row))"
    )
    patch = positions[-2][1]  # of the last row but one, in the second column
    plot.focus()
    for key in ("ArrowRight", "ArrowRight", *["ArrowDown"] * (len(positions) - 2)):
        page.keyboard.press(key)
    expect(plot.locator(".visually-hidden")).to_contain_text("head 0, ring to patch row 3, column 1, ")
    act_and_settle(page, lambda: click_cell(page, 0, row=len(positions) - 2, column=1))
    expect(page.get_by_role("heading", name="Attention Lab")).to_be_visible()
    assert (query(page)["q"], query(page)["k"]) == ("5", str(patch))


def test_list_of_tokens_and_direction_change_every_head(open_page: Open, picture_server: str, folder: str) -> None:
    trace = Model(folder, image=example_picture("two-cats")).trace()
    page = open_page(f"{picture_server}/heads?source=model&model={folder}&image=example:two-cats&{OVER}")
    page.get_by_role("combobox", name="Query").click()
    act_and_settle(page, page.get_by_role("option", name="5 patch row 1, column 1").click)
    row = heads_over_picture_json(MapLine.of(trace, "weights", query=5), colors=FITTED)
    np.testing.assert_array_equal(painted_numbers(page, 0), row["data"][0]["z"])
    assert query(page)["q"] == "5"
    act_and_settle(page, lambda: page.locator(".controls select[name=over]").select_option("column"))
    column = heads_over_picture_json(MapLine.of(trace, "weights", key=0), colors=FITTED)
    np.testing.assert_array_equal(painted_numbers(page, 0), column["data"][0]["z"])
