"""The sites that may frame the Lab and the addresses that its pages may fetch, tested on a running server; refused pages."""

from __future__ import annotations

import asyncio
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
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from pages.ui.server import guard
from pages.ui.server.assets import _CACHE_FOREVER
from pages.ui.server.guard import _HEADERS


def headers(address: str, method: str = "GET") -> dict[str, str]:
    try:
        answer = urlopen(Request(address, data=b"x" if method == "PUT" else None, method=method), timeout=60)
    except HTTPError as refused:
        answer = refused
    with answer:
        return dict(answer.headers.items())


@pytest.mark.browser
@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT"])
def test_every_response_has_the_security_headers(server: str, method: str) -> None:
    (script,) = re.findall(r'src="\.(/static/js/index[^"]+)"', urlopen(f"{server}/").read().decode())
    page = ("/", "/heads", "/no/such/page", "/_stcore/health", "/_stcore/host-config", "/_stcore/upload_file/a/b")
    own_script = script_address("", "figure")
    for path in (*page, script, own_script, "/app/static/none.js", "/media/none.csv", "/..%2f", "/heads/"):
        received = {name.lower(): value for name, value in headers(server + path, method).items()}
        assert {name: received[name.lower()] for name in _HEADERS} | {"of": path} == {
            **_HEADERS,
            "Content-Security-Policy": f"{_HEADERS['Content-Security-Policy']} {FRAMED_BY} {HUB}",
            "of": path,
        }


@pytest.mark.parametrize(
    ("path", "peer", "forwarded", "status"),
    [
        ("/_stcore/metrics", "127.0.0.1", "", 200),
        ("/lab/_stcore/metrics", "::1", "", 200),
        ("/_stcore/metrics", "10.1.2.3", "", 404),
        ("/_stcore/metrics", "203.0.113.1", "", 404),
        ("/_stcore/metrics", "127.0.0.1", "203.0.113.1", 404),
        ("/_stcore/script-health-check", "10.1.2.3", "", 200),
        ("/_stcore/script-health-check", "1.2.3.4", "", 404),  # Python counts addresses of examples as private
        ("/_stcore/script-health-check", "10.1.2.3", "203.0.113.1", 404),
        ("/_stcore/health", "203.0.113.1", "203.0.113.1", 200),
    ],
)
def test_paths_of_operators_answer_only_where_they_are(path: str, peer: str, forwarded: str, status: int) -> None:
    answers = list[int]()

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("of the server")(scope, receive, send)

    async def receive() -> Message:
        raise AssertionError

    async def send(message: Message) -> None:
        answers.extend([message["status"]] if message["type"] == "http.response.start" else [])

    given = [(b"x-forwarded-for", forwarded.encode())] if forwarded else []
    scope = {"type": "http", "method": "GET", "path": path, "client": (peer, 5), "headers": given}
    asyncio.run(guard.with_headers(app, scope, receive, send))
    assert answers == [status]


@pytest.mark.browser
@pytest.mark.parametrize("path", ["/heads/", "/a%20b/heads/"])
def test_extra_slashes_redirect_to_the_page_behind_any_prefix(server: str, path: str) -> None:
    connection = HTTPConnection(server.removeprefix("http://"), timeout=60)
    connection.request("GET", f"{path}?text=a/b&seed=7")
    answer = connection.getresponse()
    connection.close()
    assert answer.status == 301
    for prefix in ("", "/~/+", "/school/lab"):
        target = urljoin(f"{server}{prefix}{path}?text=a/b", answer.headers["Location"])
        assert target == f"{server}{prefix}{path.rstrip('/')}?text=a/b&seed=7"


@pytest.mark.browser
def test_browsers_cache_hashed_files_and_revalidate_all_others(server: str) -> None:
    figure = script_address(server, "figure")
    for address in (figure, script_address(server, "plotly")):
        assert headers(address)["cache-control"] == _CACHE_FOREVER["Cache-Control"]
    assert headers(f"{server}/").get("cache-control") == "no-cache"
    assert "cache-control" not in headers(figure.replace("figure.js", "none.js"))


def test_only_allowed_sites_frame_or_message_the_lab(server: str) -> None:
    assert _HEADERS["Content-Security-Policy"].endswith("; frame-ancestors 'self'")
    assert json.load(urlopen(f"{server}/_stcore/host-config"))["allowedOrigins"] == []


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("LAB_MAX_TOKENS", "abc", "LAB_MAX_TOKENS must be a whole number from 1 to 8,192; got 'abc'"),
        ("LAB_FRAME_ANCESTORS", "https://a.example; script-src *", "LAB_FRAME_ANCESTORS must be origins"),
    ],
)
def test_server_with_a_malformed_limit_does_not_start(name: str, value: str, sentence: str) -> None:
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
def test_framing_page_cannot_control_the_lab(server: str, framing_page: Callable[[str], Page]) -> None:
    page = framing_page(FRAMED_BY)
    lab = page.frame_locator("iframe")
    expect(
        lab.locator(".figures .js-plotly-plot .xtick text").first
    ).to_be_visible()  # embedded, as the operator allows
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
    with page.expect_request(lambda request: request.method == "PUT") as upload:
        lab.locator(".st-key-matrices_file_x input[type=file]").set_input_files([file])
    assert upload.value.url.startswith(f"{server}/_stcore/upload_file/")
    paper = lab.locator("[data-testid=stApp]").evaluate("(app) => getComputedStyle(app).backgroundColor")
    assert paper == "rgb(255, 255, 255)"
    expect(lab.get_by_label("Paste X", exact=True)).to_be_enabled()
    assert "GUEST_READY" not in page.evaluate("heard.map(({ type }) => type)")  # it has never started to listen


@pytest.mark.browser
def test_unlisted_page_cannot_frame_the_lab(framing_page: Callable[[str], Page]) -> None:
    page = framing_page("https://another.streamlit.app")
    page.wait_for_function("document.querySelector('iframe')")
    assert page.frames[1].url == "chrome-error://chromewebdata/"
    assert page.evaluate("heard") == []
