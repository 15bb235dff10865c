"""The mask clicked on the large map of the first screen: cells are hidden and shown as the backend does it, by pointer and keys."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import act_and_settle, place_of_cell
from playwright.sync_api import Page, expect
from test_browser import Open
from test_browser_first_screen import TEXT, headline, painted, query

from attention import AttentionConfig, TypedText
from attention.formula import mask_tensor

pytestmark = pytest.mark.browser


def weights_of(cells: str) -> np.ndarray:
    layer = TypedText(TEXT, AttentionConfig(mask="custom", cells=cells)).trace().layers[0]
    return np.where(layer["mask"].numpy(), layer["weights"][0].numpy(), np.nan)


def click(page: Page, q: int, k: int) -> None:
    place = place_of_cell(page, 0, row=q, column=k, maps="#root .screen .plot")
    act_and_settle(page, lambda: page.mouse.click(*place))


def test_cells_are_hidden_and_shown_on_the_map(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?mask=causal&q=6&k=2", sidebar=False)
    button = page.locator(".tools .mask")
    button.click()
    expect(button).to_have_text("Done")
    expect(page.locator(".screen .caption")).to_contain_text("A click on a cell hides or shows it")
    visible = mask_tensor.causal(9, 9)
    click(page, 6, 3)
    click(page, 1, 4)
    visible[6, 3], visible[1, 4] = False, True
    assert query(page) == {"mask": "custom", "cells": mask_tensor.encode(visible), "q": "1", "k": "4"}
    np.testing.assert_array_equal(painted(page), weights_of(query(page)["cells"]))
    assert page.locator(".screen .over circle").count() == int((~visible).sum())

    # With the keys: Space hides the chosen cell, and shows it again.
    page.keyboard.press("ArrowLeft")
    act_and_settle(page, lambda: page.keyboard.press("ArrowLeft"))  # a cell that is hidden
    act_and_settle(page, lambda: page.keyboard.press("ArrowLeft"))
    act_and_settle(page, lambda: page.keyboard.press(" "))
    visible[1, 1] = False
    assert query(page)["cells"] == mask_tensor.encode(visible)
    assert "cannot see" in headline(page)
    other = open_page(page.url, fresh=True, sidebar=False)
    np.testing.assert_array_equal(painted(other), painted(page))
    act_and_settle(page, page.go_back)
    visible[1, 1] = True
    np.testing.assert_array_equal(painted(page), weights_of(mask_tensor.encode(visible)))

    page.locator(".screen .large").focus()
    page.keyboard.press("Escape")
    expect(button).to_have_text("Edit mask")
    expect(button).to_be_focused()
    click(page, 6, 5)  # chooses again
    assert (query(page)["q"], query(page)["k"]) == ("6", "5")
    assert query(page)["cells"] == mask_tensor.encode(visible)


@pytest.mark.sample(2)
@pytest.mark.parametrize("link", ["?lock=1", f"?text={'+'.join(f'w{i}' for i in range(50))}", "?compare=1"])
def test_no_button_where_no_cell_can_be_clicked(open_page: Open, server: str, link: str) -> None:
    page = open_page(f"{server}/{link}", sidebar=False)
    expect(page.locator(".screen .headline")).to_contain_text("look")
    expect(page.locator(".tools .mask")).to_have_count(0)
