"""Zooming a map: the tokens on its axes follow, and neighbouring maps with the same axis zoom too."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from conftest import painted_numbers, place_of_cell, set_control, still_box, wait_until_settled
from margins import approx
from playwright.sync_api import Page, expect
from test_browser import Open
from test_browser_controls import at_once, click, drag, follow, temperature

from attention import AttentionConfig, TypedText
from attention.pictures.heatmap import heatmap_json
from attention.trace.large_map import pool_blocks

pytestmark = pytest.mark.browser
LONG = " ".join(f"w{i}" for i in range(300))

# For every map and axis: its range, and the position and text of its ticks.
SEEN = """() => [...document.querySelectorAll('.figures .js-plotly-plot')].map((plot) => ['x', 'y'].map((letter) => {
    const axis = plot._fullLayout[`${letter}axis`];
    const ticks = [...plot.querySelectorAll(`.${letter}tick`)].map((tick) => [Math.round(tick.__data__.x * 100) / 100, tick.textContent, tick.getBoundingClientRect()]);
    const boxes = ticks.map(([, , box]) => (letter === 'x' ? [box.left, box.right] : [box.top, box.bottom])).sort((first, second) => first[0] - second[0]);
    return { range: [...axis.range].sort((first, second) => first - second), ticks: ticks.map(([place, text]) => [place, text]),
        overlap: Math.max(-99, ...boxes.slice(1).map(([start], i) => boxes[i][1] - start)) };
}))"""


def axes_of_maps(page: Page) -> list[list[dict[str, Any]]]:
    page.evaluate("document.querySelector('.figures').scrollIntoView()")  # fractions of a pixel depend on the place
    return page.evaluate(SEEN)


def zoom(page: Page, index: int, start: tuple[int, int], target: tuple[int, int]) -> None:
    """Drags from one cell (column, row) to another, and waits until the map shows the area between them."""
    range_now = f"document.querySelectorAll('.figures .js-plotly-plot')[{index}]._fullLayout.xaxis.range"
    initial_range = page.evaluate(range_now)
    drag(page, index, start, target)
    page.wait_for_function(f"String({range_now}) !== {str(','.join(f'{end:g}' for end in initial_range))!r}")
    wait_until_settled(page)


def check_ticks(axis: dict[str, Any], minimum: int) -> None:
    """Asserts that at least `minimum` tokens have ticks at their positions, without overlap."""
    low, high = axis["range"]
    assert minimum <= len(axis["ticks"]) <= 40
    assert axis["overlap"] < 3  # the boxes of fonts are higher than their letters
    for place, text in axis["ticks"]:
        assert low <= place <= high
        assert text == f"{round(place)} w{round(place)}"


def test_ticks_and_hover_follow_the_zoom_of_linked_maps(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': LONG, 'mask': 'causal'})}")
    unzoomed = axes_of_maps(page)
    zoom(page, 1, (100, 150), (140, 190))
    scores, weights, output = axes_of_maps(page)
    for axis in (*scores, *weights, output[1]):
        check_ticks(axis, minimum=10)
    assert weights[0]["range"] == approx([100, 140], within=2, why="the precision of the mouse")
    assert weights[1]["range"] == approx([150, 190], within=2, why="the precision of the mouse")
    assert [axis["range"] for axis in scores] == [axis["range"] for axis in weights]  # the same queries and keys
    assert output[1]["range"] == weights[1]["range"]  # the same queries
    assert output[0] == unzoomed[2][0]  # other columns

    # A hover shows position and token.
    x, y = place_of_cell(page, 1, row=154, column=104)
    page.mouse.move(x - 3, y)
    page.mouse.move(x, y)
    hover = page.locator(".figures .js-plotly-plot").nth(1).locator(".hovertext")
    expect(hover).to_contain_text("query 154 “w154”")
    expect(hover).to_contain_text("key 104 “w104”")

    set_control(page, "head", "2")  # a knob
    assert axes_of_maps(page) == [scores, weights, output]
    follow(page, "temperature", 150)
    assert axes_of_maps(page) == [scores, weights, output]
    # The page leaves the same queries out of the scale as Python: those of few keys have weights near 1.
    drawn = TypedText(LONG, AttentionConfig(mask="causal", temperature=temperature(page))).trace()
    ends = heatmap_json(drawn, "weights", 0, 2, colors="stretched")["data"][0]
    assert ends["zmax"] < float(drawn.layers[0].matrix("weights", 2).max())
    painted = page.evaluate(
        "(({ zmin, zmax }) => [zmin, zmax])(document.querySelectorAll('.figures .js-plotly-plot')[1].data[0])"
    )
    assert painted == approx([ends["zmin"], ends["zmax"]])

    zoom(page, 0, (105, 160), (112, 166))  # further zoom, in the other map: every token
    scores, weights, output = axes_of_maps(page)
    first, last = weights[1]["range"]
    assert [text for _, text in sorted(weights[1]["ticks"])] == [
        f"{i} w{i}" for i in range(int(np.ceil(first)), int(np.floor(last)) + 1)
    ]
    assert scores[1] == weights[1]

    at_once(page, 0, click((108, 163)) * 2)
    page.wait_for_function(
        "document.querySelectorAll('.figures .js-plotly-plot')[1]._fullLayout.xaxis.range[1] === 299.5"
    )
    wait_until_settled(page)
    assert axes_of_maps(page) == unzoomed


def test_python_pooled_maps_zoom_together(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?explore_mask=true&{urlencode({'text': LONG, 'mask': 'causal'})}")
    assert painted_numbers(page, 5).shape[1] < 300
    zoom(page, 5, (100, 150), (140, 190))
    page.wait_for_function(
        "[4, 5].every((i) => { const [{dx, dy}] = document.querySelectorAll('.figures .js-plotly-plot')[i].data; return dx === 1 && dy === 1; })"
    )
    mask, masked, weights = axes_of_maps(page)[3:6]
    for axis in (*mask, *masked, *weights):
        check_ticks(axis, minimum=10)
    assert [axis["range"] for axis in mask] == [axis["range"] for axis in masked] == [axis["range"] for axis in weights]


def test_the_overview_of_a_large_map_moves_what_its_neighbours_show_too(open_page: Open, server: str) -> None:
    knobs = {"text": LONG, "mask": "causal"}
    page = open_page(f"{server}/?{urlencode(knobs)}")
    overviews = page.locator(".figures .overview")
    expect(overviews).to_have_count(3)
    weights = overviews.nth(1)
    weights.scroll_into_view_if_needed()
    expect(weights).to_have_attribute("aria-label", "Overview of weights. Shown: all of 300 by 300.")
    # Its pixels are block maxima of the matrix that Python has: 75 × 75 blocks of 4 × 4.
    assert weights.locator("canvas").evaluate("canvas => [canvas.width, canvas.height]") == [75, 75]
    box = still_box(weights)
    # A drag draws the shown part.
    x, y, side = box["x"], box["y"], box["width"]
    page.mouse.move(x + 0.5 * side, y + 0.5 * side)
    page.mouse.down()
    page.mouse.move(x + 0.9 * side, y + 0.7 * side, steps=4)
    page.mouse.up()
    shown = re.compile(r"Shown: query 1\d\d to 2\d\d of 300, key 1\d\d to 2\d\d of 300\.")
    expect(weights).to_have_attribute("aria-label", shown)
    wait_until_settled(page)
    scores, ours, _ = axes_of_maps(page)[:3]
    assert [axis["range"] for axis in scores] == [axis["range"] for axis in ours]
    assert ours[0]["range"][0] == approx(149.5, within=4, why="the precision of the mouse")
    assert ours[1]["range"][1] == approx(209.5, within=4, why="the precision of the mouse")
    # Keys move it by a quarter of what is shown, change its size, and show all again.
    before = ours[0]["range"]
    weights.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function(
        f"document.querySelectorAll('.figures .js-plotly-plot')[1]._fullLayout.xaxis.range[0] < {before[0] - 10}"
    )
    wait_until_settled(page)
    after = axes_of_maps(page)[1][0]["range"]
    assert after[1] - after[0] == approx(before[1] - before[0], within=1, why="the precision of the mouse")
    page.keyboard.press("Home")
    expect(weights).to_have_attribute("aria-label", "Overview of weights. Shown: all of 300 by 300.")
    # A click shows single cells around it.
    weights.click(position={"x": 0.5 * side, "y": 0.5 * side})
    expect(weights).to_have_attribute(
        "aria-label", re.compile(r"Shown: query 2\d to 2\d\d of 300, key 2\d to 2\d\d of 300")
    )


def test_a_map_that_is_not_kept_has_its_overview_from_python(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': LONG, 'mask': 'causal', 'positions': 'alibi'})}")
    weights = page.locator(".figures .overview").nth(1)
    weights.scroll_into_view_if_needed()
    weights.focus()
    page.keyboard.press("+")
    page.wait_for_function("document.querySelectorAll('.figures .js-plotly-plot')[1].data[0].dx === 1")
    wait_until_settled(page)
    expect(weights).to_have_attribute("aria-label", re.compile("Shown: query 75 to 224 of 300, key 75 to 224 of 300"))
    trace = TypedText(LONG, AttentionConfig(mask="causal", positions="alibi")).trace()
    assert painted_numbers(page, 1) == approx(trace.layers[0].weights[0][75:225, 75:225])
    overview = page.evaluate(
        "() => document.querySelector('.figures').figureState.pictures[1].meta.overview.map((row) => Array.from(row))"
    )
    assert overview == approx(pool_blocks(trace.layers[0].weights[0].numpy(), 5, 5))
    # Until Python has sent another part, the map shows the overview.
    page.evaluate(
        """() => { const { figureState: state } = document.querySelector('.figures'); const [, { brush }] = state.pictures;
            return brush.show({ down: [0, 40], across: [0, 40] }, false); }"""
    )
    assert painted_numbers(page, 1) == approx(overview)
    page.keyboard.press("Home")
    expect(weights).to_have_attribute("aria-label", "Overview of weights. Shown: all of 300 by 300.")
