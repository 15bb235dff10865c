"""An output of a notebook: a frame with its data, and the scripts (Plotly and the Lab's own, compressed) in one output of the notebook only."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import os
import re
import sys
from dataclasses import dataclass
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from attention.export.bundling import bundle, styles
from attention.export.packing import compress
from attention.pictures.message import CONTAINERS_HTML, SCRIPTS_DIR

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:"
_FIRST_STYLE = (  # what is needed before the scripts bring the others
    "html{background:var(--st-background-color)}body{font:12px/1.4 sans-serif}:root[data-theme=dark] #waiting{color-scheme:dark;color:CanvasText}#waiting p{white-space:pre-wrap;margin:4px}figure{display:flex;flex-wrap:wrap;gap:4px 8px;margin:4px}"
    "figcaption{width:100%}figure div{text-align:right}figure img{image-rendering:pixelated}"
)
_numbers = itertools.count()
PAGE_DIR = Path(__file__).parent / "page"

# 85 characters that neither HTML, an attribute in quotes nor JSON has to escape.
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{|"
_STANDARD = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TRANSLATION = str.maketrans(_STANDARD, _ALPHABET)


@dataclass
class _Carrier:
    """Which cell of the notebook carries the scripts, for this session of the kernel: its key, empty where the cell is unknown, and a label for readers."""

    key: str = ""
    label: str = ""
    chosen: bool = False

    def carries(self) -> bool:
        """Whether the output of the running cell carries the scripts: the first one of the session, and each repetition of its cell."""
        key, label, removed = _running_cell()
        if not self.chosen or self.key in removed or (key and key == self.key):
            self.key, self.label, self.chosen = key, label, True
            return True
        return False


_CARRIER = _Carrier()


def bring_scripts() -> None:
    """Makes the next output carry the scripts: after the output that carried them was cleared, and the notebook reloaded."""
    _CARRIER.key, _CARRIER.label, _CARRIER.chosen = "", "", False


def frame(kind: str, data: bytes, text: str, height: int, standalone: bool | None = None, picture: str = "") -> str:
    """The HTML of an output: a frame without access to the network, and its plain text where frames and styles are removed.

    Args:
        kind: "trace" or "figures".
        data: what `notebook_output.js` opens.
        text: the plain text, for viewers that remove frames, such as GitHub's.
        height: of the frame in pixels, until it knows its own.
        standalone: whether the output carries the scripts; by default one output of a notebook does, see `_Carrier`.
        picture: HTML that is seen until the scripts are there.
    """
    carries = _CARRIER.carries() if standalone is None else standalone
    page = document(kind, data, carries, picture)
    name = f"attention-{os.getpid()}-{next(_numbers)}"
    return (
        f'<div class="attention-output" id="{name}"><style>#{name} > pre {{ display: none }}</style>'
        f'<iframe srcdoc="{escape(page)}" title="Attention Lab" width="100%" height="{height}"'
        f' style="border: 0; width: 100%; height: {height}px; display: block"></iframe>'
        f"<pre>{escape(text)}</pre></div>"
    )


def document(kind: str, data: bytes, carries: bool | None = None, picture: str = "") -> str:
    """The page in the frame: its data, perhaps the scripts, and the script that starts it.

    By default it has the scripts as long as no output has: a live view alone is then drawn from what a notebook saves of it, without a
    kernel. It does not count as the output that carries them for the others, since a notebook may save none of its widgets.
    """
    carries = not _CARRIER.chosen if carries is None else carries
    settings: dict[str, Any] = {
        "hash": scripts_hash(), "kind": kind, "alphabet": _ALPHABET, "missing": _missing_text(),
    }  # fmt: skip
    carried = f'<script type="text/plain" id="scripts">{_scripts_text()}</script>' if carries else ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}"><title>Attention Lab</title>'
        f"<style>{_FIRST_STYLE}</style></head><body>"
        f'<div id="lab"><div id="waiting"><p></p>{picture}</div>{CONTAINERS_HTML}<div class="about"></div></div>'
        f'<script type="application/json" id="settings">{json.dumps(settings).replace("<", chr(92) + "u003c")}</script>'
        f'<script type="text/plain" id="data">{_as_text(compress(data))}</script>{carried}'
        f"<script>{_loader()}</script></body></html>"
    )


def _missing_text() -> str:
    where = f" ({_CARRIER.label})" if _CARRIER.label else ""
    return (
        f"The first Attention Lab output of this notebook{where} has the scripts that draw this one, and it is not on this page: run its "
        "cell again. If it was deleted, run attention.notebook.bring_scripts() and then this cell."
    )


def _running_cell() -> tuple[str, str, list[str]]:
    """The identity of the running cell, its label, and the ids of deleted cells; empty outside of a notebook.

    Front ends send the id of the cell and the deleted ones (JupyterLab, Notebook 7, VS Code); elsewhere its text identifies it.
    """
    ipython = sys.modules.get("IPython")  # every kernel has imported it; nothing else needs it
    shell = ipython.get_ipython() if ipython else None
    if shell is None:
        return "", "", []
    try:
        metadata = shell.get_parent().get("metadata", {})
    except (AttributeError, LookupError):  # a shell without a kernel
        metadata = {}
    history = shell.user_ns.get("In", [""])
    label = f"In [{shell.execution_count}]"
    return str(metadata.get("cellId") or history[-1]), label, list(metadata.get("deletedCells") or [])


@cache
def packed_scripts() -> bytes:
    """Plotly's script, the page's and its styles, compressed: about 550 kB."""
    plotly = (SCRIPTS_DIR / "vendor" / "plotly-cartesian.min.js").read_text(encoding="utf-8")
    style = f"document.head.append(Object.assign(document.createElement('style'), {{ textContent: {json.dumps(styles(PAGE_DIR / 'output.css'))} }}));"
    return compress(f"{plotly}\n;{style}\n{bundle('notebook_output', PAGE_DIR)}".encode())


@cache
def scripts_hash() -> str:
    """The SHA-256 of `packed_scripts`, by which an output recognizes them."""
    return hashlib.sha256(packed_scripts()).hexdigest()


@cache
def _scripts_text() -> str:
    """`packed_scripts` as text: about 680 kB."""
    return _as_text(packed_scripts())


@cache
def _loader() -> str:
    """The script that every output carries, without its comments."""
    text = (PAGE_DIR / "loader.js").read_text(encoding="utf-8")
    return re.sub(r"^ *//.*\n|^ +", "", text, flags=re.MULTILINE)


def _as_text(content: bytes) -> str:
    """Bytes as text: their number, a colon, and five characters for every four of them."""
    return f"{len(content)}:{base64.b85encode(content, pad=True).decode().translate(_TRANSLATION)}"
