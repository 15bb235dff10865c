"""A page is painted with our styles from the start, and with room for its sidebar; and watches over its runs (link/paused.js).

Streamlit sends both as messages, when it has painted already, and everything jumps aside and up. It has no setting for what
its index page holds, so the response that carries it is wrapped here; where a newer Streamlit has another, nothing is changed.
"""

from __future__ import annotations

from functools import cache, wraps
from pathlib import Path
from urllib.parse import parse_qs

import streamlit
from starlette.responses import FileResponse, HTMLResponse
from starlette.types import Receive, Scope, Send

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
HEAD = ("frame", "paused", "address")
"""Our scripts that run before Streamlit's own, as modules in this order (modules run in the order of the page)."""
NO_SIDEBAR = "[data-testid=stSidebar], [data-testid=stExpandSidebarButton] { display: none; } .st-key-page_head.st-key-page_head { padding-left: 0; }"
"""What a locked or embedded page has instead."""
_WIDE = ".stMain .block-container { max-width: initial; }"


def index_page(query: str) -> str:
    """Streamlit's index page with our styles in it, for an address with this `query`."""
    asked = parse_qs(query)
    bare = asked.get("lock") == ["1"] or "present" in asked or asked.get("embed") == ["true"]
    return _page(NO_SIDEBAR if bare else "" if "paused" in asked else _ROOM)  # one that asks first has no sidebar yet


@cache
def _page(more: str) -> str:
    # At the end of the body: Streamlit's own come into the head while it draws, and of two rules the later holds.
    styles = f"<style>{STYLES}{_WIDE}{more}</style>"
    page = INDEX.read_text(encoding="utf-8").replace("</body>", f"{styles}</body>", 1)
    scripts = "".join(f'<script type="module" src="{served.script(name)}"></script>' for name in HEAD)
    return page.replace("<head>", f"<head>{scripts}", 1)


def take_styles_along() -> None:
    """From now on every index page that this process serves has our styles in it."""
    send_file = FileResponse.__call__

    @wraps(send_file)
    async def send_page(self: FileResponse, scope: Scope, receive: Receive, send: Send) -> None:
        if Path(self.path) != INDEX:
            await send_file(self, scope, receive, send)
            return
        kept = {name: value for name, value in self.headers.items() if name in ("cache-control",)}
        page = HTMLResponse(index_page(scope.get("query_string", b"").decode("latin-1")), headers=kept)
        await page(scope, receive, send)

    FileResponse.__call__ = send_page  # type: ignore[method-assign]  # wrapped on purpose, see above
