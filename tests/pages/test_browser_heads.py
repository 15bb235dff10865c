"""The heads of a real model in a browser: sorted by a metric, picked from the table, explained in one cell."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import (
    act_and_settle,
    chosen_cell_line,
    click_cell,
    painted_numbers,
    place_of_cell,
    still_box,
    wait_until_settled,
)
from margins import approx
from playwright.sync_api import expect
from test_browser import Open, query

from attention import Model, explain, metrics
from attention.explanation import derived
from attention.metrics import aggregates
from attention.pictures import heatmap, mosaic
from pages.ui.state.knob_table import DEFAULTS

pytestmark = pytest.mark.browser
TEXT = DEFAULTS["text"]


def test_buttons_sort_square_tiles_with_the_values_under_them(open_page: Open, server: str) -> None:
    trace = Model("all-MiniLM-L6-v2", TEXT).trace()
    table = metrics.of(trace)
    order = table.sorted_by("previous")
    assert order[0] == (0, 2)
    page = open_page(f"{server}/heads?source=model&q=4&k=2")
    sort = page.locator(".controls label[data-name=heads_sort]")
    expect(sort.locator("[aria-pressed=true]")).to_have_text("layer and head")
    act_and_settle(page, sort.get_by_role("button", name="previous token").click)
    expect(sort.locator("[aria-pressed=true]")).to_have_text("previous token")
    assert query(page)["heads_sort"] == "previous"
    values = dict(zip(table.heads, table.column("previous").tolist(), strict=True))
    sorted_by = mosaic.layers_json(
        trace,
        "weights",
        cells=mosaic.SCREEN_CELLS,
        order=mosaic.HeadOrder({head: values[head] for head in order}, "previous"),
    )
    np.testing.assert_array_equal(painted_numbers(page, 0), sorted_by["data"][0]["z"])
    panels = page.evaluate("document.querySelector('.figures .js-plotly-plot').layout.meta.panels")
    assert panels == sorted_by["layout"]["meta"]["panels"]

    # Under each tile, the value of the metric.
    labels = page.locator(".figures .js-plotly-plot").first.locator(".annotation-text")
    shown = labels.evaluate_all("texts => texts.map((text) => text.getAttribute('data-unformatted'))")
    assert {f"L{i} H{h}<br><b>{values[i, h]:.2f}</b>" for i, h in order} <= {*shown}
    tile = page.evaluate("""() => {
        const { xaxis, yaxis, meta: { panels: [{ rows, columns }] } } = document.querySelector('.figures .js-plotly-plot')._fullLayout;
        return [columns * Math.abs(xaxis.l2p(1) - xaxis.l2p(0)), rows * Math.abs(yaxis.l2p(1) - yaxis.l2p(0))];
    }""")
    assert tile[0] == approx(tile[1], within=0.5, why="pixels")

    # Resized to a phone and back: names appear where they fit, and tiles stay squares.
    size = page.viewport_size
    assert size
    drawn = page.locator(".figures .js-plotly-plot").first
    wide = still_box(drawn)
    expect(drawn).to_contain_text("L0 H2")
    page.set_viewport_size({"width": 390, "height": 844})
    expect(drawn).not_to_contain_text("L0 H2")
    assert still_box(drawn)["height"] < wide["height"]
    page.set_viewport_size(size)
    expect(drawn).to_contain_text("L0 H2")


def test_previous_token_head_is_two_clicks_from_its_arithmetic(open_page: Open, server: str) -> None:
    trace = Model("all-MiniLM-L6-v2", TEXT).trace()
    table = metrics.of(trace)
    order = table.sorted_by("previous")
    page = open_page(f"{server}/heads?source=model&heads_sort=previous&q=4&k=2")

    # The second panel of the picture: hover names the head, the metric and the value, a click opens it with the query that was chosen.
    layer, head = order[1]
    panels = page.evaluate("document.querySelector('.figures .js-plotly-plot').layout.meta.panels")
    second = next(panel for panel in panels if (panel["layer"], panel["head"]) == (layer, head))
    page.mouse.move(*place_of_cell(page, 0, row=second["y"] + 2, column=second["x"] + 1))
    value = table.values[layer, head, [*metrics.all_metrics()].index("previous")]
    expect(page.locator(".tip:visible")).to_contain_text(f"L{layer} H{head}, previous, on this text: {value:.4g}")
    act_and_settle(page, lambda: click_cell(page, 0, row=second["y"] + 2, column=second["x"] + 1))
    expect(page.get_by_role("heading", name="Attention Lab")).to_be_visible()
    opened = [query(page)[key] for key in ("layer", "head", "q", "k")]
    assert opened == [str(layer), str(head), "4", "2"]
    np.testing.assert_array_equal(painted_numbers(page, 1), trace.layers[layer].matrix("weights", head).numpy())
    page.go_back()
    expect(page.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
    wait_until_settled(page)

    # The first row of the table; the mouse clicks a canvas.
    grid = page.locator(".st-key-heads_table .dvn-scroller")
    grid.click(position={"x": 60, "y": 50})
    expect(
        page.get_by_text("L0 H2 is 1st of 72 by previous, on this text.")
    ).to_be_visible()  # it stays for some seconds
    expect(page.get_by_role("heading", name="Attention Lab")).to_be_visible()
    wait_until_settled(page)
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
