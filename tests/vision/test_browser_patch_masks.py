"""Interventions by patch in a browser: patches that see their neighbours only, and a rectangle that no query sees."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import act_and_settle, painted_numbers
from playwright.sync_api import Page, expect
from test_browser import Open, query
from test_browser_heads_over_picture import folder, picture_server  # noqa: F401  # fixtures

from attention import Model
from attention.patching.intervention import parse_codes
from attention.vision.examples import example_picture

pytestmark = [pytest.mark.browser, pytest.mark.long]  # a server with models that read pictures


def choose(page: Page, label: str, option: str) -> None:
    """Chooses an option of a list in the popover."""
    page.get_by_role("combobox", name=label).click()
    act_and_settle(page, page.get_by_role("option", name=option, exact=True).click)


def test_interventions_by_patch_change_the_model(open_page: Open, picture_server: str, folder: str) -> None:  # noqa: F811  # a fixture
    page = open_page(
        f"{picture_server}/?source=model&model={folder}&image=example:two-cats&layer=1&head=2&view=factors"
    )
    act_and_settle(page, page.get_by_role("button", name="Other interventions").click)
    choose(page, "What", "Override the mask (attention mask)")
    choose(page, "Each query attends to", "patches nearby")
    expect(page.get_by_text("patches see patches at most 2 rows and columns away")).to_be_visible()
    act_and_settle(page, page.get_by_role("button", name="Apply").click)
    assert query(page)["interventions"] == "1.2.patch-window2"

    choose(page, "Each query attends to", "all but some patches")
    act_and_settle(page, page.get_by_role("button", name="Apply").click)
    code = query(page)["interventions"]
    assert code.startswith("1.2.custom")
    trace = Model(folder, image=example_picture("two-cats"), interventions=parse_codes(code)).trace()
    weights = trace.layers[1].matrix("weights", 2).numpy()
    assert not weights[:, 1].any()  # row 0, column 0
    assert weights[:, [0, *range(2, 7)]].all()
    painted = [painted_numbers(page, index) for index in range(page.locator(".figures .js-plotly-plot").count())]
    assert any(each.shape == weights.shape and np.array_equal(each, weights) for each in painted)
