"""A new d_model gives the output other columns: the page does that without Plotly, and nobody could tell."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlencode

import numpy as np
import pytest
from conftest import acted, cell_of, click_cell, painted, turned
from playwright.sync_api import Page
from test_browser import Open
from test_browser_hand import TEXT, drag, layer

pytestmark = pytest.mark.browser

# The map as it is seen, but for the bytes of its picture, and what Plotly would read of it next.
MAP = """() => { const plot = document.querySelectorAll('.js-plotly-plot')[2], { xaxis, yaxis, shapes, title, uirevision } = plot._fullLayout;
    const seen = [...plot.querySelectorAll('svg.main-svg')].map((svg) => svg.outerHTML).join('').replaceAll(/href="[^"]*"/g, '');
    const [{ x, y, z, trace }] = plot.calcdata[0], cells = [x, y, ...z].map((row) => Array.from(row));
    const axis = ({ range, _r, _rl, _m, _b, tickvals, ticktext, labelalias, uirevision, _rangeInitial0, _rangeInitial1 }) =>
        [range, _r, _rl, _m, _b, tickvals, ticktext, labelalias, uirevision, _rangeInitial0, _rangeInitial1];
    return [seen, axis(xaxis), axis(yaxis), shapes.map(({ x0, x1, y0, y1 }) => [x0, x1, y0, y1]), title.subtitle.text, uirevision, cells,
        [trace.x0, trace.dx, trace.y0, trace.dy, trace.zmin, trace.zmax, trace.colorbar.ticktext]]; }"""


def the_map(page: Page) -> list[Any]:
    seen, *known = page.evaluate(MAP)
    return [re.sub(r"\b(g|clip|legend)[0-9a-f]{6}", r"\1", seen), *known]


def enter(page: Page, d_model: int) -> int:
    """A new d_model above the maps; how often Plotly drew a map for it."""
    page.evaluate(
        """() => { window.drawn = 0; window.react ??= Plotly.react;
            Plotly.react = (...all) => { window.drawn += 1; return window.react(...all); }; }"""
    )
    turned(page, "d_model", str(d_model))
    return int(page.evaluate("window.drawn"))


@pytest.mark.parametrize(
    ("text", "knobs", "widths"),
    [
        (TEXT, {}, (64, 40, 56)),
        (" ".join(f"w{i % 90}" for i in range(300)), {"heads": "1"}, (65, 63, 70)),  # blocks of 2 × 2, the last one cut
        (" ".join(f"w{i}" for i in range(600)), {}, (68, 128)),  # pooled by Python
    ],
)
def test_other_columns_are_drawn_as_plotly_draws_them(
    open_page: Open, server: str, text: str, knobs: dict[str, str], widths: tuple[int, ...]
) -> None:
    page = open_page(f"{server}/?{urlencode({'text': text, **knobs})}")
    for width in widths[1:] if text == TEXT else widths:
        assert enter(page, width) == 0
        mine = the_map(page)
        page.evaluate("Plotly.redraw(document.querySelectorAll('.js-plotly-plot')[2])")
        assert the_map(page) == mine
        assert mine[4].endswith(f"{len(text.split())} × {width}") or "each cell the largest" in mine[4]
    if text == TEXT:
        np.testing.assert_allclose(painted(page, 2), layer(d_model=widths[-1]).output.numpy(), atol=1e-6)


def test_a_map_with_other_columns_is_zoomed_clicked_and_changed_again(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT})}")
    range_now = "document.querySelectorAll('.js-plotly-plot')[2]._fullLayout.xaxis.range"
    assert enter(page, 80) == 0
    drag(page, 2, (8, 1), (70, 4))
    page.wait_for_function(f"{range_now}[1] - {range_now}[0] < 70")
    assert enter(page, 84) == 1  # a zoomed map is Plotly's; other columns are seen whole
    assert page.evaluate(range_now) == [-0.5, 83.5]
    drag(page, 2, (8, 1), (70, 4))
    page.wait_for_function(f"{range_now}[1] - {range_now}[0] < 70")
    # On a busy machine the two clicks come late, and the next one early; Plotly tells them apart by time alone.
    within = """(within) => { const plot = document.querySelectorAll('.js-plotly-plot')[2];
        plot._mouseDownTime = 0;
        plot._context.doubleClickDelay = within; }"""
    page.evaluate(within, 60_000)
    page.locator(".js-plotly-plot").nth(2).locator(".nsewdrag").dblclick()
    page.wait_for_function(f"{range_now}[1] === 83.5")
    page.evaluate(within, 0)
    acted(page, lambda: click_cell(page, 2, 3, 83))
    page.wait_for_function("location.search.includes('step=output') && location.search.includes('k=83')")
    assert "83" in cell_of(page)
    assert enter(page, 88) == 1  # the marked column has moved
    np.testing.assert_allclose(painted(page, 2), layer(d_model=88).output.numpy(), atol=1e-6)


def test_ticks_that_were_painted_over_are_plotly_s_again_when_it_draws(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT})}")
    first = the_map(page)
    assert enter(page, 40) == 0
    assert the_map(page)[0] != first[0]
    page.evaluate("document.querySelectorAll('.js-plotly-plot')[2].drawn = null")  # Plotly's turn
    assert enter(page, 64) == 1
    assert the_map(page) == first
