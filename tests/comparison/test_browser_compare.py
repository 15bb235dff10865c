"""Comparison in a browser: the change of the last knob, knobs of both states, a cell explained twice, a shared link."""

from __future__ import annotations

from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from conftest import (
    act_and_settle,
    apply_text,
    boxes_of,
    chosen_cell_line,
    click_cell,
    painted_numbers,
    set_control,
    wait_until_settled,
)
from playwright.sync_api import expect
from test_browser import Open, query

from attention import AttentionConfig, TypedText
from attention.comparison.comparison import HeadIndex, compare
from attention.sources.state import second_state

pytestmark = pytest.mark.browser
TEXT = "the owl asked the moon"


def test_difference_after_the_last_knob_is_one_click_and_linkable(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?text={TEXT.replace(' ', '+')}&q=4&k=1")
    compare_last_knob = page.get_by_role("button", name="What did my last change do?")
    expect(page.get_by_role("link", name="New here? Start with lesson 1")).to_be_visible()
    expect(compare_last_knob).to_have_count(0)  # no knob was changed yet
    set_control(page, "mask", "causal")
    act_and_settle(page, compare_last_knob.click)
    expect(page.get_by_role("button", name="Back to one state")).to_be_visible()
    wait_until_settled(page)
    page.wait_for_function("document.querySelector('.stMain').scrollTop === 0")  # the switch of the states is in sight
    assert query(page)["compare"] == "mask=causal"
    a, b = TypedText(TEXT).trace(), TypedText(TEXT, AttentionConfig(mask="causal")).trace()
    for index, matrix in enumerate((a.layers[0].weights[0], b.layers[0].weights[0], compare(a, b).matrix)):
        np.testing.assert_array_equal(painted_numbers(page, index), matrix.numpy())
    assert chosen_cell_line(page).startswith("weights, B − A · query 4 moon → key 1 owl = ")

    # Knobs of B alone are changed, above the maps and in the sidebar: the page names the state.
    set_control(page, "head", "2")
    apply_text(page, page.locator(".st-key-second_text textarea"), "the owl asked a moon")
    assert second_state({"text": TEXT}, query(page)["compare"]) == {
        "text": "the owl asked a moon",
        "mask": "causal",
        "head": "2",
    }
    assert "head" not in query(page)
    expect(page.get_by_text("Without a partner: 3 the in A; 3 a in B.")).to_be_visible()

    # Then knobs of A, while B stays; then of both.
    act_and_settle(page, page.locator(".controls button[value=A]").click)
    set_control(page, "seed", "7")
    act_and_settle(page, page.locator(".controls button[value=both]").click)
    set_control(page, "head", "1")
    b = TypedText("the owl asked a moon", AttentionConfig(mask="causal")).trace()
    a = TypedText(TEXT, AttentionConfig(seed=7)).trace()
    expected = compare(a, b, "weights", HeadIndex(0, 1))
    np.testing.assert_array_equal(painted_numbers(page, 2), expected.matrix.numpy())
    assert page.locator(".figures .js-plotly-plot").nth(2).locator(".shapelayer path").count() > 10, "hatches"

    # A click on a cell of B − A chooses the cell of A; a cell without a partner in A chooses nothing.
    row, column = expected.rows.group_index("a", 2), expected.columns.group_index("a", 0)
    act_and_settle(page, lambda: click_cell(page, 2, row, column))
    assert chosen_cell_line(page).startswith("weights, B − A · query 2 asked → key 0 the = ")
    exact_numbers = [
        page.get_by_text(f"Exactly: {float(number)!r}", exact=True)
        for number in (expected.a[row, column], expected.b[row, column])
    ]
    for locator in exact_numbers:
        expect(locator.first).to_be_visible()
    expect(page.get_by_text("Largest differences:")).to_be_visible()

    # The link shows the same digits in another browser.
    other = open_page(page.url, fresh=True)
    for index in range(3):
        np.testing.assert_array_equal(painted_numbers(other, index), painted_numbers(page, index))
    assert chosen_cell_line(other) == chosen_cell_line(page)
    assert parse_qs(urlsplit(other.url).query) == parse_qs(urlsplit(page.url).query)

    # One user action is one history entry.
    page.go_back()
    wait_until_settled(page)
    page.go_back()
    wait_until_settled(page)
    assert second_state(query(page), query(page)["compare"])["head"] == "2"


def test_comparison_stacks_maps_on_a_dark_locked_phone_without_sidebar(open_page: Open, server: str) -> None:
    phone = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "color_scheme": "dark"}
    page = open_page(f"{server}/?compare=head%3D3&lock=1", **phone)
    boxes = boxes_of(page.locator(".figures .js-plotly-plot"))
    assert len(boxes) == 3
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
    assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= 390
    expect(page.locator(".controls label")).to_have_count(0)
    a = TypedText("the owl asked the moon and the moon blinked").trace()
    np.testing.assert_array_equal(
        painted_numbers(page, 2), compare(a, a, "weights", HeadIndex(), HeadIndex(0, 3)).matrix.numpy()
    )
    # The keyboard reads a cell of the difference.
    page.locator(".figures .js-plotly-plot").nth(2).focus()
    page.keyboard.press("ArrowRight")
    expect(page.locator(".figures .js-plotly-plot .visually-hidden").nth(2)).to_contain_text(
        "weights, B − A, the to owl,"
    )
