"""Serves the Lab's scripts under URLs that change with their content.

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

import streamlit as st
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from attention.pictures.message import SCRIPTS_DIR

_UI = Path(__file__).parents[1]
_FOLDERS = (SCRIPTS_DIR, *(_UI / name for name in ("figure", "lesson", "address", "share/link", "patches", "exports")))
# Plotly's bundle for cartesian charts: a third of the size of the full bundle in the Python package.
_PLOTLY = SCRIPTS_DIR / "vendor" / "plotly-cartesian.min.js"
_PATH = "app/static"  # Streamlit's path for files of an app, which every host of Streamlit apps forwards
CACHE_FOREVER = {"Cache-Control": "public, max-age=31536000, immutable"}
"""Headers of a script whose URL contains a hash of its content, so that browsers may cache it for ever."""


@cache
def scripts() -> dict[str, bytes]:
    """All scripts by name."""
    files = {path.stem: path.read_bytes() for folder in _FOLDERS for path in folder.glob("*.js")}
    return {**files, "plotly": _PLOTLY.read_bytes()}


@cache
def version() -> str:
    """The name of the scripts' folder, a hash of their content."""
    digest = hashlib.blake2b(digest_size=6)
    for name, script in sorted(scripts().items()):
        digest.update(f"{name} {len(script)} ".encode() + script)
    return digest.hexdigest()


def script(name: str) -> str:
    """The URL of a script, relative to the address of a page.

    All pages are at the same level (``/``, ``/heads``), so the URL is the same for all of them.
    """
    if name not in scripts():
        raise ValueError(f"expected one of the scripts {', '.join(sorted(scripts()))}; got {name!r}")
    return f"./{_PATH}/{version()}/{name}.js"


def routes() -> list[Route]:
    """The route of the scripts, for `st.App`. Call it when Streamlit's options have been read."""
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return [Route(f"{'/' + base if base else ''}/{_PATH}/{{path:path}}", _answer)]


def _answer(request: Request) -> Response:
    """Answers with a script, compressed if the browser accepts that."""
    folder, _, file = request.path_params["path"].partition("/")
    name = file.removesuffix(".js")
    if folder != version() or file != f"{name}.js" or name not in scripts():
        return PlainTextResponse("Not found", 404)
    zipped = "gzip" in request.headers.get("Accept-Encoding", "")
    headers = {**CACHE_FOREVER, "Vary": "Accept-Encoding", **({"Content-Encoding": "gzip"} if zipped else {})}
    return Response(_gzipped(name) if zipped else scripts()[name], headers=headers, media_type="text/javascript")


@cache
def _gzipped(name: str) -> bytes:
    return gzip.compress(scripts()[name], 6)


@cache
def component(name: str, key: str, html: str, css: str) -> Any:
    """The function that mounts a component with the script called `name`; registers it once per process."""
    loader = f"""
        const script = import(new URL({json.dumps(script(name))}, document.baseURI).href);
        export default (args) => {{ script.then((module) => module.default(args)); }};
    """
    return st.components.v2.component(key, html=html, css=css, js=loader, isolate_styles=False)
