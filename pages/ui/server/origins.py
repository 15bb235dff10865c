"""Rejects sockets from pages of other sites, without asking an external service for this machine's address.

Streamlit accepts a socket from another site if that site has this machine's external address, which Streamlit requests from a service.
This middleware decides first, with Streamlit's own options but without that address. It removes the Origin header of allowed
sockets, so that Streamlit makes no comparison of its own.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit.logger import get_logger

_LOCAL = ("localhost", "127.0.0.1", "0.0.0.0")
_REFUSED = 1008  # WebSocket close code: policy violation


def is_allowed(site: str, host: str) -> bool | None:
    """Whether pages of a site, such as https://a.example, may open sockets to the server called `host`; None for its own pages."""
    try:
        origin = urlsplit(site)
        name = origin.hostname
    except ValueError:
        return False
    if host and origin.netloc == host:
        return None
    allowed = map(str.strip, st.get_option("server.corsAllowedOrigins"))
    urls = (text if "://" in text else f"//{text}" for text in allowed)
    return name in {*_LOCAL, st.get_option("browser.serverAddress"), *(urlsplit(url).hostname for url in urls)}


class AllowedOrigins:
    """Middleware that rejects sockets from pages of sites that are not allowed."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards allowed sockets and all other requests."""
        if scope["type"] != "websocket" or not st.get_option("server.enableCORS"):
            await self.app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        site, host = headers.get("Origin"), headers.get("Host", "")
        allowed = None if site is None else is_allowed(site, host)
        if allowed is False:
            get_logger(__name__).warning("A page of %r may not open a socket to %r.", site, host)
            await send({"type": "websocket.close", "code": _REFUSED})
            return
        if allowed:
            scope = {**scope, "headers": [header for header in scope["headers"] if header[0].lower() != b"origin"]}
        await self.app(scope, receive, send)
