"""Masks and matrices by hand, in a real browser: clicks, pastes, grids and files."""

from __future__ import annotations

from collections.abc import Callable
from io import BytesIO
from urllib.parse import urlencode

import numpy as np
import pytest
from conftest import act_and_settle, click_cell, painted_numbers, still_box, wait_until_settled
from margins import approx
from playwright.sync_api import Locator, Page, expect
from test_browser import query

from attention import AttentionConfig, Matrices, TypedText
from attention.formula import mask_tensor

pytestmark = pytest.mark.browser

Open = Callable[..., Page]
TEXT = "the cat sat on the mat"
IDENTITY = ((1.0, 0.0), (0.0, 1.0))


def test_mask_click_hides_a_cell_and_the_link_carries_it(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?explore_mask=true&{urlencode({'text': TEXT})}")
    act_and_settle(page, lambda: click_cell(page, 3, row=2, column=4))
    expected = np.ones((6, 6))
    expected[2, 4] = 0
    np.testing.assert_array_equal(painted_numbers(page, 3), expected)
    act_and_settle(page, lambda: click_cell(page, 3, row=2, column=4))  # a second click allows it again
    assert painted_numbers(page, 3).all()
    act_and_settle(page, lambda: click_cell(page, 3, row=2, column=4))
    link = query(page)
    assert link["mask"] == "custom"
    trace = TypedText(TEXT, AttentionConfig(mask="custom", cells=link["cells"])).trace()
    assert not trace.layers[0].weights[:, 2, 4].any()
    np.testing.assert_array_equal(painted_numbers(page, 5), trace.layers[0].weights[0].numpy())
    np.testing.assert_array_equal(painted_numbers(page, 1), trace.layers[0].weights[0].numpy())


def test_mask_to_click_changes_no_mask_and_obeys_its_address(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT})}")
    act_and_settle(page, page.get_by_text("Click the mask").click)
    expect(page.get_by_role("button", name="none", pressed=True)).to_be_visible()
    wait_until_settled(page)
    assert query(page) == {"text": TEXT, "explore_mask": "true"}
    act_and_settle(page, lambda: page.get_by_role("group", name="Mask").get_by_role("button", name="causal").click())
    np.testing.assert_array_equal(painted_numbers(page, 3), mask_tensor.causal(6, 6).numpy())
    page.wait_for_function("location.search.includes('&mask=causal')")
    act_and_settle(page, lambda: page.get_by_role("group", name="Mask").get_by_role("button", name="none").click())
    expect(page.get_by_role("button", name="none", pressed=True)).to_be_visible()
    assert painted_numbers(page, 3).all()
    page.wait_for_function("!location.search.includes('&mask=')")
    other = open_page(page.url, fresh=True)
    assert painted_numbers(other, 3).all()


def focus(page: Page, grid: Locator, x: float) -> None:
    """Clicks into the first row of a grid that no longer moves, and waits until it has the focus, which keys need."""
    box = still_box(grid)
    page.mouse.click(box["x"] + x, box["y"] + 52)
    page.wait_for_function("document.activeElement.tagName === 'CANVAS'")


def unfold(page: Page) -> None:
    """Opens the editor of the matrices."""
    page.get_by_text("Your matrices:").click()
    expect(page.get_by_role("tab").first).to_be_visible()
    wait_until_settled(page)


def test_tensor_pasted_from_a_terminal_is_painted(open_page: Open, server: str) -> None:
    link = {"source": "matrices", "matrix_kind": "Q, K and V", "query": "1,1;1,1", "key": "1,0;0,1", "value": "1,2;3,4"}
    page = open_page(f"{server}/?{urlencode(link)}")
    unfold(page)

    def paste() -> None:
        page.get_by_label("Paste Q", exact=True).fill("tensor([[1., 0.],\n        [0., 1.]], grad_fn=<MmBackward0>)")
        page.keyboard.press("Control+Enter")

    act_and_settle(page, paste)
    layer = Matrices(query=IDENTITY, key=IDENTITY, value=((1.0, 2.0), (3.0, 4.0))).trace().layers[0]
    assert painted_numbers(page, 1) == approx(layer.weights[0].numpy())
    assert query(page)["query"] == "1,0;0,1"


