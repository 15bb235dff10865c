"""Who may frame the Lab and what its pages may fetch, asked of a server as it starts; and who does not get in."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from http.client import HTTPConnection
from urllib.error import HTTPError
from urllib.parse import urljoin
from urllib.request import Request, urlopen

import pytest
from conftest import FRAMED_BY, HUB, PATIENCE, ROOT, script_address
from playwright.sync_api import Page, expect

from pages.ui.server.headers import HEADERS
from pages.ui.server.served import CACHE_FOREVER


def headers(address: str, method: str = "GET") -> dict[str, str]:
    try:
        answer = urlopen(Request(address, data=b"x" if method == "PUT" else None, method=method), timeout=60)
    except HTTPError as refused:
        answer = refused
    with answer:
        return dict(answer.headers.items())


@pytest.mark.browser
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_every_answer_has_them(server: str, method: str) -> None:
    (script,) = re.findall(r'src="\.(/static/js/index[^"]+)"', urlopen(f"{server}/").read().decode())
    page = ("/", "/heads", "/no/such/page", "/_stcore/health", "/_stcore/host-config", "/_stcore/upload_file/a/b")
    ours = script_address("", "figure")
    for path in (*page, script, ours, "/app/static/none.js", "/media/none.csv", "/..%2f", "/heads/"):
        sent = {name.lower(): value for name, value in headers(server + path, method).items()}
        assert {name: sent[name.lower()] for name in HEADERS} | {"of": path} == {
            **HEADERS,
            "Content-Security-Policy": f"{HEADERS['Content-Security-Policy']} {FRAMED_BY} {HUB}",
            "of": path,
        }


@pytest.mark.browser
@pytest.mark.parametrize("path", ["/heads/", "/a%20b/heads/"])
def test_a_slash_too_many_leads_to_the_page_behind_any_prefix(server: str, path: str) -> None:
    asked = HTTPConnection(server.removeprefix("http://"), timeout=60)
    asked.request("GET", f"{path}?text=a/b&seed=7")
    answer = asked.getresponse()
    asked.close()
    assert answer.status == 301
    for prefix in ("", "/~/+", "/school/lab"):
        there = urljoin(f"{server}{prefix}{path}?text=a/b", answer.headers["Location"])
        assert there == f"{server}{prefix}{path.rstrip('/')}?text=a/b&seed=7"


@pytest.mark.browser
def test_a_browser_keeps_what_is_called_after_its_content_and_asks_again_for_all_else(server: str) -> None:
    figure = script_address(server, "figure")
    for lasting in (figure, script_address(server, "plotly")):
        assert headers(lasting)["cache-control"] == CACHE_FOREVER["Cache-Control"]
    assert headers(f"{server}/").get("cache-control") == "no-cache"
    assert "cache-control" not in headers(figure.replace("figure.js", "none.js"))


def test_nobody_else_may_frame_or_command_the_lab(server: str) -> None:
    assert HEADERS["Content-Security-Policy"].endswith("; frame-ancestors 'self'")
    assert json.load(urlopen(f"{server}/_stcore/host-config"))["allowedOrigins"] == []


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("LAB_MAX_TOKENS", "abc", "LAB_MAX_TOKENS must be a whole number from 1 to 4,096; got 'abc'"),
        ("LAB_FRAMED_BY", "https://a.example; script-src *", "LAB_FRAMED_BY must be origins"),
    ],
)
def test_a_server_that_misreads_a_limit_does_not_start(name: str, value: str, sentence: str) -> None:
    command = [sys.executable, "-m", "streamlit", "run", "app.py", "--server.headless=true", "--server.port=0"]
    run = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {name: value},
        capture_output=True,
        text=True,
        timeout=PATIENCE / 1000,
        check=False,
    )
    assert run.returncode == 1
    assert run.stderr.startswith(sentence)
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.browser
def test_a_page_that_frames_the_lab_cannot_command_it(server: str, framed: Callable[[str], Page]) -> None:
    page = framed(FRAMED_BY)
    lab = page.frame_locator("iframe")
    expect(lab.locator(".js-plotly-plot .xtick").first).to_be_visible()  # embedded, as the operator allows
    loot = f"{FRAMED_BY}/loot"
    colors = dict.fromkeys(("primaryColor", "backgroundColor", "secondaryBackgroundColor", "textColor"), "#00ff00")
    for order in (
        {"type": "SET_FILE_UPLOAD_CLIENT_CONFIG", "prefix": loot, "headers": {}},
        {"type": "SET_CUSTOM_THEME_CONFIG", "themeInfo": {**colors, "bodyFont": "serif"}},
        {"type": "SET_INPUTS_DISABLED", "disabled": True},
        {"type": "UPDATE_FROM_QUERY_PARAMS", "queryParams": "source=notebook"},
        {"type": "STOP_SCRIPT"},
    ):
        page.evaluate("(order) => frames[0].postMessage({stCommVersion: 1, ...order}, '*')", order)
    lab.get_by_text("Knobs", exact=True).click()
    file = {"name": "x.csv", "mimeType": "text/csv", "buffer": b"2,0;0,1"}
    with page.expect_request(lambda asked: asked.method == "PUT") as upload:
        lab.locator(".st-key-matrices_file_x input[type=file]").set_input_files([file])
    assert upload.value.url.startswith(f"{server}/_stcore/upload_file/")
    paper = lab.locator("[data-testid=stApp]").evaluate("(app) => getComputedStyle(app).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    expect(lab.get_by_label("Paste X", exact=True)).to_be_enabled()
    assert "GUEST_READY" not in page.evaluate("heard.map(({ type }) => type)")  # it has not begun to listen


@pytest.mark.browser
def test_a_page_that_the_operator_does_not_name_cannot_frame_the_lab(framed: Callable[[str], Page]) -> None:
    page = framed("https://another.streamlit.app")
    page.wait_for_function("document.querySelector('iframe')")
    assert page.frames[1].url == "chrome-error://chromewebdata/"
    assert page.evaluate("heard") == []
