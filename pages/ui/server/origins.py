"""Sockets from pages of other sites are refused, and nobody on the internet is asked for this machine's address.

Streamlit lets a page of another site open a socket where that site has this machine's external address, which it asks a service
for. So its decision is made here before, by its own options, without that address. A page of another site that may connect is
handed on without its Origin header, and Streamlit has nothing left to compare.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send
from streamlit.logger import get_logger

_LOCAL = ("localhost", "127.0.0.1", "0.0.0.0")
_REFUSED = 1008  # violates a policy


def is_allowed(site: str, host: str) -> bool | None:
    """Whether pages of a site, such as https://a.example, may open sockets to the server that they call `host`; None for its own pages."""
    try:
        asking = urlsplit(site)
        name = asking.hostname
    except ValueError:
        return False
    if host and asking.netloc == host:
        return None
    listed = (one if "://" in one else f"//{one}" for one in map(str.strip, st.get_option("server.corsAllowedOrigins")))
    return name in {*_LOCAL, st.get_option("browser.serverAddress"), *(urlsplit(one).hostname for one in listed)}


class AllowedOrigins:
    """Refuses sockets from pages of sites that are not allowed."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands on all other requests, and those sockets that may come."""
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
            scope = {**scope, "headers": [one for one in scope["headers"] if one[0].lower() != b"origin"]}
        await self.app(scope, receive, send)
