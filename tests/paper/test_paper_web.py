"""A figure as one HTML file: no external resources, no scripts except the drawing code, and the numbers of the figure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import plotly.graph_objects as go
import pytest
import torch
from conftest import boxes_of
from playwright.sync_api import Browser, Page, Request, expect

from attention import AttentionConfig, Cell, Layer, Trace, TypedText
from attention.lessons import softmax
from attention.paper import html
from attention.pictures import heatmap
from attention.pictures.message import to_plotly

CAT = "the cat sat on the mat"
EVIL = ("</script><script>window.taken = 1</script>", "<img src=x onerror='window.taken = 1'>", "</title>", "$x$", "&amp;", "<!--<script>")  # fmt: skip
Open = Callable[..., Page]


def weights() -> go.Figure:
    trace = TypedText(CAT, AttentionConfig(mask="causal")).trace()
    return heatmap.heatmap(trace, "weights", head=1, chosen=Cell(0, "weights", 1, 4, 2))


def evil() -> go.Figure:
    return heatmap.heatmap(Trace(EVIL, (Layer(recorded={"scores": torch.arange(36.0).reshape(1, 6, 6)}),)), "scores")


def heads() -> go.Figure:
    return heatmap.heads(
        TypedText(CAT, AttentionConfig(n_heads=12, d_model=96, mask="causal")).trace(), "masked_scores"
    )


def shares() -> go.Figure:
    return to_plotly(softmax.shares_by_temperature(softmax.spread((0.1, -0.2, -0.3, 0.5))))


class Tags(HTMLParser):
    """The tags of a page with their attributes, and the text in each."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))
        self.texts.append("")
        self.inside = True

    def handle_endtag(self, _: str) -> None:
        self.inside = False

    def handle_data(self, data: str) -> None:
        if self.inside:
            self.texts[-1] += data

    def all(self, tag: str) -> list[tuple[dict[str, str | None], str]]:
        return [(attrs, text) for (name, attrs), text in zip(self.found, self.texts, strict=True) if name == tag]


@pytest.mark.parametrize("make", [weights, heads, shares, evil])
def test_html_has_title_language_alt_text_and_no_references(make: Callable[[], go.Figure]) -> None:
    figure = make()
    tags = Tags(html(figure))
    assert {name for name, _ in tags.found} == {
        "html", "head", "meta", "title", "style", "body", "main", "div", "noscript", "script"
    }  # fmt: skip
    assert tags.all("html")[0][0] == {"lang": "en"}
    [(_, title)] = tags.all("title")
    assert re.sub("<[^>]*>", "", figure.layout.title.text).split() == title.strip().split(" · ")[0].split()
    [(div, _)] = tags.all("div")
    assert div["aria-label"] == figure.layout.meta["alt"]
    assert not [attrs for _, attrs in tags.found if {"src", "href", "data", "action", "poster"} & set(attrs)]
    policy = next(attrs["content"] for attrs, _ in tags.all("meta") if "http-equiv" in attrs) or ""
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "unsafe-inline" not in policy.split("style-src")[0]
    assert "connect-src" not in policy


def test_markup_in_tokens_stays_inside_the_data() -> None:
    page = html(evil())
    scripts = Tags(page).all("script")
    assert len(scripts) == page.count("<script") == 3
    content = json.loads(scripts[0][1])
    assert "window.taken" not in page.replace(scripts[0][1], "")
    assert "<" not in scripts[0][1]
    assert any("script" in name for name in content["figures"][0]["layout"]["yaxis"]["labelalias"].values())


def test_markup_in_a_title_or_alt_text_is_literal() -> None:
    figure = evil()
    figure.layout.title.text = "<b>&lt;/title&gt;&lt;script&gt;</b>"
    figure.layout.meta = {**figure.layout.meta, "alt": '"><script>window.taken = 1</script>'}
    tags = Tags(html(figure))
    assert tags.all("title")[0][1].startswith("</title><script> · ")
    assert tags.all("div")[0][0]["aria-label"] == figure.layout.meta["alt"]
    assert len(tags.all("script")) == 3


def test_equal_figures_give_equal_html_and_stay_unchanged() -> None:
    figure = weights()
    original = figure.to_json()
    assert html(figure) == html(weights())
    assert figure.to_json() == original


def test_html_disables_sharing_logos_and_mathjax() -> None:
    page = html(weights())
    (_, content), (_, plotly), _ = Tags(page).all("script")
    config = json.loads(content)["config"]
    assert (config["showSendToCloud"], config["displaylogo"], config["typesetMath"]) == (False, False, False)
    assert "plotlyServerURL" not in config
    assert "mathjax" not in page.replace(plotly, "").lower()
    assert "http" not in page.replace(plotly, "").replace("http-equiv", "")


