"""The pages that may open a socket; no request leaves the machine for this check."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from streamlit import config, net_util
from streamlit.web.server.starlette.starlette_websocket import create_websocket_routes

from pages.ui.server import guard, limits
from pages.ui.server.guard import allowed_hosts, allowed_origins


class Runtime:
    """The part of the runtime that Streamlit's socket endpoint needs."""

    def connect_session(self, **_: object) -> str:
        return "session"

    def disconnect_session(self, *_: object, **__: object) -> None:
        pass


@pytest.fixture
def listed() -> Iterator[None]:
    original = config.get_option("server.corsAllowedOrigins")
    config.set_option("server.corsAllowedOrigins", ["https://listed.example", " bare.example"])
    yield
    config.set_option("server.corsAllowedOrigins", original)


def opens(origin: str | None) -> bool:
    """Whether a page of this origin can open a socket to the server lab.example:8501."""
    app = Starlette(routes=create_websocket_routes(Runtime(), None))
    headers = {"Host": "lab.example:8501", **({"Origin": origin} if origin is not None else {})}
    try:
        with TestClient(partial(allowed_origins, app)).websocket_connect("/_stcore/stream", headers=headers):
            return True
    except WebSocketDisconnect as refused:
        return refused.code != 1008


@pytest.fixture(autouse=True)
def no_outside_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(net_util, "_make_blocking_http_get", lambda *_, **__: pytest.fail("a request left the machine"))


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("http://lab.example:8501", True),
        ("https://lab.example:8501", True),
        ("http://localhost:3000", True),
        ("https://listed.example", True),
        ("https://bare.example:444", True),
        ("http://lab.example", False),
        ("https://another.example", False),
        ("https://listed.example.another.example", False),
        ("null", False),
        ("http://[", False),
        ("", False),
    ],
)
def test_own_pages_and_listed_sites_open_sockets(listed: None, origin: str | None, allowed: bool) -> None:
    assert opens(origin) is allowed


def test_disabled_origin_rule_accepts_everybody(monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"server.enableCORS": False, "server.corsAllowedOrigins": []}
    monkeypatch.setattr(guard.st, "get_option", options.__getitem__)
    original = config.get_option("server.enableCORS")
    config.set_option("server.enableCORS", False)
    try:
        assert opens("https://another.example")
    finally:
        config.set_option("server.enableCORS", original)


@pytest.mark.parametrize(
    ("host", "answered"),
    [
        ("localhost:8501", True),
        ("LOCALHOST", True),
        ("127.0.0.1:40001", True),
        ("[::1]:8501", True),
        ("lab.box:8501", True),
        ("evil.example:8501", False),
        ("localhost.evil.example", False),
        ("127.0.0.1.evil.example:8501", False),
        ("", False),
        ("[", False),
    ],
)
def test_local_folders_are_opened_by_local_names_only(
    monkeypatch: pytest.MonkeyPatch, host: str, answered: bool
) -> None:
    monkeypatch.setattr(limits, "ALLOW_LOCAL_MODELS", True)
    monkeypatch.setattr(limits, "ALLOWED_HOSTS", frozenset({"lab.box"}))
    app = partial(
        allowed_hosts,
        Starlette(routes=[Route("/", lambda _: PlainTextResponse("page")), *create_websocket_routes(Runtime(), None)]),
    )
    client = TestClient(app)
    got = client.get("/", headers={"Host": host})
    assert (got.text == "page") is answered
    assert answered or (got.status_code == 421 and "LAB_ALLOWED_HOSTS" in got.text)
    if answered:
        with client.websocket_connect("/_stcore/stream", headers={"Host": host}):
            pass
    else:
        with (
            pytest.raises(WebSocketDisconnect) as closed,
            client.websocket_connect("/_stcore/stream", headers={"Host": host}),
        ):
            pass
        assert closed.value.code == 1008
    monkeypatch.setattr(limits, "ALLOW_LOCAL_MODELS", False)
    assert client.get("/", headers={"Host": host}).text == "page"
