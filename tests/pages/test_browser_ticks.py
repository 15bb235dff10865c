"""The text on the maps: none leaves its map, overlaps something, or is too faint."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from conftest import set_theme, wait_until_settled
from margins import approx
from test_browser import Open

from attention import TypedText
from pages.ui.state.knob_table import DEFAULTS

pytestmark = [pytest.mark.browser, pytest.mark.long]  # every text of many maps, in four widths and two themes

# For every text on a map: its content, how far it leaves the map, its colour and the page's; whether a title covers the colour bar.
WRITTEN = """() => [...document.querySelectorAll('.figures .js-plotly-plot')].flatMap((plot) => {
    const box = plot.getBoundingClientRect(), bar = plot.querySelector('.colorbar .cbfills')?.getBoundingClientRect();
    const page = getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor;
    return [...plot.querySelectorAll('svg.main-svg text')].filter((text) => text.getBoundingClientRect().width).map((text) => {
        const rect = text.getBoundingClientRect(), title = text.matches('.gtitle, .gtitle-subtitle');
        return { text: text.textContent, away: Math.max(box.left - rect.left, rect.right - box.right, box.top - rect.top, rect.bottom - box.bottom),
            fill: getComputedStyle(text).fill, page, cell: Boolean(text.closest('.heatmap-label')),
            covers: Boolean(title && bar && rect.bottom > bar.top && rect.right > bar.left && rect.left < bar.right) };
    });
})"""
ODD = "internationalization WWWWWWWWWWWW 日本語日本語日本語日本語 a"
LINKS = (
    ("", {"mask": "causal", "colors": "log"}),
    ("", {"text": " ".join(f"Wörterbuch{i}" for i in range(300)), "mask": "causal", "colors": "stretched"}),
    ("", {"text": ODD, "step": "weights", "view": "factors"}),
    ("heads", {"heads": "16", "colors": "log"}),
    ("", {"explore_mask": "true", "text": ODD, "text2": "b", "mask": "window", "window": "0"}),
)


def contrast(first: str, second: str) -> float:
    """The contrast ratio of two colours of CSS, 1 … 21, by WCAG."""

    def luminance(css: str) -> float:
        parts = (int(part) / 255 for part in css.removeprefix("rgb(").removesuffix(")").split(","))
        linear = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        return sum(share * part for share, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

    dark, light = sorted((luminance(first), luminance(second)))
    return (light + 0.05) / (dark + 0.05)


# Every map fills the width of its element.
FITTED = """document.querySelector('.figures').figureState.pictures.every(({ element, lastPaint }) =>
    Math.abs(element._fullLayout.width - element.clientWidth) < 1 && lastPaint.width === element.clientWidth)"""


@pytest.mark.parametrize("link", LINKS, ids=["few tokens", "many tokens", "odd tokens", "heads", "masks"])
def test_map_text_is_never_cut_off_covered_or_faint(
    open_page: Open, server: str, link: tuple[str, dict[str, str]]
) -> None:
    path, knobs = link
    page = open_page(f"{server}/{path}?{urlencode({**knobs, 'lock': '1'})}")
    for scheme in ("light", "dark"):
        set_theme(page, scheme)
        for width in (320, 390, 768, 1280) if scheme == "light" else (390,):  # themes differ in colours, not positions
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function(FITTED)
            wait_until_settled(page)
            written: list[dict[str, Any]] = page.evaluate(WRITTEN)
            assert written
            assert [(text["text"], text["away"]) for text in written if text["away"] > 0.5] == []
            assert [text["text"] for text in written if text["covers"]] == []
            faint = [text for text in written if not text["cell"] and contrast(text["fill"], text["page"]) < 4.5]
            assert faint == []


INKS = """(i) => { const plot = document.querySelectorAll('.figures .js-plotly-plot')[i];
    return [...plot.querySelectorAll('.heatmap-label text')].map((text) => [text.__data__.z, getComputedStyle(text).fill]); }"""


def test_weight_cells_show_numbers_like_scores_even_at_200_percent(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?lock=1")

    def numbers(width: int) -> int:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(FITTED)
        scores, weights = (len(page.evaluate(INKS, i)) for i in (0, 1))
        assert scores == weights, width
        return scores

    narrow, wide = 900, 1400
    assert (numbers(narrow), numbers(wide)) == (0, 81)
    while wide - narrow > 10:  # towards the width at which numbers appear, where the maps might differ
        middle = (narrow + wide) // 2
        narrow, wide = (narrow, middle) if numbers(middle) else (middle, wide)
    # At 200 % a window of 1,280 pixels has 640 CSS pixels.
    session = page.context.new_cdp_session(page)
    size = {"width": 640, "height": 360, "deviceScaleFactor": 2, "mobile": False}
    session.send("Emulation.setDeviceMetricsOverride", size)
    page.wait_for_function(f"devicePixelRatio === 2 && innerWidth === 640 && {FITTED}")
    wait_until_settled(page)
    weights = TypedText(DEFAULTS["text"]).trace().layers[0].weights[0]
    assert [z for z, _ in page.evaluate(INKS, 1)] == approx(weights.flatten().tolist())
    session.send("Emulation.clearDeviceMetricsOverride")
    session.detach()


KEYS = """[...document.querySelectorAll('.figures .js-plotly-plot')][1]._fullLayout.xaxis"""


def test_every_token_has_a_label_or_the_map_says_so(open_page: Open, server: str) -> None:
    page = open_page(f"{server}/?text=Attention+is+all+you+need", viewport={"width": 1280, "height": 720})
    assert page.evaluate(f"{KEYS}.ticktext") == ["attention", "is", "all", "you", "need"]
    page = open_page(f"{server}/?text={'+'.join(f'w{i}' for i in range(60))}&lock=1")
    labels = [text.split()[1] for text in page.evaluate(f"{KEYS}.ticktext")]
    stride = int(labels[1].removeprefix("w"))
    assert labels == [f"w{i}" for i in range(0, 60, stride)]
    assert f"every {stride}" in page.evaluate(f"{KEYS}.title.text")
    enlarge = page.locator(".figures .js-plotly-plot").nth(1).locator(".enlarge")
    enlarge.click()
    page.wait_for_function(f"{KEYS}.ticktext.length === 60")
    assert "every" not in page.evaluate(f"{KEYS}.title.text")
    page.keyboard.press("Escape")
    page.wait_for_function(f"{KEYS}.ticktext.length === {len(labels)} && {FITTED}")
