"""Scripts of ours that our own server serves, under names that change with their content.

Streamlit keeps inline modules under a ``blob:`` address and sends them again with every message, so
a component gets a two-line loader, and the real script is a file in ``static/`` beside ``app.py``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

_STATIC = Path(__file__).parents[3] / "static"
_UI = Path(__file__).parents[1]
_SCRIPTS = {
    **{path.stem: path for folder in ("figure", "share/link") for path in (_UI / folder).glob("*.js")},
    # Plotly's own bundle for charts with two axes: a third of the whole, which the Python package carries.
    "plotly": _UI / "figure" / "vendor" / "plotly-cartesian.min.js",
}


@cache
def script(name: str) -> str:
    """The path under which our server serves the script; a copy is made once, under a name of its content."""
    content = _SCRIPTS[name].read_bytes()
    if name != "plotly":  # our scripts import each other by their names in the repository
        content = re.sub(
            rb'(?<=from "\./)(\w+)\.js(?=")', lambda found: Path(script(found[1].decode())).name.encode(), content
        )
    file = f"{name}-{hashlib.blake2b(content, digest_size=6).hexdigest()}.js"
    if not (_STATIC / file).exists():
        _STATIC.mkdir(exist_ok=True)
        part = _STATIC / f".{file}.{os.getpid()}"
        part.write_bytes(content)
        part.replace(_STATIC / file)  # whole or not at all, also with several servers starting at once
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return f"{'/' + base if base else ''}/app/static/{file}"


def publish() -> None:
    """Puts all scripts where the server can serve them, so that nothing is written at run time."""
    for name in _SCRIPTS:
        script(name)


def component(name: str, key: str, html: str, css: str) -> Any:
    """The mounting command of a component whose script is called `name`."""
    loader = f"""
        const script = import(new URL({json.dumps(script(name))}, window.location.origin).href);
        export default (args) => {{ script.then((module) => module.default(args)); }};
    """
    return st.components.v2.component(key, html=html, css=css, js=loader, isolate_styles=False)
