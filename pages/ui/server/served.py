"""Scripts of ours that our own server serves, under addresses that change with their content.

Streamlit keeps inline modules under a ``blob:`` address and sends them again with every message, so a component gets a
two-line loader, and the real scripts are files in ``static/`` beside ``app.py``: all of ours in one folder, where they find
each other, and Plotly's in one of its own, which stays when ours change.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import streamlit as st

from attention.pictures.message import SCRIPTS

_STATIC = Path(__file__).parents[3] / "static"
_UI = Path(__file__).parents[1]
# Plotly's own bundle for charts with two axes: a third of the whole, which the Python package carries.
_PLOTLY = SCRIPTS / "vendor" / "plotly-cartesian.min.js"
_KEPT = 4  # folders of other contents, for servers that run since before an edit
LASTING = re.compile(r"/app/static/[0-9a-f]{12}/")
"""What is called after its content, and can be kept for ever."""


def script(name: str) -> str:
    """The address under which our server serves a script."""
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return f"{'/' + base if base else ''}/app/static/{publish()[name]}/{name}.js"


@cache
def publish() -> dict[str, str]:
    """Puts all scripts where the server can serve them; by its name, the folder of each."""
    ours = {
        path.stem: path.read_bytes()
        for folder in (SCRIPTS, _UI / "figure", _UI / "lesson", _UI / "share/link")
        for path in folder.glob("*.js")
    }
    folders = {**dict.fromkeys(ours, _folder(ours)), "plotly": _folder({"plotly": _PLOTLY.read_bytes()})}
    with suppress(FileNotFoundError):  # another server that starts now does the same
        others = [one for one in _STATIC.iterdir() if one.name not in folders.values() and one.name[0] != "."]
        for old in sorted(others, key=os.path.getmtime)[:-_KEPT]:
            shutil.rmtree(old, ignore_errors=True)
    return folders


def _folder(scripts: dict[str, bytes]) -> str:
    """The name of the folder with these scripts, made of their content; it is written where there is none yet."""
    content = hashlib.blake2b(digest_size=6)
    for name, script in sorted(scripts.items()):
        content.update(f"{name} {len(script)} ".encode() + script)
    folder = _STATIC / content.hexdigest()
    if not folder.exists():
        part = _STATIC / f".{folder.name}.{os.getpid()}"
        part.mkdir(parents=True, exist_ok=True)
        for name, script in scripts.items():
            (part / f"{name}.js").write_bytes(script)
        try:
            part.rename(folder)  # whole or not at all, also with several servers starting at once
        except OSError:  # another was first
            shutil.rmtree(part)
    return folder.name


@cache
def component(name: str, key: str, html: str, css: str) -> Any:
    """The mounting command of a component whose script is called `name`, registered once per process."""
    loader = f"""
        const script = import(new URL({json.dumps(script(name))}, window.location.origin).href);
        export default (args) => {{ script.then((module) => module.default(args)); }};
    """
    return st.components.v2.component(key, html=html, css=css, js=loader, isolate_styles=False)
