"""A real model in a browser: its tokens, its numbers, an override, and the same state through the link."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from conftest import ROOT, act_and_settle, chosen_cell_line, click_cell, painted_numbers, set_control
from margins import approx
from playwright.sync_api import Page, expect
from test_browser import query

from attention import Model, Override, Trace, explain
from pages.ui.state.knob_table import DEFAULTS

pytestmark = pytest.mark.browser

Open = Callable[..., Page]
TEXT = DEFAULTS["text"]


def traced(temperature: float = 1.0) -> Trace:
    return Model(str(ROOT / "models" / "all-MiniLM-L6-v2"), TEXT, config=Override(temperature=temperature)).trace()


def test_real_model_is_read_overridden_and_shared(open_page: Open, server: str) -> None:
    base = traced()
    page = open_page(f"{server}/?source=model")
    assert painted_numbers(page, 1) == approx(base.layers[0].matrix("weights", 0).numpy())
    ticks = page.evaluate("document.querySelectorAll('.figures .js-plotly-plot')[1].layout.yaxis.ticktext")
    assert [tick.split(" ")[-1] for tick in ticks][:3] == list(base.tokens[:3])
    act_and_settle(page, lambda: click_cell(page, 1, row=4, column=3))
    explained = explain(base, "weights", 0, 0, 4, 3)
    assert chosen_cell_line(page).endswith(f"= {explained.displayed_value}")
    expect(page.locator(".answer-line .arithmetic")).to_contain_text(explained.short)

    set_control(page, "layer", "4")
    set_control(page, "head", "5")
    assert painted_numbers(page, 1) == approx(base.layers[4].matrix("weights", 5).numpy())
    act_and_settle(page, lambda: page.locator(".controls [name=temperature]").press("PageUp"))
    warm = float(query(page)["temperature"])
    assert warm > 1
    assert painted_numbers(page, 1) == approx(traced(warm).layers[4].matrix("weights", 5).numpy())
    expect(page.get_by_text(f"What if, this head only: temperature {warm:g} instead of")).to_be_visible()
    expected_query = {"source": "model", "q": "4", "k": "3", "layer": "4", "head": "5"}
    assert expected_query.items() <= query(page).items()

    other = open_page(page.url, fresh=True)
    np.testing.assert_array_equal(painted_numbers(other, 1), painted_numbers(page, 1))
    assert chosen_cell_line(other) == chosen_cell_line(page)