@pytest.fixture
def open_file(browser: Browser, tmp_path: Path) -> Iterator[Open]:
    """Opens a figure's page from a file without a network; at the end, asserts that it requested and logged nothing."""
    requests: list[str] = []
    logged: list[str] = []
    context = browser.new_context(viewport={"width": 1000, "height": 800}, offline=True, accept_downloads=True)

    def on_request(request: Request) -> None:
        if not request.url.startswith(("data:", "blob:")):
            requests.append(request.url)

    def open_file(figure: go.Figure | list[go.Figure]) -> Page:
        path = tmp_path / "figure.html"
        path.write_text(html(figure), encoding="utf-8")
        page = context.new_page()
        page.on("request", on_request)
        page.on("console", lambda message: logged.append(message.text))
        page.on("pageerror", lambda error: logged.append(str(error)))
        page.goto(path.as_uri())
        expect(page.locator("#figure .gtitle")).to_be_visible()
        return page

    yield open_file
    context.close()
    assert requests == [(tmp_path / "figure.html").as_uri()]
    assert not logged


def painted(page: Page, trace: int = 0) -> np.ndarray:
    rows = page.evaluate(
        """(i) => document.getElementById('figure').calcdata[i][0].z.map((row) =>
            Array.from(row, (z) => Number.isFinite(z) ? z : null))""",
        trace,
    )
    return np.array([[np.nan if z is None else z for z in row] for row in rows], dtype=np.float32)


def place(page: Page, row: int, column: int) -> list[float]:
    """The position of a cell's middle on the screen."""
    position: list[float] = page.evaluate(
        """([row, column]) => { const plot = document.getElementById('figure'), {xaxis, yaxis} = plot._fullLayout;
            const box = plot.getBoundingClientRect();
            return [box.x + xaxis._offset + xaxis.l2p(column), box.y + yaxis._offset + yaxis.l2p(row)]; }""",
        [row, column],
    )
    return position


@pytest.mark.sample(1)
@pytest.mark.browser
@pytest.mark.parametrize("make", [weights, heads])
def test_html_paints_the_numbers_of_the_figure_readably(open_file: Open, make: Callable[[], go.Figure]) -> None:
    figure = make()
    page = open_file(figure)
    for i, trace in enumerate(figure.data):
        np.testing.assert_array_equal(painted(page, i), trace.z)
    assert page.locator(".gtitle").text_content() == "".join(re.sub("<[^>]*>", "", figure.layout.title.text))
    ticks = page.locator(".ytick text").all_text_contents()
    assert ticks == list(figure.layout.yaxis.ticktext)
    if make is heads:
        return
    # A hover shows position, token, and the full number.
    page.mouse.move(*place(page, 4, 2))
    page.wait_for_selector(".hoverlayer text")
    hover = "".join(page.locator(".hoverlayer text").all_text_contents())
    assert "query 4 the" in hover
    assert "key 2 sat" in hover
    assert f"{figure.data[0].z[4, 2]:.9g}" in hover
    # Cells show numbers only where they are readable.
    assert page.locator(".heatmap-label").count() == 36
    page.set_viewport_size({"width": 200, "height": 800})
    expect(page.locator(".heatmap-label")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # the figure shrinks with the window
    page.set_viewport_size({"width": 900, "height": 800})
    expect(page.locator(".heatmap-label")).to_have_count(36)


@pytest.mark.browser
def test_several_figures_share_one_html_page_side_by_side(open_file: Open) -> None:
    trace = TypedText(CAT, AttentionConfig(mask="causal")).trace()
    figures = [heatmap.heatmap(trace, step) for step in ("scores", "weights", "output")]
    page = open_file(figures)
    for i, figure in enumerate(figures):
        rows = page.evaluate(
            "(i) => document.querySelectorAll('[role=figure]')[i].calcdata[0][0].z.map((row) => [...row])", i
        )
        np.testing.assert_array_equal(np.array(rows, dtype=np.float32), figure.data[0].z)
    assert len({box["y"] for box in boxes_of(page.locator("[role=figure]"))}) == 1
    page.set_viewport_size({"width": 400, "height": 800})
    page.wait_for_function("document.querySelector('.main-svg').clientWidth < 400")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.browser
def test_html_tags_in_tokens_are_text_and_never_run(open_file: Open) -> None:
    page = open_file(evil())
    assert page.evaluate("window.taken") is None
    assert page.locator("img, script[src]").count() == 0
    ticks = page.locator(".ytick text").all_text_contents()
    assert ticks == ["</script><s…", "<img·src=x·…", "</title>", "$x$", "&amp;", "<!--<script>"]
    page.mouse.move(*place(page, 0, 1))
    page.wait_for_selector(".hoverlayer text")
    assert "</script><script>window.taken" in "".join(page.locator(".hoverlayer text").all_text_contents())
    assert page.evaluate("window.taken") is None


@pytest.mark.browser
def test_html_button_saves_a_png_without_a_network(open_file: Open) -> None:
    page = open_file(shares())
    page.locator("#figure").hover()
    with page.expect_download() as waiting:
        page.locator("[data-title*='Download plot']").click()
    assert Path(waiting.value.path()).read_bytes()[:4] == b"\x89PNG"
    assert page.locator("[data-title*='loud'], [data-title*='hare']").count() == 0
