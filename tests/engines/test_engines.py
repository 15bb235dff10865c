"""The pages in Firefox and WebKitGTK: what they paint is what the backend computed, and nothing raises. `make browsers` runs it.

The browser tests beside it ask Chromium for all that a page does; here is what an engine could do in another way.
"""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pandas as pd
import pytest
from browsers import WATCH, Tab
from conftest import (
    LISTEN,
    act_and_settle,
    click_cell,
    default_text,
    free_port,
    painted_numbers,
    running_process,
    wait_until_settled,
)
from margins import approx
from PIL import Image
from test_browser_first_screen import CAUSAL, LINK, TEXT, painted, percent
from test_browser_page import PAGES
from test_pages import drawn, opened

from attention import STEPS, AttentionConfig, TypedText, explain
from benchmarks.proxy import running_nginx

pytestmark = pytest.mark.engines

# Puts our script before all others of a page; from the same address, since the content policy stays in force.
NGINX = """
pid FOLDER/nginx.pid;
events {}
http {
    access_log off;
    client_body_temp_path FOLDER/body; proxy_temp_path FOLDER/proxy;
    fastcgi_temp_path FOLDER/fastcgi; uwsgi_temp_path FOLDER/uwsgi; scgi_temp_path FOLDER/scgi;
    server {
        listen 127.0.0.1:PORT;
        location = /first.js {
            root FOLDER;
            default_type text/javascript;
        }
        location / {
            proxy_pass LAB;
            proxy_http_version 1.1;
            proxy_set_header Host $http_host;
            proxy_set_header Accept-Encoding "";
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection "upgrade";
            sub_filter "<head>" "<head><script src='/first.js'></script>";
        }
    }
}
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server whose pages report what goes wrong, and when they are settled."""
    folder = tmp_path_factory.mktemp("lab")
    (folder / "first.js").write_text(WATCH + LISTEN)
    home = f"http://127.0.0.1:{free_port()}"
    with running_process() as (address, _):
        text = NGINX
        for name, value in {"FOLDER": str(folder), "127.0.0.1:PORT": urlsplit(home).netloc, "LAB": address}.items():
            text = text.replace(name, value)
        with running_nginx(folder, text, f"{home}/_stcore/health"):
            yield home


def open_settled(tab: Tab, address: str) -> None:
    """Opens an address, and waits until its page is painted."""
    tab.goto(address)
    wait_until_settled(tab)


def query(tab: Tab) -> dict[str, str]:
    return {key: values[-1] for key, values in parse_qs(urlsplit(tab.evaluate("location.href")).query).items()}


@pytest.mark.parametrize("name", PAGES)
def test_every_page_paints_the_numbers_of_the_backend(tab: Tab, lab: str, name: str) -> None:
    tab.goto(default_text(f"{lab}/{name}"))
    if name == "reference":  # has no figure
        tab.wait_for_function("(n) => document.querySelectorAll('.other-names').length === n", len(STEPS))
    else:
        wait_until_settled(tab)
    for index, figure in enumerate(drawn(opened(f"pages/{name}.py" if name else "app.py"))):
        if "z" in figure["data"][0]:
            assert painted_numbers(tab, index) == approx(figure["data"][0]["z"], nan=True)


def test_film_plays_and_a_link_opens_its_moment(tab: Tab, lab: str) -> None:
    open_settled(tab, f"{lab}/?{LINK}")
    play = tab.locator(".screen .play")
    play.click()
    tab.wait_for_function("document.querySelector('#root .screen').firstScreen.t > 0.2")
    act_and_settle(tab, play.click)
    shown = float(query(tab)["show"])
    assert 0.2 < shown < 5
    open_settled(tab, tab.evaluate("location.href"))
    assert tab.evaluate("document.querySelector('#root .screen').firstScreen.t") == approx(shown)
    tab.evaluate("document.querySelector('#root .screen').firstScreen.seek(4)")
    shares = tab.evaluate("[...document.querySelectorAll('.screen .stage text')].map((text) => text.textContent)")
    weights = CAUSAL.layers[0]["weights"][1, 6].tolist()
    assert {percent(weight) for weight in weights if weight >= 0.03} <= set(shares)


