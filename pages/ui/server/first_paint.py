"""A page is painted with our styles from the start, and with room for its sidebar; and our scripts run before Streamlit's.

Streamlit sends styles and sidebar as messages, when it has painted already, and everything jumps aside and up. It has no setting for what
its index page holds, so a middleware sends ours wherever Streamlit answers with its own, which it knows by its ETag: on the path of
every page, below any prefix. `tests/test_first_paint.py` fails where a newer Streamlit answers in another way.
"""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from pathlib import Path
from urllib.parse import parse_qs

import streamlit
from starlette.datastructures import Headers
from starlette.responses import FileResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.ui.server import served

INDEX = Path(streamlit.__file__).parent / "static" / "index.html"
"""Streamlit's page."""
STYLES = (Path(__file__).parent / "styles.css").read_text(encoding="utf-8")
# Until Streamlit has drawn its sidebar, which is 300 pixels wide there and comes between these two; and the page is wide from the start.
_ROOM = """
@media (min-width: 769px) {
  [data-testid=stSkipToContent] + :not([data-testid=stSidebar]) { margin-left: 300px; }
}
"""
_ETAG = FileResponse(INDEX, stat_result=INDEX.stat()).headers["ETag"]
HEAD = ("frame", "paused", "address")
"""Our scripts that run before Streamlit's own, as modules in this order (modules run in the order of the page)."""
NO_SIDEBAR = "[data-testid=stSidebar], [data-testid=stExpandSidebarButton] { display: none; } .st-key-page_head.st-key-page_head { padding-left: 0; }"
"""What a locked or embedded page has instead."""
_WIDE = ".stMain .block-container { max-width: initial; }"


def index_page(query: str) -> str:
    """Streamlit's index page with our styles in it, for an address with this `query`."""
    return _page(_more_styles(query))


def _more_styles(query: str) -> str:
    asked = parse_qs(query)
    bare = asked.get("lock") == ["1"] or "present" in asked or asked.get("embed") == ["true"]
    return NO_SIDEBAR if bare else "" if "paused" in asked else _ROOM  # one that asks first has no sidebar yet


@cache
def _page(more: str) -> str:
    # At the end of the body: Streamlit's own come into the head while it draws, and of two rules the later holds.
    styles = f"<style>{STYLES}{_WIDE}{more}</style>"
    page = INDEX.read_text(encoding="utf-8").replace("</body>", f"{styles}</body>", 1)
    scripts = "".join(f'<script type="module" src="{served.script(name)}"></script>' for name in HEAD)
    return page.replace("<head>", f"<head>{scripts}", 1)


@cache
def _encoded(more: str, zipped: bool) -> tuple[bytes, str]:
    """The page as it is sent, and its ETag."""
    page = _page(more).encode()
    body = gzip.compress(page, 6) if zipped else page
    return body, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def _answer(scope: Scope, caching: str) -> Response:
    """Our index page, or that it has not changed."""
    asked = Headers(scope=scope)
    zipped = "gzip" in asked.get("Accept-Encoding", "")
    body, etag = _encoded(_more_styles(scope["query_string"].decode("latin-1")), zipped)
    headers = {"Cache-Control": caching, "ETag": etag, "Vary": "Accept-Encoding"}
    if etag in asked.get("If-None-Match", ""):
        return Response(status_code=304, headers=headers)
    if zipped:
        headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(body))
    return Response(b"" if scope["method"] == "HEAD" else body, headers=headers, media_type="text/html")


class IndexPage:
    """Sends our index page where Streamlit answers with its own."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands everything on; of an answer that is Streamlit's index page nothing is sent but its caching."""
        ours = False

        async def send_ours(message: Message) -> None:
            nonlocal ours
            if message["type"] == "http.response.start":
                theirs = Headers(raw=message["headers"])
                if ours := theirs.get("ETag", "").removeprefix("W/") == _ETAG:
                    await _answer(scope, theirs.get("Cache-Control", "no-cache"))(scope, receive, send)
            if not ours:
                await send(message)

        page = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        await self.app(scope, receive, send_ours if page else send)
