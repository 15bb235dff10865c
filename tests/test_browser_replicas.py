"""Three servers behind nginx with the configuration that compose.yaml uses: upload, download, click, kill, recover."""

from __future__ import annotations

import csv
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from io import BytesIO, StringIO
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import Request, urlopen

import numpy as np
import pytest
from conftest import ROOT, acted, click_cell, free_port, painted, running_process, settled
from playwright.sync_api import Browser, ConsoleMessage, Page, expect
from test_browser import CAUSAL, LINK, TEXT, query

pytestmark = pytest.mark.browser

RECOVERED_WITHIN = 5_000  # milliseconds
LOST = ("WebSocket connection", "Failed to load resource", "ERR_")  # what a browser says of a server that is gone


class Replicas:
    """Three servers by their address, and the proxy before them with its access log."""

    def __init__(self, home: str, log: Path, servers: dict[str, subprocess.Popen[bytes]]) -> None:
        self.home, self.log, self.servers = home, log, servers

    def get(self, path: str, route: str = "", **headers: str) -> tuple[bytes, dict[str, str]]:
        cookie = {"Cookie": f"route={route}"} if route else {}
        with urlopen(Request(self.home + path, headers={**cookie, **headers}), timeout=10) as answer:
            return answer.read(), {name.lower(): value for name, value in answer.getheaders()}

    def of_route(self, route: str) -> str:
        """The server that a visitor with this cookie gets now."""
        asked = f"/asked-{time.monotonic_ns()}"
        self.get(asked, route)
        (server,) = self.served(f"{asked} ")
        return server

    def route_to(self, wanted: Callable[[str], bool]) -> str:
        return next(route for i in range(200) if wanted(self.of_route(route := f"{i:032x}")))

    def served(self, request: str) -> set[str]:
        """The servers that answered requests like this one, from the proxy's log."""
        for _ in range(50):  # a line is written when the answer has been sent
            lines = [line for line in self.log.read_text().splitlines() if re.search(request, line)]
            if lines:
                return {line.rsplit(maxsplit=1)[-1] for line in lines}
            time.sleep(0.1)
        raise AssertionError(f"no request like {request} was logged")


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    nginx = shutil.which(os.environ.get("NGINX", "nginx"), path=f"{os.environ['PATH']}:/usr/sbin")
    if nginx is None:
        pytest.fail("this test needs nginx: `make test` installs it, or set NGINX to its path")
    with ExitStack() as stack:
        processes = [stack.enter_context(running_process()) for _ in range(3)]
        servers = {address.removeprefix("http://"): process for address, process in processes}
        port, log = free_port(), tmp_path / "access.log"
        replaced = {"/tmp/": f"{tmp_path}/", "/dev/stdout": str(log), "/dev/stderr": "stderr"}
        replaced |= {f"lab-{n}:8501": server for n, server in enumerate(servers, start=1)}
        replaced |= {"listen 8080": f"listen 127.0.0.1:{port}"}
        text = (ROOT / "deploy" / "nginx.conf").read_text()
        for old, new in replaced.items():
            assert old in text
            text = text.replace(old, new)
        (tmp_path / "nginx.conf").write_text(text)
        globals_ = "daemon off;" + (" user root;" if os.geteuid() == 0 else "")
        command = [nginx, "-e", "stderr", "-c", str(tmp_path / "nginx.conf"), "-g", globals_]
        proxy = subprocess.Popen(command, stderr=subprocess.PIPE)
        try:
            there = Replicas(f"http://127.0.0.1:{port}", log, servers)
            for _ in range(50):
                try:
                    assert there.get("/_stcore/health")[0] == b"ok"
                    break
                except OSError:
                    assert proxy.poll() is None, proxy.stderr and proxy.stderr.read().decode()
                    time.sleep(0.1)
            yield there
        finally:
            proxy.terminate()
            proxy.communicate(timeout=15)