def dark_greys(tab: Tab, y: float, left: float, right: float) -> int:
    """How many pixels of a line of the screen are dark and have no colour."""
    with Image.open(BytesIO(tab.screenshot())) as picture:
        pixels = np.asarray(picture.convert("RGB"))[round(y), round(left) : round(right)]
    darkest, brightest = pixels.min(axis=1), pixels.max(axis=1)
    return int(((brightest - darkest < 24) & (brightest < 160)).sum())


def test_dragged_temperature_gives_the_numbers_of_the_backend(tab: Tab, lab: str) -> None:
    open_settled(tab, f"{lab}/?{LINK}")
    before = painted(tab)
    x, y, width, height = tab.locator(".controls [name=temperature]").box()
    assert not dark_greys(tab, y + height / 2 - 5, x, x + width), (
        "the thumb, above its track, has our colour or is light"
    )
    tab.mouse.move(x + width / 2, y + height / 2)
    tab.mouse.down()
    tab.mouse.move(x + width * 0.7, y + height / 2)
    tab.mouse.move(x + width * 0.8, y + height / 2)
    tab.wait_for_function("Number(document.querySelector('.controls output').textContent) > 1")
    tab.wait_for_function(
        "(before) => document.querySelector('.screen .plot').data[0].z[8][0] !== before", float(before[8, 0])
    )  # the page follows while the button is down
    assert "temperature" not in query(tab)
    act_and_settle(tab, tab.mouse.up)
    config = AttentionConfig(mask="causal", temperature=float(query(tab)["temperature"]))
    layer = TypedText(TEXT, config).trace().layers[0]
    expected = np.where(layer["mask"].numpy(), layer["weights"][1].numpy(), np.nan)
    assert painted(tab) == approx(expected, nan=True)


def test_clicked_cell_explains_its_arithmetic(tab: Tab, lab: str) -> None:
    open_settled(tab, f"{lab}/?{LINK}&step=weights&view=factors")
    index = tab.evaluate("document.querySelectorAll('.figures .js-plotly-plot').length") - 1
    act_and_settle(tab, lambda: click_cell(tab, index, row=4, column=1))
    explanation = explain(CAUSAL, "weights", head=1, q=4, k=1)
    assert (query(tab)["q"], query(tab)["k"]) == ("4", "1")
    assert tab.locator(".answer-line .number").inner_text() == explanation.displayed_value
    assert tab.locator(".answer-line .arithmetic").inner_text() == f"{explanation.sign} {explanation.short}"


def test_typed_text_is_painted(tab: Tab, lab: str) -> None:
    open_settled(tab, f"{lab}/?{LINK}")
    tab.locator(".screen .type").click()
    tab.wait_for_function("document.activeElement.matches('.screen textarea')")
    tab.keyboard.select_all()
    act_and_settle(tab, lambda: tab.keyboard.type("un été à la mer"))
    tab.wait_for_function("new URLSearchParams(location.search).get('text') === 'un été à la mer'")
    wait_until_settled(tab)
    layer = TypedText("un été à la mer", AttentionConfig(mask="causal")).trace().layers[0]
    expected = np.where(layer["mask"].numpy(), layer["weights"][1].numpy(), np.nan)
    assert painted(tab) == approx(expected, nan=True)


def test_downloaded_table_has_the_numbers_of_the_backend(tab: Tab, lab: str) -> None:
    open_settled(tab, f"{lab}/?{LINK}")
    table = pd.read_csv(BytesIO(tab.download(tab.locator("a[href*='weights.csv']").click)), index_col=0)
    assert table.to_numpy(np.float32)[:, : len(TEXT.split())] == approx(CAUSAL.layers[0]["weights"][1], digits=6)
