"""Export links in a browser: the file has the state on the screen, a refusal appears beside the link, and the page stays."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pandas as pd
import pytest
from conftest import act_and_settle, apply_text, free_port, painted_numbers, wait_until_settled
from playwright.sync_api import Frame, Page, expect
from shell import frame_of, running_shell
from test_browser import CAUSAL, LINK, TEXT, Open

from attention import AttentionConfig, TypedText

pytestmark = pytest.mark.browser
BUSY = "This server is still sending other files: try again in a moment."


def downloaded(tab: Page, lab: Page | Frame, name: str) -> tuple[str, pd.DataFrame]:
    """Downloads the file of a link: its address and its table."""
    with tab.expect_download() as coming:
        lab.get_by_role("link", name=name, exact=True).click()
    return coming.value.url, pd.read_csv(Path(coming.value.path()), index_col=0)


def test_export_link_uses_current_knobs_and_shows_refusals_beside_it(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}")
    link = page.get_by_role("link", name="Download CSV")
    _, table = downloaded(page, page, "Download CSV")
    np.testing.assert_array_equal(table.to_numpy(np.float32)[:, :6], CAUSAL.weights[0].numpy())
    entries = page.evaluate("history.length")
    # The page follows the control before a script has run: the link must not be that of the last run.
    page.evaluate(
        """() => { const control = document.querySelector(".controls [name=mask]"); control.value = "none";
            control.dispatchEvent(new Event("change", { bubbles: true })); }"""
    )
    url, table = downloaded(page, page, "Download CSV")
    assert "mask" not in parse_qs(urlsplit(url).query)
    bare = TypedText(TEXT, AttentionConfig()).trace().layers[0].weights[0]
    np.testing.assert_array_equal(table.to_numpy(np.float32)[:, :6], bare.numpy())
    wait_until_settled(page)
    np.testing.assert_array_equal(painted_numbers(page, 1), bare.numpy())
    entries = min(entries + 1, 50)  # the mask; Chromium keeps 50
    address = page.url

    page.route("**/export/**", lambda route: route.fulfill(body=BUSY, content_type="text/plain"))
    link.focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("status").filter(has_text=BUSY)).to_be_visible()
    expect(page.locator("iframe[name^=export]")).to_have_count(2)  # of the two finished downloads
    page.unroute("**/export/**")
    downloaded(page, page, "Download CSV")
    expect(page.get_by_text(BUSY)).to_have_count(0)
    assert (page.url, page.evaluate("history.length")) == (address, entries)


def test_export_of_a_state_too_long_for_an_address_succeeds(open_page: Open, server: str) -> None:
    page = open_page(server)
    words = " ".join(f"w{i}" for i in range(1500))
    apply_text(page, page.get_by_label("Text", exact=True), words)
    assert len(page.url) > 6000
    url, table = downloaded(page, page, "Download CSV")
    assert "?" not in url
    assert list(table.columns[:2]) == ["0 w0", "1 w1"]
    assert table.shape == (1500, 1501)


def test_export_arrives_in_a_host_frame_below_its_prefix(open_page: Open, server: str, tmp_path: Path) -> None:
    with running_shell(tmp_path, free_port(), server) as shell:
        tab = open_page(f"{shell.home}/?{LINK}", fresh=True, figure=False)
        lab = frame_of(tab)
        wait_until_settled(lab)
        url, table = downloaded(tab, lab, "Download CSV")
        assert re.match(rf"{shell.home}/~/\+/export/weights\.csv\?", url)
        np.testing.assert_array_equal(table.to_numpy(np.float32)[:, :6], CAUSAL.weights[0].numpy())
        with tab.expect_download() as coming:
            act_and_settle(lab, lab.get_by_role("button", name="Share").click)
            lab.get_by_role("link", name="Save the state (.json)").click()
        assert coming.value.suggested_filename == "attention.json"
