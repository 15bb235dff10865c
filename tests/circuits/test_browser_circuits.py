"""Circuits in a browser: the painted numbers are those of the package, and clicks open cells, layers and the Lab."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import act_and_settle, click_cell, painted_numbers
from margins import approx
from playwright.sync_api import expect
from test_browser import Open, query

from attention import Cell, circuits
from attention.base.printed import format_number
from attention.circuits import direct_effects
from attention.training import Trained

pytestmark = pytest.mark.browser


def test_click_leads_from_a_score_to_its_parts(open_page: Open, server: str) -> None:
    trace = Trained("induction", at=0).trace()
    token = trace.predictions[-1].tokens[1]
    page = open_page(
        f"{server}/heads?heads_inside=true&source=trained&task=induction&at=0&layer=1&q=20&k=7&target={token}"
    )
    readout = direct_effects.find_readout(trace, token)
    derived = direct_effects.writes_map(readout)
    weights, effects = (painted_numbers(page, index) for index in (1, 2))
    np.testing.assert_array_equal(weights, trace.layers[1].matrix("weights", 0).numpy())
    visible = np.isfinite(effects)
    assert effects[visible] == approx(circuits.writes(trace, 1, 0, token).numpy()[visible])
    expect(page.get_by_text(f"to {readout.words}").first).to_be_visible()

    # A cell of the second map: the line and the terms of the score follow.
    act_and_settle(page, lambda: click_cell(page, 2, row=9, column=4))
    assert (query(page)["q"], query(page)["k"]) == ("9", "4")
    explained = derived.explain(trace, Cell(1, "weights", 0, 9, 4))
    expect(page.locator(".st-key-circuits_map .answer-line .number")).to_have_text(explained.displayed_value)
    terms = circuits.score_terms(trace, 1, 0, 9, 4)
    assert painted_numbers(page, 3) == approx(terms.by_layer().values.numpy())
    expect(page.get_by_text(f"of the score {format_number(terms.score)}").first).to_be_visible()

    # The first layer of both sides opens, and the address stays.
    row, column = (names.index("L0") for names in (terms.by_layer().query_parts, terms.by_layer().key_parts))
    before = query(page)
    act_and_settle(page, lambda: click_cell(page, 3, row=row, column=column))
    assert painted_numbers(page, 3) == approx(terms.by_layer(0, 0).values.numpy())
    assert query(page) == before

    # The tab of Explore.
    act_and_settle(page, page.get_by_test_id("stPageLink").get_by_role("link", name="Explore", exact=True).click)
    act_and_settle(page, page.locator(".strip button[name=logit-effect]").click)
    assert query(page)["view"] == "writes"
    expected = circuits.writes(trace, 1, 0).numpy()
    shown = painted_numbers(page, 1)
    assert shown[np.isfinite(shown)] == approx(expected[np.isfinite(shown)])
