"""The figure component: Plotly figures in, clicked cells out.

Streamlit keeps inline modules under a ``blob:`` address and sends them again with every message, so
what it gets is a two-line loader. The real script, and Plotly's, are files that our own server
serves from ``static/`` beside ``app.py``, under names that change with their content.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
from base64 import b64decode
from functools import cache
from pathlib import Path
from typing import Any

import plotly
import plotly.graph_objects as go
import streamlit as st

_STATIC = Path(__file__).parents[3] / "static"
_CONFIG = {
    "displaylogo": False,
    "responsive": False,
    "showSendToCloud": False,
    "scrollZoom": False,
    "typesetMath": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
}


@cache
def _published(source: Path, stem: str) -> str:
    """The path under which our server serves a copy of `source`, named by its content; made once."""
    content = source.read_bytes()
    name = f"{stem}-{hashlib.blake2b(content, digest_size=6).hexdigest()}.js"
    if not (_STATIC / name).exists():
        _STATIC.mkdir(exist_ok=True)
        part = _STATIC / f".{name}.{os.getpid()}"
        part.write_bytes(content)
        part.replace(_STATIC / name)  # whole or not at all, also with several servers starting at once
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return f"{'/' + base if base else ''}/app/static/{name}"


def publish() -> dict[str, str]:
    """Puts the two scripts where the server can serve them; their paths by name."""
    return {
        "figure": _published(Path(__file__).parent / "figure.js", "figure"),
        "plotly": _published(Path(plotly.__file__).parent / "package_data" / "plotly.min.js", "plotly"),
    }


def pack(figures: list[go.Figure]) -> bytes:
    """The figures as one message: length of the header, header (JSON), arrays as raw bytes.

    Plotly's own JSON carries arrays as base64 with their dtype and shape; here they leave the JSON.
    """
    arrays: list[bytes] = []
    size = 0

    def lift(value: Any) -> Any:
        nonlocal size
        if isinstance(value, dict) and "bdata" in value:
            raw = b64decode(value["bdata"])
            shape = [int(n) for n in str(value.get("shape", len(raw) // int(value["dtype"][1]))).split(",")]
            place = {"array": {"dtype": value["dtype"], "at": size, "shape": shape}}
            padded = raw + b"\0" * (-len(raw) % 8)
            arrays.append(padded)
            size += len(padded)
            return place
        if isinstance(value, dict):
            return {name: lift(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [lift(inner) for inner in value]
        return value

    drawn = [{**lift(figure.to_plotly_json()), "config": _CONFIG} for figure in figures]
    header = json.dumps({"plotly": publish()["plotly"], "figures": drawn}, allow_nan=False).encode()
    header += b" " * (-(4 + len(header)) % 8)  # typed arrays must start on a multiple of their size
    return struct.pack("<I", len(header)) + header + b"".join(arrays)


@cache
def component() -> Any:
    """The mounting command, registered once per process."""
    loader = f"""
        const figure = import(new URL({json.dumps(publish()["figure"])}, window.location.origin).href);
        export default (args) => {{ figure.then((module) => module.default(args)); }};
    """
    style = ".figures { display: grid; gap: 0.5rem 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 265px), 1fr)); }.figures > div { min-width: 0; }"
    return st.components.v2.component(
        "attention_figure", html="<div class='figures'></div>", css=style, js=loader, isolate_styles=False
    )
