"""Behaviour that only a browser shows: painting, clicks, links, history, themes, narrow screens."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlencode, urlsplit

import numpy as np
import pytest
from conftest import (
    Tabs,
    act_and_settle,
    boxes_of,
    chosen_cell_line,
    click_cell,
    painted_numbers,
    place_of_cell,
    running_server,
    set_control,
    set_theme,
    still_box,
    wait_until_settled,
)
from playwright.sync_api import Page, expect

from attention import AttentionConfig, TypedText, explain
from attention.pictures.look import _COLORS
from pages.ui.address import menu

pytestmark = pytest.mark.browser

TEXT = "the cat sat on the mat"
CAUSAL = TypedText(TEXT, AttentionConfig(mask="causal")).trace().layers[0]
LINK = urlencode({"text": TEXT, "mask": "causal"})
Open = Callable[..., Page]


def query(page: Page) -> dict[str, str]:
    return {key: values[0] for key, values in parse_qs(urlsplit(page.url).query).items()}


def test_lab_paints_backend_numbers_with_arithmetic_and_csv(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}&step=scores&head=1&q=2&k=1")
    np.testing.assert_array_equal(painted_numbers(page, 0), CAUSAL.scores[1].numpy())
    np.testing.assert_array_equal(painted_numbers(page, 1), CAUSAL.weights[1].numpy())
    np.testing.assert_array_equal(painted_numbers(page, 2), CAUSAL.output.numpy())
    with page.expect_download() as download:
        page.get_by_role("link", name="Download CSV").click()
    rows = download.value.path().read_text().splitlines()
    assert rows[0].split(",") == ["query_pos", *(f"{i} {token}" for i, token in enumerate(TEXT.split()))]
    np.testing.assert_array_equal(
        np.array([row.split(",")[1:] for row in rows[1:]], dtype=np.float32), CAUSAL.scores[1].numpy()
    )
    trace = TypedText(TEXT, AttentionConfig(mask="causal")).trace()
    formulas = page.locator(".katex-display annotation").text_content() or ""
    for line in explain(trace, "scores", head=1, q=2, k=1).lines:
        assert line in formulas
    expect(page.locator(".katex-error")).to_have_count(0)
    # A hidden cell has no arithmetic.
    act_and_settle(page, page.locator(".strip button[name=masked_scores]").click)
    act_and_settle(page, lambda: click_cell(page, 2, row=1, column=5))
    expect(page.get_by_text("The mask hides key 5 from query 1")).to_be_visible()


def test_lab_maps_are_clickable_zoomable_and_readable_in_both_themes(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}", viewport={"width": 1440, "height": 900}, color_scheme="dark")
    ticks = page.locator(".figures .js-plotly-plot").nth(1).locator(".xtick text").all_text_contents()
    assert ticks == TEXT.split()
    weights = painted_numbers(page, 1)
    assert weights.shape == (6, 6)
    assert not np.triu(weights, 1).any()
    printed = page.locator(".figures .js-plotly-plot").nth(1).locator(".heatmap-label").all_text_contents()
    assert [float(text) for text in printed if text] == [round(w, 2) for w in CAUSAL.weights[0].flatten().tolist()][
        : len(printed)
    ]
    assert len(printed) == 36
    tops = {box["y"] for box in boxes_of(page.locator(".figures .js-plotly-plot"))}
    assert len(tops) == 1, "on a wide screen the three maps are side by side"

    for scheme in ("dark", "light"):
        set_theme(page, scheme)
        tick, ground = page.evaluate(
            """() => [getComputedStyle(document.querySelector('.figures .js-plotly-plot .xtick text')).fill,
                      getComputedStyle(document.querySelector('.stApp')).backgroundColor]
                .map((color) => color.match(/\\d+/g).slice(0, 3).reduce((sum, part) => sum + Number(part), 0))"""
        )
        assert abs(tick - ground) > 400
        scale = "document.querySelectorAll('.figures .js-plotly-plot')[1]._fullData[0].colorscale[0][1]"
        assert page.evaluate(scale) == _COLORS["zero"][scheme == "dark"]

    # A click explains its cell, adds one history entry, and picks the step of its map.
    act_and_settle(page, lambda: click_cell(page, 1, row=4, column=2))
    assert chosen_cell_line(page) == f"weights · query 4 the → key 2 sat = {CAUSAL.weights[0, 4, 2]:.4g}"
    assert query(page) == {"text": TEXT, "mask": "causal", "q": "4", "k": "2"}
    act_and_settle(page, page.go_back)
    assert query(page) == {"text": TEXT, "mask": "causal"}
    assert "query 0 the → key 0 the" in chosen_cell_line(page)
    act_and_settle(page, lambda: click_cell(page, 2, row=3, column=50))
    assert "output · query 3 on → d_model 50" in chosen_cell_line(page)
    assert query(page)["step"] == "output"

    # The figure is updated in place, and its zoom survives a change of a knob and a click.
    page.evaluate("document.querySelectorAll('.figures .js-plotly-plot')[1].mine = true")
    box = still_box(page.locator(".figures .js-plotly-plot").nth(1).locator(".nsewdrag").first)
    page.mouse.move(box["x"] + 20, box["y"] + 20)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + box["height"] * 0.7, steps=4)
    page.mouse.up()
    zoom = page.wait_for_function(
        """() => { const { range } = document.querySelectorAll('.figures .js-plotly-plot')[1].layout.xaxis;
            return range[1] - range[0] < 5 && range; }"""
    ).json_value()
    set_control(page, "mask", "none")
    assert page.evaluate("document.querySelectorAll('.figures .js-plotly-plot')[1].mine")
    act_and_settle(page, lambda: click_cell(page, 1, row=2, column=2))
    assert page.evaluate("document.querySelectorAll('.figures .js-plotly-plot')[1].layout.xaxis.range") == zoom
    assert not np.array_equal(painted_numbers(page, 1), weights)


def test_link_text_is_never_markup_and_foreign_requests_are_reported(
    open_page: Open, contexts: dict[str, Tabs], server: str
) -> None:
    text = "<b>bold</b> </s> &amp; 2024 $x$"
    bad = {"seed": "http://outside.invalid/", "mask": "www.outside.invalid a@b.invalid"}
    page = open_page(f"{server}/?{urlencode({'text': text, **bad})}")
    ticks = page.locator(".figures .js-plotly-plot").nth(0).locator(".ytick text").all_text_contents()
    assert tuple(ticks) == TypedText(text).trace().tokens
    expect(page.locator(".stMain b", has_text="bold")).to_have_count(0)
    expect(page.get_by_text("The link asks for seed")).to_be_visible()
    # A link to a file has the address of the page until it is used.
    expect(page.locator("a[href*=invalid]:not(.exports a)")).to_have_count(0)
    # The page sends no request to other servers; one that we send ourselves is recorded.
    (tabs,) = (tabs for tabs in contexts.values() if tabs.context == page.context)
    # This address exists, so that no error is logged.
    other = server.replace("127.0.0.1", "localhost") + "/_stcore/health"
    page.evaluate("(other) => fetch(other, { mode: 'no-cors' })", other)
    wait_until_settled(page)
    assert tabs.outside == [other]
    tabs.outside.clear()


def is_typeset(page: Page, step: str) -> None:
    """Asserts that the arithmetic of the chosen cell belongs to the step and is typeset by KaTeX."""
    assert f"{step} ·" in chosen_cell_line(page)
    expect(page.locator(".katex-display")).to_have_count(1)
    expect(page.locator(".katex-error")).to_have_count(0)


def test_maths_of_two_texts_positions_and_temperature_is_typeset(open_page: Open, server: str) -> None:
    """The steps that every trace has are tested in test_browser_lab.py."""
    link = {"text": "a b", "text2": "c d", "positions": "sinusoidal", "k": 1, "mask": "causal", "temperature": 0.5}
    page = open_page(f"{server}/?{urlencode(link)}")
    is_typeset(page, "weights")  # chosen by default
    for step in ("embedding", "position", "memory", "key", "scaled_scores"):
        act_and_settle(page, page.locator(f".strip button[name={step}]").click)
        is_typeset(page, step)


def test_link_reopens_its_state_on_a_fresh_server(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}")
    set_control(page, "head", "2")
    act_and_settle(page, lambda: click_cell(page, 0, row=3, column=1))
    link, numbers = urlsplit(page.url).query, painted_numbers(page, 1)
    with running_server() as other:
        heads = open_page(f"{other}/heads?{LINK}&heads=2&head=1", cold=True)
        expect(heads.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
        expect(heads.get_by_role("dialog")).to_have_count(0)
        layer = TypedText(TEXT, AttentionConfig(mask="causal", n_heads=2)).trace().layers[0]
        panels = heads.evaluate("document.querySelector('.figures .js-plotly-plot').layout.meta.panels")
        mosaic = painted_numbers(heads, 0)
        for panel, weights in zip(panels, layer.weights.numpy(), strict=True):
            np.testing.assert_array_equal(mosaic[panel["y"] : panel["y"] + 6, panel["x"] : panel["x"] + 6], weights)
        heads.close()
        reopened = open_page(f"{other}/?{link}", fresh=True)
        np.testing.assert_array_equal(painted_numbers(reopened, 1), numbers)
        assert query(reopened) == query(page)
        assert chosen_cell_line(reopened) == chosen_cell_line(page)
        reopened.close()  # before its server stops, which would log errors


def test_knobs_survive_navigation_and_reload_and_head_click_opens_lab(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{LINK}")
    set_control(page, "head", "1")
    page.get_by_role("link", name="Heads").click()
    expect(page.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
    wait_until_settled(page)
    assert query(page) == {"text": TEXT, "mask": "causal", "head": "1"}
    page.reload()
    wait_until_settled(page)
    assert query(page) == {"text": TEXT, "mask": "causal", "head": "1"}
    panel = page.evaluate("document.querySelector('.figures .js-plotly-plot').layout.meta.panels[3]")
    click_cell(page, 0, row=panel["y"] + 4, column=panel["x"] + 2)
    expect(page.get_by_role("heading", name="Attention Lab")).to_be_visible()
    wait_until_settled(page)
    assert query(page) == {"text": TEXT, "mask": "causal", "head": "3"}  # the pair stays
    np.testing.assert_array_equal(painted_numbers(page, 1), CAUSAL.weights[3].numpy())
    page.go_back()
    expect(page.get_by_role("heading", name="Heads", exact=True)).to_be_visible()
    wait_until_settled(page)
    assert query(page) == {"text": TEXT, "mask": "causal", "head": "1"}
    # The gaps between heads have no hover, also after cells were repainted.
    set_control(page, "seed", "4")
    for column, says in ((2, True), (6, False)):  # six tokens, then the gutter
        x, y = place_of_cell(page, 0, row=2, column=column)
        page.mouse.move(x - 2, y)
        page.mouse.move(x, y)
        expect(page.locator(".hoverlayer .hovertext")).to_have_count(1 if says else 0)


def test_link_left_at_once_for_other_pages_keeps_its_knobs(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': TEXT})}&heads=2", cold=True)
    expected = {"text": [TEXT], "heads": ["2"]}
    titles = [title for title in menu().values() if title != "Explore"]
    for name in (*titles[1::2], "Explore", *titles[::2], "Explore"):
        page.locator(".st-key-menu").get_by_role("link", name=name, exact=True).click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Attention Lab" if name == "Explore" else name)
        page.wait_for_url(lambda url: parse_qs(urlsplit(url).query) == expected)
        expect(page.locator(".st-key-text textarea")).to_have_value(TEXT)


def test_endless_word_is_painted(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?{urlencode({'text': 'a' * 10_000})}")
    assert painted_numbers(page, 1).shape == (1, 1)
    assert page.evaluate(
        "document.querySelector('.stMain').scrollWidth <= document.querySelector('.stMain').clientWidth"
    )
