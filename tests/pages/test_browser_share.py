"""Sharing in a real browser: copied links, the views of a class and an iframe, a saved and reopened state."""

from __future__ import annotations

import json
import re
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit
from xml.etree import ElementTree

import numpy as np
import pytest
import safetensors.numpy
from conftest import act_and_settle, chosen_cell_line, click_cell, copied, painted_numbers, wait_until_settled
from margins import approx
from playwright.sync_api import Browser, Page, expect
from test_browser import CAUSAL, LINK, TEXT, Open

from attention.pictures.marks import CHOSEN_COLOR

pytestmark = pytest.mark.browser
CLIPBOARD = {"permissions": ["clipboard-read", "clipboard-write"]}


def copy(page: Page, name: str = "Copy link") -> str:
    return copied(page, page.get_by_role("button", name=name, exact=True))


def test_copy_link_copies_the_address_and_confirms(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}&normalizer=softmax1", **CLIPBOARD)
    entries = page.evaluate("history.length")
    act_and_settle(page, lambda: click_cell(page, 1, row=3, column=1))
    page.wait_for_function("location.search.includes('k=1')")
    assert page.evaluate("history.length") == min(entries + 1, 50)  # Chromium keeps 50
    link = copy(page)
    expect(page.locator(".links [role=status]").first).to_have_text("Link copied.")
    assert link == page.url
    other = open_page(link, fresh=True)
    np.testing.assert_array_equal(painted_numbers(other, 1), painted_numbers(page, 1))
    assert chosen_cell_line(other) == chosen_cell_line(page)
    read = page.evaluate_handle("navigator.clipboard")  # also without the clipboard API of secure pages
    read.evaluate("(clipboard) => clipboard.writeText('')")
    page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    page.get_by_role("button", name="Copy link", exact=True).click()
    expect(page.locator(".links [role=status]").first).to_have_text("Link copied.")
    assert read.evaluate("(clipboard) => clipboard.readText()") == page.url
    # A link for projection, with the picked knobs.
    page.get_by_role("button", name="Share", exact=True).click()
    act_and_settle(page, page.get_by_role("button", name="seed", exact=True).click)
    page.get_by_role("button", name="Copy link for a projector").click()
    expect(page.get_by_text("Link copied.")).to_be_visible()
    link = read.evaluate("(clipboard) => clipboard.readText()")
    assert parse_qs(urlsplit(link).query)["present"] == ["temperature.mask.head.seed"]


def test_embedded_page_shows_figure_and_knobs_without_a_menu(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}&embed=true")
    expect(page.locator("[data-testid=stSidebar]")).to_be_hidden()
    expect(page.get_by_role("link", name="Heads")).to_have_count(0)
    expect(page.get_by_role("button", name="Share")).to_have_count(0)
    page.get_by_text("Knobs", exact=True).click()
    expect(page.locator(".controls [name=heads]")).to_be_visible()
    expect(page.locator(".controls [name=temperature]")).to_be_visible()
    link = page.get_by_role("link", name="Open in Attention Lab")
    link.hover()
    expect(link).to_have_attribute("href", f"{server}/?{LINK}")


def test_embed_code_locked_link_and_saved_state_work(open_page: Open, server: str, tmp_path: Path) -> None:
    page = open_page(f"{server}/?explore_mask=true&{LINK}&temperature=0.5&seed=4", **CLIPBOARD)
    act_and_settle(page, lambda: page.get_by_role("button", name="Share").click())
    link = copy(page, "Copy locked link")
    expect(page.locator(".st-key-copy_more [role=status]")).to_have_text("Link without knobs copied.")
    assert link == f"{page.url}&lock=1"
    code = copy(page, "Copy code for a web page")
    expect(page.locator(".st-key-copy_more [role=status]")).to_have_text("Code copied.")
    assert f'src="{page.url.replace("&", "&amp;")}&amp;embed=true"' in code
    # The saved state opens in another browser.
    with page.expect_download() as saved:
        page.get_by_role("link", name="Save the state (.json)").click()
    saved.value.save_as(tmp_path / "state.json")
    other = open_page(server, fresh=True)
    other.get_by_text("Open a state or lessons", exact=True).click()
    act_and_settle(
        other, lambda: other.locator("[data-testid=stFileUploader] input").set_input_files(tmp_path / "state.json")
    )
    expect(other.get_by_text("Click a cell of the mask")).to_be_visible()
    wait_until_settled(other)
    np.testing.assert_array_equal(painted_numbers(other, 5), painted_numbers(page, 5))
    other.wait_for_function("location.search.includes('temperature=0.5') && location.search.includes('seed=4')")
    assert "mask=causal" in other.url