def test_typed_and_uploaded_matrices_are_painted_beside_the_editor(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?source=matrices")
    unfold(page)
    scores = painted_numbers(page, 0)
    focus(page, page.locator("[data-testid=stDataFrame] canvas").first, x=120)
    page.keyboard.type("5")
    expect(page.locator("#portal input, #portal textarea").first).to_be_visible()
    act_and_settle(page, lambda: page.keyboard.press("Enter"))
    assert query(page)["x"] == "5,0,0;0,1,0;1,1,0;0,0,1"
    assert painted_numbers(page, 0)[0, 0] == 25 * scores[0, 0]

    def paste() -> None:
        page.get_by_label("Paste X", exact=True).fill("1,2,3")
        page.keyboard.press("Control+Enter")

    act_and_settle(page, paste)
    expect(page.get_by_text("Your matrices: X 1 × 3 · W_Q 3 × 3")).to_be_visible()
    expect(page.get_by_label("Paste X", exact=True)).to_be_visible()
    page.get_by_text("Your matrices:").click()
    expect(page.get_by_label("Paste X", exact=True)).to_be_hidden()
    assert query(page)["x"] == "1,2,3"
    # An uploaded .npy file replaces the pasted matrix.
    unfold(page)
    file = BytesIO()
    np.save(file, np.eye(4, 3) * 2)
    upload = {"name": "x.npy", "mimeType": "application/octet-stream", "buffer": file.getvalue()}
    act_and_settle(page, lambda: page.locator(".st-key-matrices_file_x input[type=file]").set_input_files([upload]))
    expect(page.get_by_label("Paste X", exact=True)).to_have_value("2,0,0;0,2,0;0,0,2;0,0,0")
    wait_until_settled(page)
    assert not painted_numbers(page, 0)[3].any()


def test_mismatched_matrices_are_resized_to_fit(open_page: Open, server: str) -> None:
    link = urlencode({"source": "matrices", "x": "1,2;3,4"})
    page = open_page(f"{server}/?{link}", figure=False, viewport={"width": 390, "height": 844})
    page.get_by_role("button", name="Resize the others to fit X").click()
    wait_until_settled(page)
    page.wait_for_function("location.search.includes('w_q=2')")
    assert query(page)["w_q"] == "2,0,2;2,0,0"
    layer = Matrices(
        x=((1, 2), (3, 4)), w_q=((2, 0, 2), (2, 0, 0)), w_k=((2, 2, 2), (0, 2, 1)), w_v=((1, 1, 0), (0, 1, 1))
    ).trace()
    assert painted_numbers(page, 0) == approx(layer.layers[0].scores[0].numpy())
    expect(page.get_by_label("Paste X", exact=True)).to_be_hidden()  # collapsed: nothing is wrong any more
    other = open_page(page.url, fresh=True)
    np.testing.assert_array_equal(painted_numbers(other, 0), painted_numbers(page, 0))


def test_notebook_continues_as_matrices_that_travel_in_the_link(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?source=notebook&notebook=self-attention-class&q=2&k=1")
    weights = painted_numbers(page, 1)
    act_and_settle(page, lambda: page.get_by_role("button", name="Continue with these matrices").click())
    page.wait_for_function("location.search.includes('w_q=') && location.search.includes('source=matrices')")
    wait_until_settled(page)
    assert painted_numbers(page, 1) == approx(weights)
    assert query(page)["x"] == "1.16,0.23;0.57,1.36;4.41,-2.16"
    assert (query(page)["q"], query(page)["k"]) == ("2", "1")
    other = open_page(page.url, fresh=True)
    np.testing.assert_array_equal(painted_numbers(other, 1), painted_numbers(page, 1))


def test_line_of_a_batch_is_picked_and_padded(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': f'{TEXT}' + chr(10) + 'a dog', 'sequence': 1, 'pad': 'true'})}")
    ticks = page.locator(".figures .js-plotly-plot").nth(1).locator(".xtick text").all_text_contents()
    assert ticks == ["a", "dog", "∅", "∅", "∅", "∅"]
    assert not painted_numbers(page, 1)[:, 2:].any()


def test_notebook_pages_show_titles_and_links_have_names(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?source=notebook&notebook=multi-head&sequence=1")
    notebook, sequence = (page.locator(f".st-key-{key} input") for key in ("notebook", "sequence"))
    expect(notebook).to_have_value("Multi-head attention, three sentences")
    expect(sequence).to_have_value("1: This is a basic example paragraph.")

    def choose_last() -> None:
        sequence.click()
        page.get_by_role("option").last.click()

    act_and_settle(page, choose_last)
    assert query(page) == {"source": "notebook", "notebook": "multi-head", "sequence": "2"}
    act_and_settle(page, page.go_back)
    expect(sequence).to_have_value("1: This is a basic example paragraph.")

    def choose_first_notebook() -> None:
        notebook.click()
        page.get_by_role("option").first.click()

    act_and_settle(page, choose_first_notebook)
    assert query(page) == {"source": "notebook", "notebook": "heatmaps-unscaled"}
