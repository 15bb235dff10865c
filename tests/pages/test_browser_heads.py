"""The heads of a real model in a browser: sorted by a metric, picked from the table, explained in one cell."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import act_and_settle, chosen_cell_line, click_cell, painted_numbers, wait_until_settled
from playwright.sync_api import expect
from test_browser import Open, query

from attention import Model, explain, metrics
from attention.explanation import derived
from attention.metrics import aggregates
from attention.pictures import heatmap, mosaic
from pages.ui.state.knob_table import DEFAULTS

pytestmark = pytest.mark.browser
TEXT = DEFAULTS["text"]


def test_previous_token_head_is_two_clicks_from_its_arithmetic(open_page: Open, server: str) -> None:
    trace = Model("all-MiniLM-L6-v2", TEXT).trace()
    table = metrics.of(trace)
    order = table.sorted_by("previous")
    assert order[0] == (0, 2)
    page = open_page(f"{server}/heads?source=model&heads_sort=previous")
    sorted_by = mosaic.layers_json(trace, "weights", order=order, by="previous")
    np.testing.assert_array_equal(painted_numbers(page, 0), sorted_by["data"][0]["z"])
    panels = page.evaluate("document.querySelector('.figures .js-plotly-plot').layout.meta.panels")
    assert panels == sorted_by["layout"]["meta"]["panels"]

    # Resized to a phone and back: names appear where they fit, and panels keep their shape.
    size = page.viewport_size
    assert size
    drawn = page.locator(".figures .js-plotly-plot").first
    wide = drawn.bounding_box()
    expect(drawn).to_contain_text("L0 H2")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(drawn).not_to_contain_text("L0 H2")
    expect(drawn).to_contain_text("0.2")
    narrow = drawn.bounding_box()
    assert wide
    assert narrow
    assert narrow["height"] < wide["height"]
    page.set_viewport_size(size)
    expect(drawn).to_contain_text("L0 H2")
    wait_until_settled(page)

    # The second panel of the picture: hover names the head, a click opens it.
    layer, head = order[1]
    second = next(panel for panel in panels if (panel["layer"], panel["head"]) == (layer, head))
    act_and_settle(page, lambda: click_cell(page, 0, row=second["y"] + 2, column=second["x"] + 1))
    expect(page.get_by_role("heading", name="Attention Lab")).to_be_visible()
    assert (query(page)["layer"], query(page)["head"]) == (str(layer), str(head))
    np.testing.assert_array_equal(painted_numbers(page, 1), trace.layers[layer].matrix("weights", head).numpy())
    page.go_back()
    expect(page.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
    wait_until_settled(page)

    # The first row of the table; the mouse clicks a canvas.
    grid = page.locator(".st-key-heads_table .dvn-scroller")
    act_and_settle(page, lambda: grid.click(position={"x": 60, "y": 50}))
    expect(page.get_by_role("heading", name="Attention Lab")).to_be_visible()
    expect(page.get_by_text("L0 H2 is 1st of 72 by previous, on this text.")).to_be_visible()
    assert query(page)["head"] == "2"
    np.testing.assert_array_equal(painted_numbers(page, 1), trace.layers[0].matrix("weights", 2).numpy())
    act_and_settle(page, lambda: click_cell(page, 1, row=4, column=3))
    explained = explain(trace, "weights", 0, 2, 4, 3)
    assert chosen_cell_line(page).endswith(f"= {explained.displayed_value}")
    expect(page.locator(".answer-line .arithmetic")).to_contain_text(explained.short)

    # The norm-weighted map, beside the weights.
    act_and_settle(page, page.locator(".strip button[name=norm-weighted]").click)
    np.testing.assert_array_equal(painted_numbers(page, 1), derived.NORMS.matrix(trace, 0, 2).numpy())
    assert query(page)["view"] == "norms"
    act_and_settle(page, lambda: click_cell(page, 1, row=5, column=4))
    assert (query(page)["q"], query(page)["k"]) == ("5", "4")
    expect(page.get_by_text("Jain & Wallace 2019")).to_be_visible()


def test_aggregate_is_a_map_to_click_link_and_read(open_page: Open, server: str) -> None:
    trace = Model("all-MiniLM-L6-v2", TEXT).trace()
    page = open_page(f"{server}/heads?source=model&aggregate=mean&layer=4&heads_layers=one+layer")
    mean = aggregates.find_aggregate("mean")
    np.testing.assert_array_equal(painted_numbers(page, 0), heatmap.heads_json(trace, "weights", 4)["data"][0]["z"])
    np.testing.assert_array_equal(painted_numbers(page, 2), mean.matrix(trace, 4).numpy())
    act_and_settle(page, lambda: click_cell(page, 2, row=6, column=0))
    assert query(page) == {"source": "model", "aggregate": "mean", "layer": "4", "heads_layers": "one layer", "q": "6"}
    from attention import Cell

    explained = mean.explain(trace, Cell(4, "weights", 0, 6, 0))
    expect(page.locator(".answer-line .number")).to_have_text(explained.displayed_value)
    expect(
        page.get_by_text("The mean of 12 numbers: what each head of layer 4 gives key 0 for query 6.")
    ).to_be_visible()