class Visitor:
    """A browser of its own; what it complains of, beyond a server that was killed, ends the test."""

    def __init__(self, browser: Browser, home: str) -> None:
        self.context = browser.new_context(viewport={"width": 1440, "height": 1000})
        self.home, self.complaints, self.killed = home, list[str](), False

    def open(self, path: str, route: str = "") -> Page:
        if route:
            self.context.add_cookies([{"name": "route", "value": route, "url": self.home}])
        page = self.context.new_page()
        page.on("console", self.heard)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.goto(self.home + path)
        settled(page)
        return page

    def heard(self, message: ConsoleMessage) -> None:
        lost = self.killed and any(word in message.text for word in LOST)
        if message.type == "error" and not lost:
            self.complaints.append(f"{message.text} {message.location}")

    @property
    def route(self) -> str:
        return next(cookie["value"] for cookie in self.context.cookies() if cookie["name"] == "route")


@pytest.fixture
def visit(browser: Browser, replicas: Replicas) -> Iterator[Callable[[], Visitor]]:
    visitors: list[Visitor] = []

    def visit() -> Visitor:
        visitors.append(Visitor(browser, replicas.home))
        return visitors[-1]

    yield visit
    for visitor in visitors:
        visitor.context.close()
        assert not visitor.complaints


def upload(page: Page, numbers: np.ndarray) -> None:
    file = BytesIO()
    np.save(file, numbers)
    given = {"name": "x.npy", "mimeType": "application/octet-stream", "buffer": file.getvalue()}
    acted(page, lambda: page.locator("input[type=file]").first.set_input_files([given]))


def downloaded(page: Page) -> np.ndarray:
    with page.expect_download() as coming:
        page.get_by_role("button", name="CSV").first.click()
    rows = list(csv.reader(StringIO(Path(coming.value.path()).read_text("utf-8-sig"))))
    return np.array([[float(cell) for cell in row[1:]] for row in rows[1:]])


def lose_replica(replicas: Replicas, visitor: Visitor, page: Page) -> None:
    """Kills the visitor's server, and waits until the page has run again by itself, on another one."""
    address = replicas.of_route(visitor.route)
    runs = page.evaluate("window.runs")
    visitor.killed = True
    replicas.servers[address].kill()
    page.wait_for_function(f"() => window.runs > {runs}", timeout=RECOVERED_WITHIN)
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=RECOVERED_WITHIN)
    assert replicas.of_route(visitor.route) != address


def test_an_upload_a_download_a_click_and_a_replica_that_is_killed(
    replicas: Replicas, visit: Callable[[], Visitor]
) -> None:
    visitor = visit()
    page = visitor.open("/?source=matrices")
    given = np.array([[2.0, 0.0, 0.0], [0.0, 1.5, 0.5], [0.25, 0.0, 1.0]])
    upload(page, given)
    expect(page.get_by_label("Paste X", exact=True)).to_have_value("2,0,0;0,1.5,0.5;0.25,0,1")
    settled(page)
    acted(page, lambda: click_cell(page, 1, row=2, column=1))
    weights = painted(page, 1)
    link = query(page)
    assert (link["q"], link["step"]) == ("2", "weights")
    title = page.locator(".cell-title").inner_text()
    np.testing.assert_allclose(downloaded(page), weights, atol=1e-6)
    home = replicas.of_route(visitor.route)
    assert replicas.served("PUT .*/upload_file/") == replicas.served(" /media/") == {home}

    # The link on another replica: the same digits.
    guest = visit()
    other = guest.open(f"/?{urlencode(link)}", replicas.route_to(lambda server: server != home))
    np.testing.assert_array_equal(painted(other, 1), weights)
    expect(other.locator(".cell-title")).to_have_text(title)

    # The replica is killed; nobody touches the page.
    lose_replica(replicas, visitor, page)
    settled(page)
    np.testing.assert_array_equal(painted(page, 1), weights)
    expect(page.locator(".cell-title")).to_have_text(title)
    assert query(page) == link
    np.testing.assert_allclose(downloaded(page), weights, atol=1e-6)
    acted(page, lambda: click_cell(page, 1, row=0, column=2))
    assert query(page)["k"] == "2"
    np.testing.assert_array_equal(painted(page, 1), weights)


