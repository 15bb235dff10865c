"""The picture beside the maps in the browser: numbers at their patches, clicks, the keyboard, linked hover, live repaint."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from conftest import act_and_settle, click_cell, painted_numbers, place_of_cell, running_process, set_control
from margins import approx
from playwright.sync_api import Page, expect
from test_browser import Open, query
from test_browser_controls import follow, silent, temperature
from tiny_pictures import TinyPictureModels

from attention import Model, Override, Trace, explain
from attention.base.tokens import Patch
from attention.pictures.message_contract import NO_TOKEN
from attention.pictures.over_picture import TokenGrid
from attention.vision.examples import example_picture

pytestmark = pytest.mark.browser
PICTURE = "two-cats"
TEXT = "the owl asked the moon"
CHOSEN = {"q": "3", "k": "5"}


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> TinyPictureModels:
    return TinyPictureModels(tmp_path_factory.mktemp("picture models"))


@pytest.fixture(scope="module")
def lab(models: TinyPictureModels) -> Iterator[str]:
    """A server that reads models of local folders."""
    with running_process(LAB_ALLOW_LOCAL_MODELS="yes") as (address, _):
        yield address


def link(lab: str, folder: str, page: str = "", **knobs: Any) -> str:
    return f"{lab}/{page}?" + urlencode({"source": "model", "model": folder, "image": f"example:{PICTURE}", **knobs})


def source(folder: str, text: str = "") -> Model:
    return Model(folder, text, image=example_picture(PICTURE))


def grid_of(trace: Trace, layer: int = 0) -> TokenGrid:
    grid = TokenGrid.of(trace.layers[layer].tokens)
    assert grid is not None
    return grid


def place(grid: TokenGrid, position: int) -> tuple[int, int]:
    """The row and the column of a token in the picture."""
    x, y, *_ = grid.box(position) or (-1, -1)
    return y, x


def picture(page: Page) -> Any:
    return page.locator(".figures .js-plotly-plot.over-picture")


def speech(page: Page) -> Any:
    return expect(picture(page).locator("[aria-live]"))


def test_painted_rows_and_columns_are_those_of_the_maps(models: TinyPictureModels, open_page: Open, lab: str) -> None:
    folder = models("DINOv2 with registers")
    trace = source(folder).trace()
    layer, grid = trace.layers[1], grid_of(trace)
    page = open_page(link(lab, folder, layer=1, head=2, **CHOSEN))
    weights = layer.matrix("weights", 2).numpy()
    np.testing.assert_array_equal(painted_numbers(page, 0), grid.fill(weights[3]))
    set_control(page, "over", "column")
    assert query(page)["over"] == "column"
    np.testing.assert_array_equal(painted_numbers(page, 0), grid.fill(weights[:, 5]))
    # A feature has no row over the picture: its column is drawn whichever is chosen. A step of features opens at the first one.
    act_and_settle(page, page.locator(".strip button[name=value]").click)
    set_control(page, "over", "row")
    np.testing.assert_array_equal(painted_numbers(page, 0), grid.fill(layer.matrix("value", 2).numpy()[:, 0]))
    act_and_settle(page, lambda: click_cell(page, 0, *place(grid, 7)))
    assert (query(page)["q"], query(page)["k"], query(page)["column"]) == ("3", "7", "0")
    # The mask that users click has the same picture.
    page = open_page(link(lab, folder, layer=1, head=2, explore_mask="true", **CHOSEN))
    np.testing.assert_array_equal(painted_numbers(page, 0), grid.fill(weights[3]))


def test_click_explains_a_patch_and_double_click_asks_it(models: TinyPictureModels, open_page: Open, lab: str) -> None:
    folder = models("ViT")
    trace = source(folder).trace()
    grid = grid_of(trace)
    page = open_page(link(lab, folder, **CHOSEN))
    act_and_settle(page, lambda: click_cell(page, 0, *place(grid, 6)))
    assert (query(page)["q"], query(page)["k"]) == ("3", "6")
    explanation = explain(trace, "weights", q=3, k=6)
    expect(page.locator(".answer-line .number")).to_have_text(explanation.displayed_value)
    expect(page.locator(".answer-line .side.k code")).to_have_text("patch row 1, column 2")
    expect(page.get_by_text("key 6 (patch row 1, column 2)")).to_be_visible()
    act_and_settle(page, lambda: page.mouse.dblclick(*place_of_cell(page, 0, *place(grid, 2))))
    page.wait_for_function("location.search.includes('q=2')")
    assert (query(page)["q"], query(page)["k"]) == ("2", "2")
    np.testing.assert_array_equal(painted_numbers(page, 0), grid.fill(trace.layers[0].matrix("weights", 0)[2].numpy()))
    # Where there is no token, a click chooses nothing.
    gap = next(zip(*np.nonzero(grid.positions == NO_TOKEN), strict=True))
    silent(page, lambda: click_cell(page, 0, *map(int, gap)))


def test_word_is_chosen_as_a_query_in_the_picture(models: TinyPictureModels, open_page: Open, lab: str) -> None:
    folder = models("LLaVA")
    trace = source(folder, TEXT).trace()
    number = next(i for i, layer in enumerate(trace.layers) if layer.name.startswith("text"))
    layer, grid = trace.layers[number], grid_of(trace, number)
    word = len(layer.tokens) - 1
    page = open_page(link(lab, folder, text=TEXT, layer=number))
    act_and_settle(page, lambda: page.mouse.dblclick(*place_of_cell(page, 0, *place(grid, word))))
    page.wait_for_function("(word) => location.search.includes(`q=${word}`)", arg=word)
    np.testing.assert_array_equal(painted_numbers(page, 0), grid.fill(layer.matrix("weights", 0)[word].numpy()))
    # A causal mask hides later tokens from a patch.
    page = open_page(link(lab, folder, text=TEXT, layer=number, q=2))
    hidden = page.evaluate(
        "document.querySelector('.figures .js-plotly-plot').data[1].z.map((line) => Array.from(line, (cell) => cell === 1))"
    )
    np.testing.assert_array_equal(np.array(hidden), grid.positions > 2)


def test_arrows_move_over_patches_and_speak_their_numbers(models: TinyPictureModels, open_page: Open, lab: str) -> None:
    folder = models("ViT")
    trace = source(folder).trace()
    row = trace.layers[0].matrix("weights", 0)[3].numpy()
    page = open_page(link(lab, folder, **CHOSEN))  # key 5: row 1, column 1
    picture(page).focus()
    expect(picture(page)).to_have_attribute("role", "application")
    page.keyboard.press("ArrowRight")
    speech(page).to_have_text(f"row 1, column 2: {float(f'{row[6]:.4g}')}")
    page.keyboard.press("ArrowRight")  # an arrow at the edge stays there
    speech(page).to_contain_text("row 1, column 2: ")
    page.keyboard.press("ArrowUp")
    speech(page).to_have_text(f"row 0, column 2: {float(f'{row[3]:.4g}')}")
    page.keyboard.press("ArrowUp")
    speech(page).to_have_text(f"[CLS]: {float(f'{row[0]:.4g}')}")
    page.keyboard.press("ArrowDown")
    speech(page).to_contain_text("row 0, column ")
    expect(picture(page).locator(".cursor")).to_be_visible()
    for _ in range(2):
        page.keyboard.press("ArrowLeft")
    act_and_settle(page, lambda: page.keyboard.press("Enter"))
    assert (query(page)["q"], query(page)["k"]) == ("3", "1")
    page.keyboard.press("ArrowDown")
    act_and_settle(page, lambda: page.keyboard.press("Shift+Enter"))
    assert (query(page)["q"], query(page)["k"]) == ("4", "4")


def frame(page: Page, index: int) -> list[float] | None:
    """The cells that the frame of a linked cell covers in a figure: left, top, columns, rows; None if it is hidden."""
    cells: list[float] | None = page.evaluate(
        """(i) => { const plot = document.querySelectorAll('.figures .js-plotly-plot')[i], frame = plot.querySelector('.link:not(.other)');
            if (!frame || frame.hidden) return null;
            const { xaxis, yaxis } = plot._fullLayout, { style } = frame, number = (text) => parseFloat(text);
            const [x0, y0] = [xaxis.p2l(number(style.left) + 2 - xaxis._offset), yaxis.p2l(number(style.top) + 2 - yaxis._offset)];
            const [x1, y1] = [number(style.left) + number(style.width) - 2 - xaxis._offset, number(style.top) + number(style.height) - 2 - yaxis._offset];
            return [x0 + 0.5, y0 + 0.5, xaxis.p2l(x1) - x0, yaxis.p2l(y1) - y0].map((cell) => Math.round(cell * 100) / 100); }""",
        index,
    )
    return cells


def test_hover_on_a_map_or_the_picture_shows_both(models: TinyPictureModels, open_page: Open, lab: str) -> None:
    folder = models("ViT")
    grid = grid_of(source(folder).trace())
    page = open_page(link(lab, folder, **CHOSEN))
    steps = page.evaluate("document.querySelector('.figures').figureState.pictures.map(({ meta }) => meta.step)")
    assert steps == ["weights", "scores", "weights", "output"]
    page.mouse.move(*place_of_cell(page, 2, row=2, column=6))
    page.wait_for_function("document.querySelector('.over-picture .link:not([hidden])')")
    y, x = place(grid, 6)
    assert frame(page, 0) == [x, y, 1, 1]
    page.mouse.move(*place_of_cell(page, 0, *place(grid, 4)))
    page.wait_for_function(
        "document.querySelectorAll('.figures .js-plotly-plot')[2].querySelector('.link:not([hidden])')"
    )
    assert [frame(page, i) for i in range(4)] == [None, [4, 3, 1, 1], [4, 3, 1, 1], None]


def test_dragged_temperature_repaints_the_picture_without_the_server(
    models: TinyPictureModels, open_page: Open, lab: str
) -> None:
    folder = models("DINOv2 with registers")
    grid = grid_of(source(folder).trace())
    page = open_page(link(lab, folder, **CHOSEN))
    for position in (60, 150):
        silent(page, lambda position=position: follow(page, "temperature", position))
        override = Override(temperature=temperature(page))
        row = replace(source(folder), config=override).trace().layers[0].matrix("weights", 0)[3].numpy()
        painted = painted_numbers(page, 0)
        assert painted == approx(grid.fill(row), nan=True)
        heat = page.evaluate(
            "(({ zmin, zmax }) => [zmin, zmax])(document.querySelector('.figures .js-plotly-plot').data[0])"
        )
        assert heat == approx([0, painted[grid.pictures[0].area].max()])
        on_picture = float(row[grid.positions[grid.pictures[0].area]].sum())
        expect(picture(page).locator(".gtitle-subtitle")).to_contain_text(
            f"{on_picture:.2f} on the picture, {1 - on_picture:.2f} on other tokens"
        )
    # The answer of the server is the same picture.
    act_and_settle(page, lambda: page.locator(".controls [name=temperature]").dispatch_event("change"))
    assert painted_numbers(page, 0) == approx(painted, nan=True)


def test_heat_fades_at_once_and_stands_in_the_address(models: TinyPictureModels, open_page: Open, lab: str) -> None:
    page = open_page(link(lab, models("ViT"), **CHOSEN))
    heat = page.locator(".controls [name=heat]")
    opacity = "document.querySelector('.over-picture .hm image').style.opacity"
    assert page.evaluate(opacity) == "0.6"
    silent(page, lambda: heat.evaluate("(knob) => { knob.value = 50; knob.dispatchEvent(new Event('input')); }"))
    assert page.evaluate(opacity) == "0.25"
    act_and_settle(page, lambda: heat.dispatch_event("change"))
    assert query(page)["heat"] == "0.25"
    assert page.evaluate(opacity) == "0.25"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_picture_fits_a_phone_in_both_themes(models: TinyPictureModels, open_page: Open, lab: str, scheme: str) -> None:
    page = open_page(
        link(lab, models("ViT"), **CHOSEN), viewport={"width": 390, "height": 844}, color_scheme=scheme, has_touch=True
    )
    box = picture(page).bounding_box()
    assert box
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= 390
    assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= 390
    sides = page.evaluate(
        "(({ xaxis, yaxis }) => [xaxis, yaxis].map((axis) => Math.abs(axis.l2p(1) - axis.l2p(0))))(document.querySelector('.over-picture')._fullLayout)"
    )
    assert sides[0] == approx(sides[1], nan=True)
    assert sides[0] > 24  # as large as a finger needs it
    grid = grid_of(source(models("ViT")).trace())
    # A tap is one click, although Plotly reports it twice.
    x, y = place_of_cell(page, 0, *place(grid, 2))
    fingers = page.context.new_cdp_session(page)
    tapped = {"x": x, "y": y, "gestureSourceType": "touch"}
    act_and_settle(page, lambda: fingers.send("Input.synthesizeTapGesture", tapped))
    assert (query(page)["q"], query(page)["k"]) == ("3", "2")
    fingers.detach()


def test_compare_shows_both_states_and_the_change_over_pictures(
    models: TinyPictureModels, open_page: Open, lab: str
) -> None:
    folder = models("ViT")
    trace = source(folder).trace()
    other = replace(source(folder), image=example_picture("odd-patch")).trace()
    grid = grid_of(trace)
    first, second = (each.layers[0].matrix("weights", 0)[3].numpy() for each in (trace, other))
    page = open_page(link(lab, folder, compare="image=example:odd-patch", **CHOSEN))
    for index, numbers in enumerate((first, second, second - first)):
        np.testing.assert_array_equal(painted_numbers(page, index), grid.fill(numbers))
    np.testing.assert_array_equal(
        painted_numbers(page, 5), (other.layers[0].matrix("weights", 0) - trace.layers[0].matrix("weights", 0)).numpy()
    )
    page.mouse.move(*place_of_cell(page, 0, *place(grid, 4)))
    page.wait_for_function(
        "document.querySelectorAll('.figures .js-plotly-plot')[5].querySelector('.link:not([hidden])')"
    )
    y, x = place(grid, 4)
    assert [frame(page, i) for i in range(6)] == [None, [x, y, 1, 1], [x, y, 1, 1], *[[4, 3, 1, 1]] * 3]
    for index, position in ((1, 2), (2, 6)):
        act_and_settle(page, lambda index=index, position=position: click_cell(page, index, *place(grid, position)))
        assert query(page)["k"] == str(position)
        assert query(page)["q"] == "3"


def test_changed_mask_hides_patches_at_once(models: TinyPictureModels, open_page: Open, lab: str) -> None:
    folder = models("ViT")
    grid = grid_of(source(folder).trace())
    page = open_page(link(lab, folder, **CHOSEN))
    page.evaluate(  # no answer comes: the page must compute the picture itself
        "() => { WebSocket.prototype.send = () => {}; document.querySelector('.figures').figureState.frames = 0; }"
    )
    page.evaluate("document.querySelector('.figures').scrollIntoView()")
    page.locator(".controls [name=mask]").evaluate(
        "(mask) => { mask.value = 'causal'; mask.dispatchEvent(new Event('change')); }"
    )
    page.wait_for_function("document.querySelector('.figures').figureState.frames > 0")
    row = replace(source(folder), config=Override(mask="causal")).trace().layers[0].matrix("weights", 0)[3].numpy()
    visible = np.where(np.arange(len(row)) <= 3, row, np.float32(np.nan))
    assert painted_numbers(page, 0) == approx(grid.fill(visible), nan=True)
    hidden = page.evaluate("Array.from(document.querySelector('.figures .js-plotly-plot').data[1].z.at(-1))")
    assert [cell == 1 for cell in hidden][:3] == [True] * 3
    picture(page).focus()
    page.keyboard.press("ArrowRight")
    speech(page).to_have_text("row 1, column 2: hidden by the mask")


def test_controls_of_the_picture_stand_only_beside_one(models: TinyPictureModels, open_page: Open, lab: str) -> None:
    page = open_page(link(lab, models("CLIP"), text=TEXT))
    assert page.locator(".controls [name=over], .controls [name=heat]").count() == 2
    set_control(page, "layer", "2")  # the first layer of the text
    assert page.locator(".controls [name=over], .controls [name=heat]").count() == 0
    assert page.locator(".over-picture").count() == 0
    # The element of the picture shows a map now: it has the keys of a map, and can be zoomed.
    first = page.locator(".figures .js-plotly-plot").first
    expect(first).to_have_attribute(
        "aria-roledescription", "heatmap: arrow keys move over its cells, Enter explains one"
    )
    assert page.evaluate("document.querySelector('.figures .js-plotly-plot')._fullLayout.xaxis.fixedrange") is False
    act_and_settle(page, lambda: click_cell(page, 0, row=2, column=1))
    assert (query(page)["q"], query(page)["k"]) == ("2", "1")


def test_first_screen_draws_patches_over_their_picture(models: TinyPictureModels, open_page: Open, lab: str) -> None:
    folder = models("ViT")
    layer = source(folder).trace().layers[0]
    page = open_page(link(lab, folder, **CHOSEN), sidebar=False)
    patches = page.locator(".screen .picture .word")
    shares = layer["weights"][0, 3, 1:].tolist()
    expect(patches).to_have_count(len(shares))
    assert patches.evaluate_all("(all) => all.map(({ ariaLabel }) => ariaLabel)") == [
        f"patch row {patch.row}, column {patch.column}, {round(100 * share)}\u00a0%"
        for patch, share in zip(layer.tokens[1:], shares, strict=True)
        if isinstance(patch, Patch)
    ]
    strengths = patches.evaluate_all(
        "(all) => all.map(({ style }) => Number(style.background.match(/[\\d.]+(?=\\))/)[0]))"
    )
    largest = max(shares)
    assert strengths == approx([0.7 * share / largest for share in shares], step=0.01)
    assert "data:image" in (page.locator(".screen .picture").get_attribute("style") or "")
    expect(page.locator(".screen .most")).to_have_text(f"up to {round(100 * largest)}\u00a0%")
    expect(page.locator(".screen .type")).to_have_count(0)  # a picture is not typed
    expect(patches.nth(2)).to_have_attribute("aria-pressed", "true")
    patches.nth(2).focus()
    page.keyboard.press("ArrowDown")
    act_and_settle(page, lambda: page.keyboard.press("Enter"))
    assert query(page)["q"] == "6"
    expect(patches.nth(5)).to_be_focused()
    act_and_settle(page, lambda: patches.nth(1).click(modifiers=["Shift"]))
    assert (query(page)["q"], query(page)["k"]) == ("6", "2")


@pytest.mark.sample(1)
@pytest.mark.parametrize(("model", "layer"), [("tiny-swin", 1), ("tiny-mae", 1)])
def test_patches_of_the_first_screen_stand_where_they_are(open_page: Open, lab: str, model: str, layer: int) -> None:
    """In windows, and without those that are hidden, patches come in another order than row by row."""
    page = open_page(link(lab, model, layer=layer))
    tokens = [token for token in source(model).trace().layers[layer].tokens if isinstance(token, Patch)]
    shown = page.locator("#root .screen .picture > .token")
    expect(shown).to_have_count(len(tokens))
    areas = shown.evaluate_all("all => all.map(each => [each.style.gridRowStart, each.style.gridColumnStart])")
    assert areas == [[f"{token.row + 1}", f"{token.column + 1}"] for token in tokens]
    boxes = shown.evaluate_all("all => all.map(each => [each.offsetTop, each.offsetLeft])")
    by_place = sorted(zip(boxes, [(token.row, token.column) for token in tokens], strict=True))
    assert [place for _, place in by_place] == sorted(place for _, place in by_place)
