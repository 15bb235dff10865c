"""The strip of named parts in a browser: the shares are sums of the row, and a click chooses the strongest key of a part."""

from __future__ import annotations

import pytest
from conftest import ROOT, act_and_settle
from margins import approx
from playwright.sync_api import expect
from test_browser import Open, query

from attention import Model, spans

pytestmark = pytest.mark.browser
TEXT = "[[bird]] the owl asked [[moon]] the moon"


def test_the_strip_has_the_shares_of_the_row(open_page: Open, server: str) -> None:
    trace = Model(str(ROOT / "models" / "all-MiniLM-L6-v2"), TEXT, spans="marks").trace()
    weights = trace.layers[1].weights[8]
    page = open_page(f"{server}/?source=model&text={TEXT.replace(' ', '+')}&spans=marks&layer=1&head=8&q=2&k=1")
    parts = page.locator(".screen .spans button")
    expect(parts.locator(".name")).to_have_text(["bird", "moon"])
    row = spans.sums(trace, weights[2])["sum"]
    for part, name in enumerate(("bird", "moon")):
        shown = float(parts.nth(part).locator(".of").inner_text().rstrip("\u00a0 %"))
        assert shown == approx(100 * row[name], step=1)
    expect(page.locator(".screen .token.named")).to_have_count(5)
    moon = trace.spans[1]
    strongest = moon.first + int(weights[2, moon.first : moon.last + 1].argmax())
    act_and_settle(page, parts.nth(1).click)
    assert query(page)["k"] == str(strongest)
    expect(parts.nth(1)).to_have_class("answers")
