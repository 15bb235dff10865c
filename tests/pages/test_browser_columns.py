"""A new d_model changes the columns of the output; where cells cannot be repainted in place, Plotly draws the map."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from conftest import act_and_settle, chosen_cell_line, click_cell, painted_numbers, set_control, wait_until_settled
from margins import approx
from test_browser import Open
from test_browser_controls import TEXT, at_once, click, drag, follow, layer, output_has_columns, temperature

pytestmark = [pytest.mark.browser, pytest.mark.long]  # what cannot be repainted in place


def test_map_of_600_tokens_has_d_model_columns(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': ' '.join(f'w{i}' for i in range(600))})}")
    output_has_columns(page, "each cell the largest of 3 × 3", 14)


def test_map_with_d_model_columns_zooms_clicks_updates_and_redraws(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT})}")
    range_now = "document.querySelectorAll('.figures .js-plotly-plot')[2]._fullLayout.xaxis.range"
    output_has_columns(page, "6 × 40", 40)
    assert painted_numbers(page, 2) == approx(layer(d_model=40).output.numpy())
    set_control(page, "d_model", "80")
    drag(page, 2, (8, 1), (70, 4))
    page.wait_for_function(f"{range_now}[1] - {range_now}[0] < 70")
    set_control(page, "d_model", "84")
    assert page.evaluate(range_now) == [-0.5, 83.5]  # new columns reset the zoom
    drag(page, 2, (8, 1), (70, 4))
    page.wait_for_function(f"{range_now}[1] - {range_now}[0] < 70")
    at_once(page, 2, click((40, 2)) * 2)
    page.wait_for_function(f"{range_now}[1] === 83.5")
    wait_until_settled(page)
    act_and_settle(page, lambda: click_cell(page, 2, 3, 83))
    page.wait_for_function("location.search.includes('step=output') && location.search.includes('column=83')")
    assert "83" in chosen_cell_line(page)
    set_control(page, "d_model", "88")
    assert painted_numbers(page, 2) == approx(layer(d_model=88).output.numpy())

    # Plotly draws a map whose cells cannot be repainted in place.
    labels = page.locator(".figures .js-plotly-plot").nth(1).locator(".heatmap-label text")
    # As if another version of Plotly stored other data: repainting fails midway.
    page.evaluate("Object.freeze(document.querySelectorAll('.figures .js-plotly-plot')[1].calcdata[0][0])")
    for place in (30, 170):
        follow(page, "temperature", place)
        weights = layer(d_model=88, temperature=temperature(page)).weights[0].numpy()
        assert painted_numbers(page, 1) == approx(weights)
        assert labels.all_text_contents() == [f"{number:.2f}" for number in weights.flatten()]
