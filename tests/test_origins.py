"""The pages that may open a socket; no request leaves the machine for this check."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect
from streamlit import config, net_util
from streamlit.web.server.starlette.starlette_websocket import create_websocket_routes

from pages.ui.server import guard
from pages.ui.server.guard import AllowedOrigins


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
        with TestClient(AllowedOrigins(app)).websocket_connect("/_stcore/stream", headers=headers):
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
