"""A demo of the Lab as a folder of static files for any web server; a browser can also open it from a USB stick.

    python -m attention.demo site/ --lab https://lab.example.org

Each state is a link of the Lab (`states.py`), computed once and packed (`packing.py`, or by its feature). The page draws it with the
Lab's own scripts (attention/pictures/figure), which `bundling.py` merges into one classic script, since modules do not load from files.
"""

from __future__ import annotations

import hashlib
import json
import re
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path

from attention.base.errors import AttentionError, ModelError
from attention.export.bundling import bundle, styles
from attention.export.packing import compress, pack_state
from attention.export.states import State, all_states
from attention.pictures.message import CONTAINERS_HTML, SCRIPTS_DIR

PAGE_DIR = Path(__file__).parent / "page"
_MODELS = "all-MiniLM-L6-v2, whose weights and activations are in states/previous.js and states/next.js: Apache-2.0.\n\nplotly.js:\n\n"


def write(
    folder: Path, lab: str = "", tell: Callable[[str], None] = print, states: Sequence[State] = ()
) -> dict[str, int]:
    """Writes the demo into a folder and returns the size of each file in bytes, by name.

    Args:
        folder: created if necessary; its other files are left alone.
        lab: the address of a full Lab, to which the page then links.
        tell: receives a sentence for every state that could not be written.
        states: the states to show; empty: all.

    Raises:
        AttentionError: a state is invalid, or none could be written.
    """
    written: dict[str, bytes] = {}
    packed_states = []
    for state in states or all_states():
        try:
            content = (state.pack or pack_state)(state)
        except ModelError as error:
            tell(f"The demo is written without “{state.title}”: {error}")
            continue
        packed_states.append(state)
        written[f"states/{state.name}.js"] = _as_script(state.name, content)
    if not packed_states:
        raise AttentionError(
            "None of the demo's states could be written: install the models that they need, or choose others."
        )
    listed = [{"name": state.name, "title": state.title, "sentence": state.sentence} for state in packed_states]
    written["index.html"] = _page(json.dumps({"lab": lab, "states": listed}, ensure_ascii=False))
    written["plotly.js"] = (SCRIPTS_DIR / "vendor" / "plotly-cartesian.min.js").read_bytes()
    written["LICENSES.txt"] = _MODELS.encode() + (SCRIPTS_DIR / "vendor" / "LICENSE").read_bytes()
    for name, content in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return {name: len(content) for name, content in sorted(written.items())}


def _as_script(name: str, content: bytes) -> bytes:
    """A state as a script that passes it to the page, compressed and base64-encoded: a page opened from a file may not fetch anything."""
    return f"attentionDemo({json.dumps(name)}, {json.dumps(b64encode(compress(content)).decode())});\n".encode()


def _page(about: str) -> bytes:
    """The page, complete except for Plotly and the states, whose description `about` is JSON."""
    script = bundle("demo", PAGE_DIR)
    template = (PAGE_DIR / "demo.html").read_text(encoding="utf-8")
    parts = {
        "FRAME": CONTAINERS_HTML,
        "STYLE": styles(PAGE_DIR / "demo.css"),
        "ABOUT": about.replace("<", "\\u003c"),
        "SCRIPT": script,
        "HASH": b64encode(hashlib.sha256(script.encode()).digest()).decode(),
    }
    return re.sub(r"<!--(\w+)-->|\{\{(\w+)\}\}", lambda match: parts[match[1] or match[2]], template).encode()
