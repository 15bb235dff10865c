"""Former pages, of which people have links and state files: each has become a part of another page."""

from __future__ import annotations

from urllib.parse import parse_qsl, urlencode

from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from attention.sources.state import COMPARE, OPENING

MOVED: dict[str, tuple[str, dict[str, str]]] = {
    "circuits": ("heads", {"heads_inside": "true"}),
    "compare": ("", {COMPARE: OPENING}),
    "lessons": ("learn", {}),
    "masks": ("", {"explore_mask": "true"}),
    "softmax": ("learn", {"chapter": "softmax"}),
}
"""By the last part of a former address: that of the page which has it now, and the knobs that open the part."""


async def former_pages(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Middleware that redirects the address of a former page, with its whole query, below any prefix: the new address is relative."""
    path = scope["path"].rstrip("/") if scope["type"] == "http" and scope["method"] in ("GET", "HEAD") else ""
    page, opening = MOVED.get(path.rpartition("/")[2], (None, {}))
    if page is None:
        await app(scope, receive, send)
        return
    query = scope["query_string"].decode("latin-1")
    missing = urlencode({key: text for key, text in opening.items() if key not in dict(parse_qsl(query))})
    up = "../" if scope["path"] != path else "./"
    answer = RedirectResponse("", 307)
    # Not as an argument, which would be quoted: the query stays as it came.
    answer.headers["Location"] = f"{up}{page}?{'&'.join(filter(None, (query, missing)))}".removesuffix("?")
    await answer(scope, receive, send)