@pytest.mark.sample(2)
@pytest.mark.parametrize("name", ["", "learn", "heads", "training", "reference"])
def test_preview_is_the_page_behind_the_copied_link(open_page: Open, server: str, name: str) -> None:
    page = open_page(f"{server}/{name}?{LINK}", figure=name in ("", "heads"), **CLIPBOARD)
    act_and_settle(page, page.get_by_role("button", name="Share", exact=True).click)
    for button, others in (
        ("locked link", "lock=1"),
        ("link for a projector", "present="),
        ("code for a web page", "embed=true"),
    ):
        link = copy(page, f"Copy {button}").replace("&amp;", "&")
        page.get_by_role("button", name=f"Preview: {button}").click()
        frame = page.locator(".links dialog iframe")
        source = str(frame.get_attribute("src"))
        assert source in link
        assert others in source
        inside = page.frame_locator(".links dialog iframe")
        expect(inside.get_by_role("link", name="Open in Attention Lab")).to_be_visible()
        expect(inside.get_by_role("button", name="Share", exact=True)).to_have_count(0)
        if not name and button == "locked link":
            expect(inside.locator(".screen .headline")).to_contain_text("looks at")
            expect(inside.locator(".controls [name]")).to_have_count(0)
        page.get_by_role("button", name="Close", exact=True).click()
        expect(frame).to_have_count(0)


def test_button_stays_under_the_pointer_whose_press_hides_the_message(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}", **CLIPBOARD)
    act_and_settle(page, page.get_by_role("button", name="Share", exact=True).click)
    copy(page, "Copy locked link")
    message = page.locator(".st-key-copy_more [role=status]")
    expect(message).to_have_text("Link without knobs copied.")
    page.get_by_role("button", name="Preview: locked link").hover()
    page.mouse.down()
    expect(message).to_have_text("")
    page.mouse.up()
    expect(page.locator(".links dialog")).to_be_visible()


def saved(page: Page, name: str) -> bytes:
    """The content of the file behind a link."""
    with page.expect_download() as download:
        page.get_by_role("link", name=name, exact=True).click()
    return Path(download.value.path()).read_bytes()


def name_of(page: Page, name: str) -> str:
    """The name of the file behind a link."""
    with page.expect_download() as download:
        page.get_by_role("link", name=name, exact=True).click()
    return download.value.suggested_filename


