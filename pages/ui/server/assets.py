"""Serves the Lab's scripts under URLs that change with their content, and Streamlit's index page with our styles, space for the sidebar, and our first scripts.

Streamlit stores inline modules under a ``blob:`` URL and sends them again with every message. A component therefore gets a
two-line loader, and the server answers with the real scripts from memory. All scripts are in one folder, so that they can import each other.
No URL begins with a slash: a proxy may serve the Lab behind any prefix, and pages load scripts relative to their own
address, as Streamlit's own page does.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import streamlit
import streamlit as st
from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from attention.pictures import look
from attention.pictures.message import SCRIPTS_DIR

_UI = Path(__file__).parents[1]
# Plotly's bundle for cartesian charts: a third of the size of the full bundle in the Python package.
_PLOTLY = SCRIPTS_DIR / "vendor" / "plotly-cartesian.min.js"
OPENING = _UI / "page" / "opening.bin"
"""The packed first screen of the bare address, which pages/ui/page/opening.py makes: sent as it is, without torch."""
_PATH = "app/static"  # Streamlit's path for files of an app, which every host of Streamlit apps forwards
_CACHE_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
"""Headers of a script whose URL contains a hash of its content, so that browsers may cache it for ever."""

INDEX = Path(streamlit.__file__).parent / "static" / "index.html"
"""Streamlit's index page."""
# Those of sliders are the page's, since lessons have sliders and no figure.
_STYLES = (Path(__file__).parent / "styles.css", SCRIPTS_DIR / "sliders.css")
STYLES = "".join(path.read_text(encoding="utf-8") for path in _STYLES)
# Reserves the 300 pixels of the sidebar until Streamlit draws it between these two elements.
_SIDEBAR_SPACE = """
@media (min-width: 769px) {
  [data-testid=stSkipToContent] + :not([data-testid=stSidebar]) { margin-left: 300px; }
}
"""
_ETAG = FileResponse(INDEX, stat_result=INDEX.stat()).headers["ETag"]
_HEAD = ("frame", "address")
"""Our scripts that run before Streamlit's own, as modules in this order (modules run in the order of the page)."""
NO_SIDEBAR = "[data-testid=stSidebar], [data-testid=stExpandSidebarButton] { display: none; } .st-key-page_head.st-key-page_head { padding-left: 0; }"
"""The styles of locked and embedded pages, which have no sidebar."""
_WIDE = ".stMain .block-container { max-width: initial; }"


@cache
def _scripts() -> dict[str, bytes]:
    """All scripts by name."""
    files = {path.stem: path.read_bytes() for path in (*SCRIPTS_DIR.glob("*.js"), *_UI.glob("*/*.js"))}
    return {**files, "plotly": _PLOTLY.read_bytes()}


@cache
def _version() -> str:
    """The name of the scripts' folder, a hash of their content."""
    digest = hashlib.blake2b(digest_size=6)
    opening = {OPENING.name: OPENING.read_bytes()} if OPENING.exists() else {}
    for name, script in sorted((_scripts() | opening).items()):
        digest.update(f"{name} {len(script)} ".encode() + script)
    return digest.hexdigest()


def _script(name: str) -> str:
    """The URL of a script, relative to the address of a page.

    All pages are at the same level (``/``, ``/heads``), so the URL is the same for all of them.
    """
    if name not in _scripts():
        raise ValueError(f"expected one of the scripts {', '.join(sorted(_scripts()))}; got {name!r}")
    return f"./{_PATH}/{_version()}/{name}.js"


def routes() -> list[Route]:
    """The route of the scripts, for `st.App`. Call it when Streamlit's options have been read."""
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return [Route(f"{'/' + base if base else ''}/{_PATH}/{{path:path}}", _answer)]


def _answer(request: Request) -> Response:
    folder, _, file = request.path_params["path"].partition("/")
    name = file.removesuffix(".js")
    if folder == _version() and file == OPENING.name and OPENING.exists():
        return Response(OPENING.read_bytes(), headers=_CACHE_FOREVER, media_type="application/octet-stream")
    if folder != _version() or file != f"{name}.js" or name not in _scripts():
        return PlainTextResponse("Not found", 404)
    zipped = "gzip" in request.headers.get("Accept-Encoding", "")
    headers = {**_CACHE_FOREVER, "Vary": "Accept-Encoding", **({"Content-Encoding": "gzip"} if zipped else {})}
    return Response(_gzipped(name) if zipped else _scripts()[name], headers=headers, media_type="text/javascript")


