"""The Lab behind nginx: replicas of visitors, headers, logs, limits and policy."""

from __future__ import annotations

import re
import socket
import threading
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import numpy as np
import pytest
from conftest import chosen_cell_line, click_cell, free_port, painted_numbers, wait_until_settled
from playwright.sync_api import expect
from replicas import Replicas, Visitor
from test_browser import CAUSAL, LINK

from benchmarks.proxy import running_proxy
from pages.ui.server import assets

pytestmark = [pytest.mark.browser, pytest.mark.long]  # three servers behind nginx

Visit = Callable[..., Visitor]


def route_of(cookie: str) -> str:
    (route,) = re.findall(r"^route=([0-9a-f]{32}); Path=/; HttpOnly; .*SameSite=Lax$", cookie)
    return str(route)


def test_proxy_keeps_visitors_on_one_replica_and_spreads_them(replicas: Replicas) -> None:
    routes = [route_of(replicas.get("/")[1]["set-cookie"]) for _ in range(24)]
    assert len(set(routes)) == 24
    assert {replicas.of_route(route) for route in routes} == set(replicas.servers)
    for route in routes[:5]:
        assert len({replicas.of_route(route) for _ in range(4)}) == 1
        assert "route=" not in replicas.get("/", route)[1].get("set-cookie", "")
    assert "route=" in replicas.get("/", "somebody's own")[1]["set-cookie"]
    # over HTTPS, which may end before this proxy, the cookie also reaches a frame on another site
    assert "SameSite=None; Secure; Partitioned" in replicas.get("/", **{"X-Forwarded-Proto": "https"})[1]["set-cookie"]
    # requests of a session reach one replica even without cookies
    for _ in range(12):
        with pytest.raises(HTTPError):
            replicas.get("/media/nothing.csv")
    assert len(replicas.served("/media/nothing.csv")) == 1


def test_proxy_sends_the_expected_headers_and_logs(replicas: Replicas) -> None:
    page, headers = replicas.get("/?text=a+secret+of+mine")
    assert b"<html" in page
    assert headers["server"] == "nginx"
    assert "default-src 'self'" in headers["content-security-policy"]
    assert (headers["x-content-type-options"], headers["referrer-policy"]) == ("nosniff", "same-origin")
    assert replicas.served("GET / ")
    assert "secret" not in replicas.log.read_text()
    replicas.get(f"/?text={'word+' * 4000}")  # 20,000 characters
    for path in ("/_stcore/metrics", "/_stcore/script-health-check"):  # reachable only from inside
        with pytest.raises(HTTPError, match="404"):
            replicas.get(path)
        assert urlopen(f"http://{next(iter(replicas.servers))}{path}", timeout=60).status == 200
    with pytest.raises(HTTPError, match="413"):
        urlopen(Request(f"{replicas.home}/_stcore/upload_file/a/b", data=b"0" * (17 * 2**20 + 1), method="PUT"))


SOCKET = "GET /_stcore/stream", "Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13"
UPLOAD = "PUT /_stcore/upload_file/a/b", "Content-Length: 1"


@contextmanager
def answers(replicas: Replicas, request: tuple[str, ...], cookies: list[str], address: str) -> Iterator[Counter[int]]:
    """The statuses of the answers to simultaneous requests of one address, whose connections stay open meanwhile."""
    host, _, port = replicas.home.removeprefix("http://").partition(":")
    request_line, *lines = request
    lines += [f"Host: {host}:{port}", f"Origin: {replicas.home}", f"Sec-WebSocket-Key: {b64encode(bytes(16)).decode()}"]
    with ExitStack() as stack:
        connections = [socket.create_connection((host, int(port)), 60, source_address=(address, 0)) for _ in cookies]
        for connection, cookie in zip(connections, cookies, strict=True):
            stack.enter_context(connection)
            connection.sendall(
                "\r\n".join([f"{request_line} HTTP/1.1", *lines, f"Cookie: route={cookie}", "", "0"]).encode()
            )
        yield Counter(int(connection.recv(12).split()[1]) for connection in connections)


def test_one_address_cannot_lock_out_the_next_visitor(replicas: Replicas) -> None:
    with (
        answers(replicas, SOCKET, [f"{i:032x}" for i in range(620)], "127.0.0.1") as school,
        answers(replicas, SOCKET, ["a" * 32] * 22, "127.0.0.2") as single,
    ):
        assert school == {101: 600, 429: 20}
        assert single == {101: 20, 429: 2}  # tabs
        assert b"<html" in replicas.get("/")[0]


