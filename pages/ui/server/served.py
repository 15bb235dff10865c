"""Scripts of ours that our own server serves, under addresses that change with their content.

Streamlit keeps inline modules under a ``blob:`` address and sends them again with every message, so a component gets a
two-line loader, and the server answers with the real scripts from memory, all in one folder, where they find each other.
No address begins with a slash: a proxy may serve the Lab behind any prefix, and a page finds its scripts from where it lies
itself, as Streamlit's own page does.
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

from attention.pictures.message import SCRIPTS

_UI = Path(__file__).parents[1]
_FOLDERS = (SCRIPTS, *(_UI / name for name in ("figure", "lesson", "address", "share/link", "patches", "exports")))
# Plotly's own bundle for charts with two axes: a third of the whole, which the Python package carries.
_PLOTLY = SCRIPTS / "vendor" / "plotly-cartesian.min.js"
_PATH = "app/static"  # where Streamlit serves files of an app, which every host of Streamlit apps passes on
LASTING = {"Cache-Control": "public, max-age=31536000, immutable"}
"""Of a script that is called after its content, and can be kept for ever."""


@cache
def scripts() -> dict[str, bytes]:
    """All scripts by their names."""
    ours = {path.stem: path.read_bytes() for folder in _FOLDERS for path in folder.glob("*.js")}
    return {**ours, "plotly": _PLOTLY.read_bytes()}


@cache
def version() -> str:
    """The name of the folder that the scripts lie in, made of their content."""
    content = hashlib.blake2b(digest_size=6)
    for name, script in sorted(scripts().items()):
        content.update(f"{name} {len(script)} ".encode() + script)
    return content.hexdigest()


def script(name: str) -> str:
    """The address under which our server serves a script, relative to the address of a page.

    All pages lie side by side (``/``, ``/heads``), so it is the same for all of them.
    """
    if name not in scripts():
        raise ValueError(f"expected one of the scripts {', '.join(sorted(scripts()))}; got {name!r}")
    return f"./{_PATH}/{version()}/{name}.js"


def routes() -> list[Route]:
    """What the server answers with scripts; for `st.App`, when Streamlit's options are read."""
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return [Route(f"{'/' + base if base else ''}/{_PATH}/{{path:path}}", _answer)]


def _answer(request: Request) -> Response:
    """A script; compressed once for everybody who takes it so."""
    folder, _, file = request.path_params["path"].partition("/")
    name = file.removesuffix(".js")
    if folder != version() or file != f"{name}.js" or name not in scripts():
        return PlainTextResponse("Not found", 404)
    zipped = "gzip" in request.headers.get("Accept-Encoding", "")
    headers = {**LASTING, "Vary": "Accept-Encoding", **({"Content-Encoding": "gzip"} if zipped else {})}
    return Response(_gzipped(name) if zipped else scripts()[name], headers=headers, media_type="text/javascript")


@cache
def _gzipped(name: str) -> bytes:
    return gzip.compress(scripts()[name], 6)


@cache
def component(name: str, key: str, html: str, css: str) -> Any:
    """The mounting command of a component whose script is called `name`, registered once per process."""
    loader = f"""
        const script = import(new URL({json.dumps(script(name))}, document.baseURI).href);
        export default (args) => {{ script.then((module) => module.default(args)); }};
    """
    return st.components.v2.component(key, html=html, css=css, js=loader, isolate_styles=False)