def test_maps_are_saved_in_the_requested_format_and_width(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}&head=2&q=3&k=2")
    act_and_settle(page, page.get_by_role("button", name="Save as a picture").click)
    expect(page.get_by_role("radio", name="A weights")).to_be_checked()  # the map of the chosen cell
    page.get_by_role("radio", name="As on this page").click()
    expect(page.get_by_text("With its title")).to_be_visible()
    wait_until_settled(page)
    assert name_of(page, "SVG") == "weights-L0-H2-q3-k2.svg"
    page.get_by_label("Width in cm").fill("8")
    act_and_settle(page, lambda: page.keyboard.press("Enter"))
    svg = ElementTree.fromstring(saved(page, "SVG"))
    assert float(svg.attrib["width"].removesuffix("pt")) / 72 * 2.54 == approx(8, step=0.01, scale=10)
    texts = ["".join(text.itertext()).strip() for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("the") == 4  # twice on each axis
    assert texts.count("1.00") >= 6  # the sums of the rows
    assert not list(svg.iter("{http://www.w3.org/2000/svg}image"))
    assert saved(page, "PDF").startswith(b"%PDF")
    assert saved(page, "PNG").startswith(b"\x89PNG")
    page.get_by_role("radio", name="All side by side").click()
    expect(page.get_by_text("With titles")).to_be_visible()
    wait_until_settled(page)
    assert name_of(page, "PDF") == "scores-weights-output-L0-H2-q3-k2.pdf"
    combined = saved(page, "SVG").decode()
    assert f"stroke: {CHOSEN_COLOR}" in combined
    assert all(re.search(rf">{symbol}</text>", combined) for symbol in "SAO")
    assert saved(page, "HTML").count(b'role="figure"') == 3
    act_and_settle(page, lambda: page.get_by_text("With the outlines (cross)").click())
    assert name_of(page, "SVG") == "scores-weights-output-L0-H2.svg"
    assert f"stroke: {CHOSEN_COLOR}" not in saved(page, "SVG").decode()


def test_heads_are_saved_as_a_figure_for_a_paper_with_its_caption(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}&head=2&q=3&k=2")
    act_and_settle(page, page.get_by_role("button", name="Save as a picture").click)
    expect(page.get_by_role("radio", name="For a paper")).to_be_checked()
    expect(page.get_by_role("radio", name="One column 8.4 cm")).to_be_checked()
    expect(page.locator("[data-testid=stCode]")).to_contain_text("Layer 0, head 2.")
    heads = page.get_by_role("textbox", name="Heads, as layer.head")
    heads.fill("0.1;0.2")
    act_and_settle(page, lambda: heads.press("Enter"))
    expect(page.locator("[data-testid=stCode]")).to_contain_text("(a) Layer 0, head 1; (b) Layer 0, head 2.")
    svg = ElementTree.fromstring(saved(page, "SVG"))
    assert float(svg.attrib["width"].removesuffix("pt")) / 72 * 2.54 == approx(8.4, step=0.01, scale=10)
    texts = ["".join(text.itertext()).strip() for text in svg.iter("{http://www.w3.org/2000/svg}text")]
    assert [text for text in texts if text in ("a", "b", "Σ", "1.00")] == ["a", "b"]
    assert name_of(page, "PDF") == "weights-L0-H1-L0-H2.pdf"
    assert r"\includegraphics[width=8.4cm]{weights-L0-H1-L0-H2.pdf}" in saved(page, "TEX").decode()
    heads.fill("0.9")
    act_and_settle(page, lambda: heads.press("Enter"))
    expect(page.get_by_text("heads count from 0 to 3; got 9")).to_be_visible()


def test_saved_numbers_and_code_match_the_page(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/heads?{LINK}&head=1")
    act_and_settle(page, lambda: page.get_by_role("button", name="Share").click())
    arrays = np.load(BytesIO(saved(page, "All steps (.npz)")))
    np.testing.assert_array_equal(arrays["L0.weights"], CAUSAL.weights.numpy())
    assert list(arrays["tokens"]) == TEXT.split()
    tensors = safetensors.numpy.load(saved(page, "All steps (.safetensors)"))
    np.testing.assert_array_equal(tensors["L0.output"], CAUSAL.output.numpy())
    names: dict[str, Any] = {}
    exec(saved(page, "Python (.py)").decode(), names)
    assert names["output"].numpy() == approx(CAUSAL.output.numpy())
    assert json.loads(saved(page, "Notebook (.ipynb)"))["nbformat"] == 4
    assert saved(page, "weights (.csv)").decode().splitlines()[1].startswith("0 the,1.0,0.0")


def test_saved_html_figure_opens_without_a_network(
    open_page: Open, server: str, tmp_path: Path, browser: Browser
) -> None:
    page = open_page(f"{server}/?explore_mask=true&{LINK}")
    act_and_settle(page, lambda: page.locator(".st-key-masks_maps_save button").click())
    (tmp_path / "mask.html").write_bytes(saved(page, "HTML"))
    context = browser.new_context(offline=True)
    alone = context.new_page()
    alone.goto((tmp_path / "mask.html").as_uri())
    alone.wait_for_selector(".js-plotly-plot .main-svg")
    rows = alone.evaluate("document.getElementById('figure').calcdata[0][0].z.map((row) => Array.from(row))")
    np.testing.assert_array_equal(np.array(rows), CAUSAL.weights[0].numpy())  # the map of the chosen cell
    context.close()
