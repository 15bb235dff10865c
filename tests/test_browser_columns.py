"""A new d_model gives the output other columns; where cells cannot be painted over, Plotly draws the map."""

from __future__ import annotations

from urllib.parse import urlencode

import numpy as np
import pytest
from conftest import acted, cell_of, click_cell, painted, settled, turned
from test_browser import Open
from test_browser_hand import TEXT, drag, follow, layer, temperature

pytestmark = pytest.mark.browser


@pytest.mark.parametrize(
    ("text", "knobs", "facts", "columns"),
    [
        (TEXT, {}, "6 × 40", 40),
        (" ".join(f"w{i % 90}" for i in range(300)), {"heads": "1"}, "each cell the largest of 2 × 2", 20),
        (" ".join(f"w{i}" for i in range(600)), {}, "each cell the largest of 3 × 3", 14),
    ],
)
def test_a_map_has_as_many_columns_as_d_model(
    open_page: Open, server: str, text: str, knobs: dict[str, str], facts: str, columns: int
) -> None:
    page = open_page(f"{server}/?{urlencode({'text': text, **knobs})}")
    turned(page, "d_model", "40")
    output = page.locator(".js-plotly-plot").nth(2)
    assert facts in output.locator(".gtitle-subtitle").text_content()
    assert painted(page, 2).shape[1] == columns
    assert output.evaluate("({_fullLayout: {xaxis}}) => xaxis.range") == [-0.5, 39.5]
    if text == TEXT:
        np.testing.assert_allclose(painted(page, 2), layer(d_model=40).output.numpy(), atol=1e-6)


def test_a_map_with_other_columns_is_zoomed_clicked_and_changed_again(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT})}")
    range_now = "document.querySelectorAll('.js-plotly-plot')[2]._fullLayout.xaxis.range"
    turned(page, "d_model", "80")
    drag(page, 2, (8, 1), (70, 4))
    page.wait_for_function(f"{range_now}[1] - {range_now}[0] < 70")
    turned(page, "d_model", "84")
    assert page.evaluate(range_now) == [-0.5, 83.5]  # other columns are seen whole
    drag(page, 2, (8, 1), (70, 4))
    page.wait_for_function(f"{range_now}[1] - {range_now}[0] < 70")
    settled(page)  # what is drawn after the zoom would set the delay back
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
    turned(page, "d_model", "88")
    np.testing.assert_allclose(painted(page, 2), layer(d_model=88).output.numpy(), atol=1e-6)


def test_a_map_whose_cells_cannot_be_painted_over_is_drawn_by_plotly(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT})}")
    shown = page.locator(".js-plotly-plot").nth(1).locator(".heatmap-label text")
    # As if another Plotly kept something else: painting over ends in the middle.
    page.evaluate("Object.freeze(document.querySelectorAll('.js-plotly-plot')[1].calcdata[0][0])")
    for place in (30, 170):
        follow(page, "temperature", place)
        weights = layer(temperature=temperature(page)).weights[0].numpy()
        np.testing.assert_allclose(painted(page, 1), weights, atol=1e-6)
        assert shown.all_text_contents() == [f"{number:.2f}" for number in weights.flatten()]