def test_rapid_uploads_wait_and_many_more_are_refused(replicas: Replicas) -> None:
    with answers(replicas, UPLOAD, ["b" * 32] * 30, "127.0.0.1") as statuses:
        assert set(statuses) == {403, 429}  # 403 comes from a replica, which has requested no file
        assert statuses[403] >= 11
    with answers(replicas, UPLOAD, ["c" * 32], "127.0.0.1") as other:
        assert other == {403: 1}


def test_every_page_works_under_the_policy_with_compressed_cached_scripts(replicas: Replicas, visit: Visit) -> None:
    visitor = visit(strict=True)
    for path in ("/heads", "/masks", "/compare", "/softmax", "/reference", f"/?{LINK}"):
        page = visitor.open(path)
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        if path != "/reference":
            expect(page.locator(".figures .js-plotly-plot .xtick text").first).to_be_visible()
    expect(page.locator(".answer-line .side.q code")).to_have_text("the")
    click_cell(page, 1, row=4, column=1)
    expect(page.locator(".answer-line .side.k code")).to_have_text("cat")
    assert chosen_cell_line(page).startswith("weights · query 4 the → key 1 cat")
    np.testing.assert_array_equal(painted_numbers(page, 1), CAUSAL.weights[0].numpy())
    wait_until_settled(page)  # the click is followed by a full run, which redraws the button
    with page.expect_download() as coming:
        page.get_by_role("link", name="Download CSV").click()
    assert coming.value.suggested_filename.endswith(".csv")
    assert not visitor.complaints
    # large scripts are compressed and cacheable
    (script,) = set(re.findall(r"/app/static/\w+/plotly\.js", replicas.log.read_text()))
    size = len(assets._scripts()["plotly"])
    body, headers = replicas.get(script, **{"Accept-Encoding": "gzip"})
    assert headers["content-encoding"] == "gzip"
    assert len(body) < size / 2.5
    assert headers["cache-control"] == "public, max-age=31536000, immutable"
    assert "max-age" not in replicas.get("/")[1]["cache-control"]
    # and the policy is in force
    assert page.evaluate("fetch('https://example.org/').then(() => 'fetched', () => 'refused')") == "refused"
    assert any("Content Security Policy" in complaint for complaint in visitor.complaints)
    visitor.complaints.clear()


class SingleVersion(BaseHTTPRequestHandler):
    """A replica that has only the scripts of one version."""

    version: str

    def do_GET(self) -> None:
        known = self.path.endswith("/health") or f"/{self.version}/" in self.path
        self.send_response(200 if known else 404)
        self.end_headers()
        self.wfile.write(b"ok" if known else b"no")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        pass


def test_scripts_are_found_on_any_replica_with_their_version(tmp_path: Path) -> None:
    with ExitStack() as stack:
        servers = []
        for version in ("old", "new", "new"):
            handler = type("", (SingleVersion,), {"version": version})
            replica = stack.enter_context(ThreadingHTTPServer(("127.0.0.1", 0), handler))
            threading.Thread(target=replica.serve_forever, daemon=True).start()
            stack.callback(replica.shutdown)
            servers.append(f"127.0.0.1:{replica.server_port}")
        home, _ = stack.enter_context(running_proxy(tmp_path, free_port(), servers))
        for version in ("old", "new") * 6:  # without a cookie each request may come to another replica
            assert urlopen(f"{home}/app/static/{version}/figure.js", timeout=60).read() == b"ok"
        with pytest.raises(HTTPError, match="404"):
            urlopen(f"{home}/app/static/none/figure.js", timeout=60)


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name in http.server
        pass


def test_allowed_foreign_page_may_frame_the_lab(replicas: Replicas, visit: Visit, tmp_path: Path) -> None:
    link = f"{replicas.home}/?{LINK}&q=4&embed=true".replace("&", "&amp;")
    site = tmp_path / "site"
    site.mkdir()
    (site / "index.html").write_text(f"<link rel=icon href=data:,><iframe src='{link}' width=1200 height=900></iframe>")
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=site)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        visitor = visit(strict=True)
        page = visitor.open(f"http://localhost:{server.server_port}/")  # another site than 127.0.0.1
        frame = page.frame_locator("iframe")
        expect(frame.locator(".answer-line .side.q code")).to_have_text("the")
        expect(frame.locator(".answer-line [name=q]")).to_have_value("4")
        expect(frame.locator(".figures .js-plotly-plot .xtick text").first).to_be_visible()
        assert not [cookie for cookie in visitor.context.cookies() if cookie["name"] == "route"]
        with page.expect_download() as coming:  # from the replica that has the session, without a cookie
            frame.get_by_role("link", name="Download CSV").click()
        assert coming.value.suggested_filename.endswith(".csv")
        server.shutdown()