@cache
def _gzipped(name: str) -> bytes:
    return gzip.compress(_scripts()[name], 6)


@cache
def component(name: str, key: str, html: str, css: str | None = None) -> Any:
    """The function that mounts a component with the script called `name`; registers it once per process.

    Without `css`, its styles are those of the CSS file with the name of the script, if there is one.
    """
    if css is None:
        css = "".join(path.read_text(encoding="utf-8") for path in _UI.glob(f"*/{name}.css"))
    loader = f"""
        const script = import(new URL({json.dumps(_script(name))}, document.baseURI).href);
        export default (args) => {{ script.then((module) => module.default(args)); }};
    """
    return st.components.v2.component(key, html=html, css=css, js=loader, isolate_styles=False)


def _index_page(address: str) -> str:
    """Streamlit's index page with our styles in it, for this path and query."""
    path, _, query = address.partition("?")
    return _page(*_more_styles(path, query))


def _more_styles(path: str, query: str) -> tuple[str, bool]:
    """The styles of a page, and whether it is the bare address, which draws its opening at once."""
    parameters = parse_qs(query)
    no_sidebar = parameters.get("lock") == ["1"] or "present" in parameters or parameters.get("embed") == ["true"]
    is_start = not path.rpartition("/")[2]  # its sidebar is folded, unless the visitor has opened it
    space = (
        _SIDEBAR_SPACE.replace("[data-testid=stSkip", "html[data-sidebar=open] [data-testid=stSkip")
        if is_start
        else _SIDEBAR_SPACE
    )
    return NO_SIDEBAR if no_sidebar else space, is_start and not query and OPENING.exists()


@cache
def _page(more: str, opens: bool) -> str:
    # At the end of the body, because Streamlit adds its styles to the head later and the last rule wins.
    opening = (SCRIPTS_DIR / "screen.css").read_text(encoding="utf-8") if opens else ""
    styles = f"<style>{look.variables()}{STYLES}{_WIDE}{more}{opening}</style>"
    page = INDEX.read_text(encoding="utf-8").replace("</body>", f"{styles}</body>", 1)
    scripts = "".join(
        f'<script type="module" src="{_script(name)}"></script>' for name in (*_HEAD, *["opening"] * opens)
    )
    return page.replace("<head>", f"<head>{scripts}", 1)


@cache
def _encoded(more: str, opens: bool, zipped: bool) -> tuple[bytes, str]:
    page = _page(more, opens).encode()
    body = gzip.compress(page, 6) if zipped else page
    return body, f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def _answer_page(scope: Scope, caching: str) -> Response:
    """Our index page, or status 304 if the browser has it."""
    request_headers = Headers(scope=scope)
    zipped = "gzip" in request_headers.get("Accept-Encoding", "")
    body, etag = _encoded(*_more_styles(scope["path"], scope["query_string"].decode("latin-1")), zipped)
    headers = {"Cache-Control": caching, "ETag": etag, "Vary": "Accept-Encoding"}
    if etag in request_headers.get("If-None-Match", ""):
        return Response(status_code=304, headers=headers)
    if zipped:
        headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(body))
    return Response(b"" if scope["method"] == "HEAD" else body, headers=headers, media_type="text/html")


async def our_index_page(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Middleware that replaces Streamlit's index page by ours.

    Streamlit sends styles and sidebar as messages after the first paint, so that the page would jump. It has no setting for the content of
    its index page. This middleware therefore replaces every answer that is Streamlit's index page, recognized by its ETag, on the path of
    every page and below any prefix. `tests/pages/server/test_first_paint.py` fails when a newer Streamlit answers differently.
    """
    is_index = False

    async def send_index(message: Message) -> None:
        nonlocal is_index
        if message["type"] == "http.response.start":
            headers = Headers(raw=message["headers"])
            if is_index := headers.get("ETag", "").removeprefix("W/") == _ETAG:
                await _answer_page(scope, headers.get("Cache-Control", "no-cache"))(scope, receive, send)
        if not is_index:
            await send(message)

    is_page_request = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
    await app(scope, receive, send_index if is_page_request else send)
