"""The figure component: Plotly figures in, clicked cells out."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from functools import cache
from typing import Any

import plotly.graph_objects as go

from pages.ui import served

_CONFIG = {
    "displaylogo": False,
    "responsive": False,
    "showSendToCloud": False,
    "scrollZoom": False,
    "typesetMath": False,
    "modeBarButtonsToRemove": ["select2d", "lasso2d"],
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
    header = json.dumps({"plotly": served.script("plotly"), "figures": drawn}, allow_nan=False).encode()
    header += b" " * (-(4 + len(header)) % 8)  # typed arrays must start on a multiple of their size
    return struct.pack("<I", len(header)) + header + b"".join(arrays)


@cache
def component() -> Any:
    """The mounting command, registered once per process."""
    style = ".figures { display: grid; gap: 0.5rem 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 265px), 1fr)); }.figures > div { min-width: 0; }"
    return served.component("figure", "attention_figure", "<div class='figures'></div>", style)
