"""What is written on the maps: nothing of it leaves its map, lies over something else, or is too faint."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

import pytest
from conftest import in_theme, settled
from test_browser import Open

from attention import TypedText
from attention.export.paper.cells import contrast
from pages.ui.knobs.table import DEFAULTS

pytestmark = pytest.mark.browser

# Of every text on a map: what it is, how far it leaves the map, its colour and that of the page; whether the title lies over the colour bar.
WRITTEN = """() => [...document.querySelectorAll('.js-plotly-plot')].flatMap((plot) => {
    const box = plot.getBoundingClientRect(), bar = plot.querySelector('.colorbar .cbfills')?.getBoundingClientRect();
    const page = getComputedStyle(document.querySelector('[data-testid=stApp]')).backgroundColor;
    return [...plot.querySelectorAll('svg.main-svg text')].filter((text) => text.getBoundingClientRect().width).map((text) => {
        const own = text.getBoundingClientRect(), title = text.matches('.gtitle, .gtitle-subtitle');
        return { text: text.textContent, away: Math.max(box.left - own.left, own.right - box.right, box.top - own.top, own.bottom - box.bottom),
            fill: getComputedStyle(text).fill, page, cell: Boolean(text.closest('.heatmap-label')),
            covers: Boolean(title && bar && own.bottom > bar.top && own.right > bar.left && own.left < bar.right) };
    });
})"""
ODD = "internationalization WWWWWWWWWWWW 日本語日本語日本語日本語 a"
LINKS = (
    ("", {"mask": "causal", "colors": "log"}),
    ("", {"text": " ".join(f"Wörterbuch{i}" for i in range(300)), "mask": "causal", "colors": "stretched"}),
    ("", {"text": ODD, "step": "weights", "view": "factors"}),
    ("heads", {"heads": "16", "colors": "log"}),
    ("masks", {"text": ODD, "text2": "b", "mask": "window", "window": "0"}),
)


def css_to_hex(css: str) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in css.removeprefix("rgb(").removesuffix(")").split(","))


# Every map is painted as wide as there is room for it.
FITTED = """document.querySelector('.figures').figureState.pictures.every(({ element, lastPaint }) =>
    Math.abs(element._fullLayout.width - element.clientWidth) < 1 && lastPaint.width === element.clientWidth)"""


@pytest.mark.parametrize("link", LINKS, ids=["few tokens", "many tokens", "odd tokens", "heads", "masks"])
def test_nothing_written_on_a_map_is_cut_off_covered_or_faint(
    open_page: Open, server: str, link: tuple[str, dict[str, str]]
) -> None:
    path, knobs = link
    page = open_page(f"{server}/{path}?{urlencode({**knobs, 'lock': '1'})}")
    for scheme in ("light", "dark"):
        in_theme(page, scheme)
        for width in (320, 390, 768, 1280) if scheme == "light" else (390,):  # a theme is colours, not places
            page.set_viewport_size({"width": width, "height": 900})
            page.wait_for_function(FITTED)
            settled(page)
            written: list[dict[str, Any]] = page.evaluate(WRITTEN)
            assert written
            assert [(one["text"], one["away"]) for one in written if one["away"] > 0.5] == []
            assert [one["text"] for one in written if one["covers"]] == []
            faint = [
                one
                for one in written
                if not one["cell"] and contrast(*map(css_to_hex, (one["fill"], one["page"]))) < 4.5
            ]
            assert faint == []


INKS = """(i) => { const plot = document.querySelectorAll('.js-plotly-plot')[i];
    return [...plot.querySelectorAll('.heatmap-label text')].map((text) => [text.__data__.z, getComputedStyle(text).fill]); }"""


def test_weights_have_numbers_in_their_cells_where_scores_have_them_also_at_200_percent(
    open_page: Open, server: str
) -> None:
    page = open_page(f"{server}/?lock=1")

    def numbers(width: int) -> int:
        page.set_viewport_size({"width": width, "height": 900})
        page.wait_for_function(FITTED)
        scores, weights = (len(page.evaluate(INKS, i)) for i in (0, 1))
        assert scores == weights, width
        return scores

    without, having = 900, 1400
    assert (numbers(without), numbers(having)) == (0, 81)
    while having - without > 10:  # towards the width at which they come, where one map might be ahead of the other
        middle = (without + having) // 2
        without, having = (without, middle) if numbers(middle) else (middle, having)
    # At 200 % a window of 1,280 pixels is one of 640.
    session = page.context.new_cdp_session(page)
    size = {"width": 640, "height": 360, "deviceScaleFactor": 2, "mobile": False}
    session.send("Emulation.setDeviceMetricsOverride", size)
    page.wait_for_function(f"devicePixelRatio === 2 && innerWidth === 640 && {FITTED}")
    settled(page)
    weights = TypedText(DEFAULTS["text"]).trace().layers[0].weights[0]
    assert [z for z, _ in page.evaluate(INKS, 1)] == pytest.approx(weights.flatten().tolist(), abs=1e-6)
    session.send("Emulation.clearDeviceMetricsOverride")
    session.detach()
