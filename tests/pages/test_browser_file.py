"""A file with attention in a real browser: uploaded, painted, exported, requested when its link is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import act_and_settle, chosen_cell_line, click_cell, painted_numbers, set_control, wait_until_settled
from playwright.sync_api import Page, expect
from test_browser import query
from test_file import QKV, npz

from attention import File

pytestmark = pytest.mark.browser

CONTENT = npz(**QKV, tokens=np.array(["the", "cat", "<b>sat</b>", "the"]))
SOURCE = File.of("attention.npz", CONTENT)


def upload(page: Page, name: str = "attention.npz", content: bytes = CONTENT) -> None:
    payload = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    act_and_settle(page, lambda: page.locator(".st-key-file_upload input[type=file]").set_input_files([payload]))


def test_file_is_painted_and_its_link_asks_for_the_file(
    open_page: Callable[..., Page], server: str, tmp_path: Path
) -> None:
    layer = SOURCE.trace().layers[1]
    page = open_page(f"{server}/?source=file")
    expect(page.get_by_text("upload it, and every page shows it")).to_be_visible()
    upload(page)
    set_control(page, "layer", "1")
    set_control(page, "head", "2")
    for at, step in enumerate(("scores", "weights", "head_output")):
        np.testing.assert_array_equal(painted_numbers(page, at), layer[step][2].numpy().astype(np.float32))
    act_and_settle(page, lambda: click_cell(page, 1, row=3, column=2))
    line = chosen_cell_line(page)
    assert line.startswith("weights · query 3 the → key 2 <b>sat</b> = ")
    link = query(page)
    assert link["file"] == f"attention.npz:{SOURCE.digest}"

    # An unreadable file keeps the current picture; a file over 1 MB takes another path through the server.
    upload(page, "broken.npz", CONTENT[:300] + bytes(2**20))
    expect(page.get_by_text("its list of arrays cannot be read")).to_be_visible()
    np.testing.assert_array_equal(painted_numbers(page, 1), layer["weights"][2].numpy().astype(np.float32))

    # Another page shows the file too, and the exported file opens to the same digits.
    page.get_by_role("link", name="Heads", exact=True).click()
    wait_until_settled(page)
    page.get_by_role("link", name="Explore", exact=True).click()
    wait_until_settled(page)
    assert query(page)["file"] == link["file"]
    np.testing.assert_array_equal(painted_numbers(page, 1), layer["weights"][2].numpy().astype(np.float32))
    page.get_by_text("Share", exact=True).click()
    with page.expect_download() as coming:
        page.get_by_role("link", name="All steps (.safetensors)").click()
    saved = tmp_path / "saved.safetensors"
    coming.value.save_as(saved)
    np.testing.assert_array_equal(File.open(saved).trace().layers[1]["weights"], layer["weights"])

    other = open_page(f"{server}/?{'&'.join(f'{key}={value}' for key, value in link.items())}", fresh=True)
    expect(other.get_by_text("The link shows the file “attention.npz”")).to_be_visible()
    expect(other.locator(".figures .js-plotly-plot")).to_have_count(0)
    upload(other)
    np.testing.assert_array_equal(painted_numbers(other, 1), layer["weights"][2].numpy().astype(np.float32))
    assert chosen_cell_line(other) == line
    assert query(other) == link
