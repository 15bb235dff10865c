"""What a browser may do with the Lab, as headers of every answer that this server gives, however it was deployed.

A page gets scripts, styles and connections from its own server only, and stands in no frame but where LAB_FRAME_ANCESTORS says so.
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

# Streamlit's page has scripts of its own in it, which are allowed by their digests.
_INLINE = " ".join(
    f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    for script in re.findall(r"<script>(.*?)</script>", INDEX.read_text(encoding="utf-8"), re.DOTALL)
)
POLICY = {
    "default-src": "'self'",
    "script-src": f"'self' blob: {_INLINE}",  # blob: has the loaders of components
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
    "Content-Security-Policy": "; ".join(f"{what} {whence}" for what, whence in POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # a link is a text; it is nobody else's business
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}


# So that a visitor can stay with this one of several servers.
REPLICA = {"Lab-Replica": limits.REPLICA} if limits.REPLICA else {}
INSIDE = ("/_stcore/metrics", "/_stcore/script-health-check")
"""What only those ask who run the Lab: numbers of the process, and a run of the page."""


def _beside(path: str, location: str) -> str:
    """The address to which Streamlit sends a page whose path ends with slashes, as seen from there: a proxy may have taken a prefix off the path."""
    page, mark, query = location.partition("?")
    return "../" * (len(path) - len(path.rstrip("/"))) + page.rpartition("/")[2] + mark + query


class WithHeaders:
    """Sends every answer with our headers, and shows outsiders nothing of the inside."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands on what outsiders may ask."""

        async def send_more(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.accept"):
                sent = MutableHeaders(scope=message)
                sent.update(HEADERS | REPLICA)
                if sent.get("Location", "").startswith("/") and scope["path"].endswith("/"):
                    sent["Location"] = _beside(scope["path"], sent["Location"])
            await send(message)

        # Every proxy says for whom it asks; probes and operators come without one.
        if scope["type"] == "http" and scope["path"].endswith(INSIDE) and "X-Forwarded-For" in Headers(scope=scope):
            await PlainTextResponse("Not found", 404)(scope, receive, send_more)
        else:
            await self.app(scope, receive, send_more)
