"""Heads over many texts in a browser: an uploaded result, a head, one of its examples, and the arithmetic of its cell."""

from __future__ import annotations

import pytest
from conftest import act_and_settle, click_cell, painted_numbers, wait_until_settled
from margins import approx
from playwright.sync_api import Page, expect
from test_browser import Open, query
from test_many_texts_page import heads_parquet

from attention import TypedText
from attention.base.printed import format_number
from attention.corpus.result import HeadsResult
from attention.metrics import FindRule, find_heads
from pages.ui.state.knob_table import DEFAULTS

pytestmark = pytest.mark.browser


def upload(page: Page, knob: str, name: str, content: bytes) -> None:
    payload = {"name": name, "mimeType": "application/octet-stream", "buffer": content}
    act_and_settle(page, lambda: page.locator(f".st-key-{knob}_upload input[type=file]").set_input_files([payload]))


def test_upload_leads_over_a_head_to_one_cell(open_page: Open, server: str) -> None:
    content = heads_parquet()
    result = HeadsResult.of("heads.parquet", content)
    page = open_page(f"{server}/heads?heads_over=many+texts", figure=False)
    expect(page.get_by_text("python -m attention.corpus")).to_be_visible()
    upload(page, "heads_result", "heads.parquet", content)
    mean = result.column("previous", "mean").reshape(6, 12)
    assert painted_numbers(page, 0) == approx(mean)
    link = {"heads_over": "many texts", "heads_result": f"heads.parquet:{result.digest}"}
    assert query(page) == link
    assert page.locator(".figures .js-plotly-plot *").count() < 600, "bars are paths, not elements"

    act_and_settle(page, lambda: click_cell(page, 0, row=0, column=2))
    expect(page.get_by_role("heading", name="L0 H2")).to_be_visible()
    assert query(page) == link | {"heads_show": "one head", "head": "2"}
    best = result.examples(0, 2, "previous")[0]
    words = f"looks at “{best.tokens[best.key]}” (position {best.key}) with {format_number(round(best.weight, 3))}"
    example = page.get_by_role("link", name=words).first
    expect(example).to_have_text(format_number(round(best.value, 3)))
    with page.context.expect_page() as opening:
        example.click()
    lab = opening.value
    wait_until_settled(lab)
    shown = float(lab.locator(".answer-line .number").inner_text())
    assert shown == approx(best.weight, digits=4)
    state = {"source": "model", "text": best.text, "head": "2", "q": str(best.query), "k": str(best.key)}
    assert query(lab) == {key: text for key, text in state.items() if text != "0"}
    lab.close()

    # Back and Forward, by the keyboard to another head, and another page in between.
    page.go_back()
    wait_until_settled(page)
    assert painted_numbers(page, 0) == approx(mean)
    page.locator(".figures .js-plotly-plot").first.focus()
    page.keyboard.press("ArrowRight")
    act_and_settle(page, lambda: page.keyboard.press("Enter"))
    expect(page.get_by_role("heading", name="L0 H1", exact=True)).to_be_visible()
    page.get_by_role("link", name="Reference").click()
    wait_until_settled(page)
    page.get_by_role("link", name="Heads", exact=True).click()
    wait_until_settled(page)
    assert link.items() <= query(page).items()


def test_link_to_an_upload_asks_another_browser_for_it(open_page: Open, server: str) -> None:
    content = heads_parquet()
    digest = HeadsResult.of("heads.parquet", content).digest
    address = f"{server}/heads?heads_over=many+texts&heads_result=heads.parquet:{digest}&heads_metric=induction&heads_show=one+head&layer=1&head=3&lock=1"
    page = open_page(address, fresh=True, figure=False, viewport={"width": 390, "height": 844})
    expect(page.get_by_text(f"digest {digest[:8]}…")).to_be_visible()
    upload(page, "heads_result", "heads.parquet", content)
    expect(page.get_by_role("heading", name="L1 H3")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_found_head_opens_at_its_strongest_cell(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/heads")
    act_and_settle(page, page.get_by_role("button", name="from any to same word").click)
    assert query(page)["heads_find"] == "from any to same word"
    (best, *_) = find_heads(TypedText(str(DEFAULTS["text"])).trace(), FindRule.parse("from any to same word"))
    expect(page.get_by_text(f"L{best.layer} H{best.head} looks there most")).to_be_visible()
    grid = page.locator(".st-key-heads_found .dvn-scroller")
    act_and_settle(page, lambda: grid.click(position={"x": 60, "y": 50}))
    expect(page.get_by_role("heading", name="Attention Lab")).to_be_visible()
    state = {"head": best.head, "q": best.query, "k": best.key}
    assert query(page) == {key: str(number) for key, number in state.items() if number}
    assert float(page.locator(".answer-line .number").inner_text()) == approx(best.weight, digits=4)
