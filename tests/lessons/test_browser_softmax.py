"""The Softmax and Reference pages in a browser: painted lines and bars, the overflow, links to the Lab."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
import torch
from conftest import (
    act_and_settle,
    boxes_of,
    chosen_cell_line,
    painted_numbers,
    set_control,
    set_theme,
    still_box,
    wait_until_settled,
    watch_runs,
)
from margins import approx
from playwright.sync_api import Page, expect

from attention import STEPS, AttentionConfig, TypedText, find_step
from attention.formula.normalizers import NORMALIZERS
from attention.lessons import softmax
from attention.lessons.softmax import measure

pytestmark = pytest.mark.browser

Open = Callable[..., Page]


def painted_y(page: Page, figure: int, trace: int) -> list[float]:
    """The heights of a line or of bars in Plotly's data in the page."""
    return page.evaluate(
        "([figure, trace]) => Array.from(document.querySelectorAll('.figures .js-plotly-plot')[figure].data[trace].y)",
        [figure, trace],
    )


def test_softmax_page_paints_backend_numbers_and_reports_factors_that_overflow(open_page: Open, server: str) -> None:
    link = {"softmax_row": "0.1, 0.3, 0.5", "text": "a b c", "mask": "causal", "softmax_factor": "100"}
    page = open_page(f"{server}/learn?chapter=softmax&{urlencode(link)}")
    expect(page.locator(".figures .js-plotly-plot")).to_have_count(5)
    spread = softmax.spread((0.1, 0.3, 0.5))
    assert painted_y(page, 0, 0) == softmax.curve().share.tolist()
    for i, shares in enumerate(spread.shares.values()):
        assert painted_y(page, 1, i) == shares.tolist()
    assert painted_y(page, 2, 0) == spread.variance.tolist()
    assert painted_y(page, 3, 0) == spread.entropy.tolist()
    scaling = measure(TypedText("a b c", AttentionConfig(mask="causal")))
    np.testing.assert_array_equal(painted_numbers(page, 4)[:3, :3], scaling.weights[0, 0])
    heights = page.evaluate(
        "[...document.querySelectorAll('.figures .js-plotly-plot')[1].querySelectorAll('.bars .point path')].map((bar) => bar.getBBox().height)"
    )
    assert np.array(heights) / max(heights) == approx(
        np.concatenate(list(spread.shares.values())) / spread.shares[0.125].max(),
        within=0.04,
        why="bars are drawn in whole pixels",
    )
    expect(page.get_by_text("Both ways agree")).to_be_visible()
    expect(page.get_by_text("overflows")).to_have_count(0)
    slider = page.get_by_role("slider", name="Multiply your numbers by")
    slider.focus()
    act_and_settle(page, lambda: slider.press("ArrowRight"))
    expect(page.get_by_text("The naive softmax overflows")).to_be_visible()
    expect(page.get_by_text("inf (infinity)").first).to_be_visible()
    assert "softmax_factor" not in page.url  # 200 is the default