def test_an_upload_that_is_gone_is_asked_for_again_in_words(replicas: Replicas, visit: Callable[[], Visitor]) -> None:
    visitor = visit()
    page = visitor.open("/?source=matrices")
    given = np.random.default_rng(0).normal(size=(400, 3))  # about 24,000 characters: too long for a link and a field
    upload(page, given)
    expect(page.get_by_text("X was uploaded.")).to_be_visible()
    assert query(page)["uploaded"] == "x:400x3"
    expect(page.get_by_text("upload it again")).to_have_count(0)
    weights = painted(page, 1)
    lose_replica(replicas, visitor, page)
    expect(page.get_by_text("X (400 × 3) is too long for a link", exact=False).first).to_contain_text("upload it again")
    assert not page.locator(".js-plotly-plot").count()
    upload(page, given)
    np.testing.assert_array_equal(painted(page, 1), weights)
    expect(page.get_by_text("upload it again")).to_have_count(0)


def test_knobs_and_page_are_there_again_after_two_replicas_are_killed(
    replicas: Replicas, visit: Callable[[], Visitor]
) -> None:
    visitor = visit()
    page = visitor.open(f"/?{LINK}")
    acted(page, lambda: click_cell(page, 1, row=5, column=2))
    for _ in range(2):
        lose_replica(replicas, visitor, page)
        settled(page)
        np.testing.assert_array_equal(painted(page, 1), CAUSAL.weights[0].numpy())
        assert query(page)["k"] == "2"
    assert page.get_by_label("Text", exact=True).first.input_value() == TEXT


def test_a_visitor_stays_with_one_replica_and_visitors_spread(replicas: Replicas) -> None:
    cookies = [replicas.get("/")[1]["set-cookie"] for _ in range(24)]
    routes = [re.search(r"route=([0-9a-f]{32}); Path=/; HttpOnly; .*SameSite=Lax", cookie)[1] for cookie in cookies]  # type: ignore[index]
    assert len(set(routes)) == 24
    assert {replicas.of_route(route) for route in routes} == set(replicas.servers)
    for route in routes[:5]:
        assert len({replicas.of_route(route) for _ in range(4)}) == 1
        assert "route=" not in replicas.get("/", route)[1].get("set-cookie", "")
    # over HTTPS, which may end before this proxy, the cookie also reaches a frame on another site
    assert "SameSite=None; Secure; Partitioned" in replicas.get("/", **{"X-Forwarded-Proto": "https"})[1]["set-cookie"]
    # a browser that keeps no cookies: what belongs to its session goes to one replica all the same
    for _ in range(12):
        with pytest.raises(HTTPError):
            replicas.get("/media/nothing.csv")
    assert len(replicas.served("/media/nothing.csv")) == 1


def test_what_the_proxy_sends_and_what_it_logs(replicas: Replicas) -> None:
    page, headers = replicas.get("/?text=a+secret+of+mine")
    assert b"<html" in page
    assert headers["server"] == "nginx"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin")
    assert "secret" not in replicas.log.read_text()
    (script,) = (ROOT / "static").glob("plotly-*.js")
    body, headers = replicas.get(f"/app/static/{script.name}", **{"Accept-Encoding": "gzip"})
    assert headers["content-encoding"] == "gzip"
    assert len(body) < script.stat().st_size / 2.5
    assert "max-age=315360000" in headers["cache-control"]
    assert "max-age" not in replicas.get("/")[1]["cache-control"]
    replicas.get(f"/?text={'word+' * 4000}")  # 20,000 characters
    with pytest.raises(HTTPError, match="413"):
        urlopen(Request(f"{replicas.home}/_stcore/upload_file/a/b", data=b"0" * (17 * 2**20 + 1), method="PUT"))
