"""Security headers of every answer of this server, in every deployment.

A page may load scripts and styles from its own server only and connect only to it. Only sites in LAB_FRAME_ANCESTORS may show it in a frame.
"""

from __future__ import annotations

import base64
import hashlib
import re

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.ui.server import limits
from pages.ui.server.first_paint import INDEX

# The inline scripts of Streamlit's index page are allowed by their digests.
_INLINE = " ".join(
    f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    for script in re.findall(r"<script>(.*?)</script>", INDEX.read_text(encoding="utf-8"), re.DOTALL)
)
POLICY = {
    "default-src": "'self'",
    "script-src": f"'self' blob: {_INLINE}",  # blob: is for the loaders of components
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self' blob: data:",
    "worker-src": "'self' blob:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
    "frame-ancestors": f"'self' {limits.FRAME_ANCESTORS}".strip(),
}
HEADERS = {
    "Content-Security-Policy": "; ".join(f"{directive} {sources}" for directive, sources in POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # a link contains the user's text
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}


# Lets a proxy route a visitor to the same one of several servers.
REPLICA = {"Lab-Replica": limits.REPLICA} if limits.REPLICA else {}
INSIDE = ("/_stcore/metrics", "/_stcore/script-health-check")
"""Paths for operators only: metrics of the process, and a health check that runs the page."""


def _relative_location(path: str, location: str) -> str:
    """Streamlit's redirect for a path with trailing slashes, as a relative address: a proxy may have removed a prefix of the path."""
    page, mark, query = location.partition("?")
    return "../" * (len(path) - len(path.rstrip("/"))) + page.rpartition("/")[2] + mark + query


class WithHeaders:
    """Middleware that adds our headers to every answer and hides the operators' paths from visitors."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards every request except visitors' requests for the operators' paths."""

        async def send_with_headers(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.accept"):
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS | REPLICA)
                if headers.get("Location", "").startswith("/") and scope["path"].endswith("/"):
                    headers["Location"] = _relative_location(scope["path"], headers["Location"])
            await send(message)

        # Proxies set X-Forwarded-For; probes and operators connect without a proxy.
        if scope["type"] == "http" and scope["path"].endswith(INSIDE) and "X-Forwarded-For" in Headers(scope=scope):
            await PlainTextResponse("Not found", 404)(scope, receive, send_with_headers)
        else:
            await self.app(scope, receive, send_with_headers)