def test_softmax_row_follows_its_slider_without_the_server(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/learn?chapter=softmax&softmax_row=1,2,2.5", viewport={"width": 390, "height": 844})
    slider, output = page.locator(".softmax-bars input[type=range]"), page.locator(".softmax-bars output")
    expect(slider).to_be_visible()
    for row in ((1.0, 2.0, 2.5), (-300.0, 0.0, 300.0, 300.0)):
        if row[0] < 0:
            page.get_by_role("textbox", name="A row of numbers").fill(", ".join(map(str, row)))
            page.keyboard.press("Enter")
            expect(page.locator(".softmax-bars .weight")).to_have_count(len(row))
            expect(output).to_have_text("9.74")  # another row keeps the temperature
            wait_until_settled(page)
        watch_runs(page)
        temperatures = []
        for place in (0, 57, 113, 150, 200):
            slider.evaluate(
                "(input, place) => { input.value = place; input.dispatchEvent(new Event('input')); }", place
            )
            temperature = float(output.text_content() or "")
            shares = page.evaluate("Array.from(document.querySelector('.softmax-bars').weights)")
            expected = NORMALIZERS["softmax"].weights(torch.tensor(row, dtype=torch.float64) / temperature)
            assert shares == approx(expected.numpy())
            bars = page.evaluate(
                "[...document.querySelectorAll('.softmax-bars .bar')].map((bar) => bar.firstChild.getBoundingClientRect().width / bar.getBoundingClientRect().width)"
            )
            assert bars == approx(expected.numpy(), within=0.04, why="bars are drawn in whole pixels")
            temperatures.append(temperature)
        assert (temperatures[0], temperatures[-1], 1.0 in temperatures) == (0.05, 10.0, True)
        slider.focus()
        page.keyboard.press("ArrowLeft")
        expect(page.locator(".softmax-bars [role=status]")).to_contain_text("At temperature 9.7")
        assert page.evaluate("window.script.runs === window.before")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_bad_softmax_row_is_quoted_and_chart_clicks_do_nothing(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/learn?chapter=softmax&{urlencode({'softmax_row': '<b>one</b>, 2'})}")
    expect(page.get_by_text("got “<b>one</b>”")).to_be_visible()
    expect(page.locator(".figures .js-plotly-plot")).to_have_count(2)
    box = still_box(page.locator(".figures .js-plotly-plot .nsewdrag").last)
    address = page.url
    page.evaluate("""() => { window.runs = 0; const app = document.querySelector('[data-testid=stApp]');
        new MutationObserver(() => { window.runs += 1; }).observe(app, {attributeFilter: ['data-test-script-state']}); }""")
    page.mouse.click(box["x"] + 30, box["y"] + 30)
    expect(page.locator(".figures .js-plotly-plot .hoverlayer .hovertext").first).to_be_visible()
    assert page.evaluate("window.runs") == 0
    assert page.url == address


def test_softmax_lines_are_readable_in_both_themes_and_on_phones(open_page: Open, server: str) -> None:
    options = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "color_scheme": "dark"}
    page = open_page(f"{server}/learn?chapter=softmax", **options)
    boxes = boxes_of(page.locator(".figures .js-plotly-plot"))
    assert all(box["x"] >= 0 and box["x"] + box["width"] <= 390 for box in boxes)
    assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= 390
    for scheme in ("dark", "light"):
        set_theme(page, scheme)
        line, tick, ground = page.evaluate(
            """() => [getComputedStyle(document.querySelector('.figures .js-plotly-plot .js-line')).stroke,
                      getComputedStyle(document.querySelector('.figures .js-plotly-plot .ytick text')).fill,
                      getComputedStyle(document.querySelector('.stApp')).backgroundColor]
                .map((color) => color.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0))"""
        )
        assert abs(line - ground) > 200
        assert abs(tick - ground) > 400


def test_reference_typesets_every_step_and_opens_it_in_the_lab(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/learn?chapter=softmax&text=a+b+c&heads=2&mask=causal")
    # Pages without maps collapse the knobs, and keep them in the address.
    state = {"text": ["a b c"], "heads": ["2"], "mask": ["causal"]}
    chapter = {"chapter": ["softmax"]}
    expect(page.get_by_label("Text", exact=True)).to_be_hidden()
    assert parse_qs(urlsplit(page.url).query) == state | chapter
    page.get_by_test_id("stSidebar").get_by_text("The source and its knobs").click()
    expect(page.get_by_label("Text", exact=True)).to_be_visible()
    assert parse_qs(urlsplit(page.url).query) == state | chapter
    page.get_by_role("link", name="Reference").click()
    cards = page.locator(".st-key-reference_steps .other-names")
    expect(cards).to_have_count(len(STEPS))
    expect(page.locator(".katex-error")).to_have_count(0)
    expect(page.locator(".st-key-reference_scores")).to_contain_text("head 2 · query_pos 3 · key_pos 3")
    expect(page.locator(".st-key-reference_memory").get_by_role("link")).to_have_count(0)
    card = page.locator(".st-key-reference_scaled_scores").get_by_role("link")
    with page.context.expect_page() as opened:
        card.click(modifiers=["Control"])
    tab = opened.value
    tab.wait_for_url(lambda url: urlsplit(url).path == "/")
    assert parse_qs(urlsplit(tab.url).query) == {**state, "step": ["scaled_scores"]}
    tab.close()
    card.click()
    expect(page.get_by_role("heading", name="Attention Lab")).to_be_visible()
    wait_until_settled(page)
    link = {key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()}
    assert link == {"text": "a b c", "heads": "2", "mask": "causal", "step": "scaled_scores"}
    assert find_step("scaled_scores").name in chosen_cell_line(page)


def test_lab_step_and_head_return_from_a_page_without_pickers(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?step=scores&q=1")
    set_control(page, "head", "2")
    page.get_by_role("link", name="Learn", exact=True).click()
    act_and_settle(page, page.get_by_role("button", name="Softmax", exact=True).click)
    expect(page.get_by_role("heading", name="Why we scale")).to_be_visible()
    wait_until_settled(page)
    page.get_by_role("link", name="Explore", exact=True).click()
    expect(page.get_by_role("heading", name="Attention Lab")).to_be_visible()
    wait_until_settled(page)
    assert "scores · query 1" in chosen_cell_line(page)
    link = {key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()}
    assert link == {"step": "scores", "head": "2", "q": "1"}
