"""The published notebooks in a browser: their formula is overridden above the maps, and restored."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from conftest import act_and_settle, painted_numbers, set_control
from margins import approx
from playwright.sync_api import Page, expect
from test_browser import Open
from test_browser_controls import follow, silent, temperature

from attention import Override
from attention.tutorials import Notebook

pytestmark = pytest.mark.browser


def test_controls_override_a_notebooks_formula_and_restore_it(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'source': 'notebook', 'notebook': 'averaging-self-attention'})}")
    status, mask = page.locator(".override"), page.locator(".controls [name=mask]")
    expect(status).to_have_text("The notebook's own numbers.")
    expect(mask.locator("option:checked")).to_have_text("own (causal)")

    def equal(tab: Page, override: Override) -> None:
        expected = Notebook("averaging-self-attention", 0, override).trace().layers[0]
        assert painted_numbers(tab, 1) == approx(expected.weights[0].numpy())
        assert painted_numbers(tab, 2) == approx(expected.head_output[0].numpy())

    silent(page, lambda: follow(page, "temperature", 60))
    expect(status).to_have_text("What if …")
    equal(page, Override(temperature=temperature(page)))
    set_control(page, "temperature", "60")  # with a key: a change by a script alone adds no history entry
    act_and_settle(page, lambda: mask.select_option("none"))
    override = Override(temperature=temperature(page), mask="none")
    equal(page, override)
    expect(status).to_contain_text(
        f"What if: temperature {override.temperature:g} and no mask instead of the notebook's own."
    )
    equal(open_page(page.url, fresh=True), override)
    act_and_settle(page, page.go_back)
    equal(page, Override(temperature=override.temperature))
    expect(mask).to_have_value("own")
    act_and_settle(page, lambda: status.get_by_role("button").click())
    equal(page, Override())
    assert "temperature" not in page.url
