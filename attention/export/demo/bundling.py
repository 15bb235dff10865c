"""The page of the demo in one file: the modules of the figure and of the demo as one classic script, which a file may run too."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from pathlib import Path

from attention.errors import AttentionError
from attention.pictures.message import FRAME, SCRIPTS

_PAGE = Path(__file__).parent / "page"
_IMPORT = re.compile(
    r'^import \{([^}]*)\} from "\./([\w]+)\.js";\n|^import (\w+) from "\./([\w]+)\.js";\n', re.MULTILINE
)
_EXPORT = re.compile(r"^export (default )?(?=(?:async )?(?:const|let|function|class) (\w+))", re.MULTILINE)


def page(about: str, start: str = "demo") -> bytes:
    """The page, with everything in it but Plotly and the states.

    Args:
        about: what the page shows, as JSON.
        start: the module that begins.
    """
    script = bundle(start)
    safe = about.replace("<", "\\u003c")
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "FRAME": FRAME,
        "STYLE": (_PAGE / "demo.css").read_text(encoding="utf-8")
        + (SCRIPTS / "figure.css").read_text(encoding="utf-8"),
        "ABOUT": safe,
        "SCRIPT": script,
        "HASH": digest,
    }
    template = (_PAGE / "demo.html").read_text(encoding="utf-8")
    return re.sub(r"<!--(\w+)-->|\{\{(\w+)\}\}", lambda found: parts[found[1] or found[2]], template).encode()


def bundle(start: str) -> str:
    """A module and all that it imports as one classic script: each a function that is called once, those it imports before it.

    Raises:
        AttentionError: an import or an export is written in a way that this does not read.
    """
    order: list[str] = []
    pieces: dict[str, str] = {}

    def add(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            raise AttentionError(
                f"The modules of the page must not import each other in a circle; got {' → '.join([*path, name])}."
            )
        if name in pieces:
            return
        text = _module(name)
        for found in _IMPORT.finditer(text):
            add(found[2] or found[4], (*path, name))
        pieces[name] = _wrapped(name, text)
        order.append(name)

    add(start, ())
    return '"use strict";\n' + "".join(pieces[name] for name in order)


def _module(name: str) -> str:
    for folder in (_PAGE, SCRIPTS):
        if (path := folder / f"{name}.js").exists():
            return path.read_text(encoding="utf-8")
    raise AttentionError(f"The page imports {name}.js, which is neither among its own scripts nor among the figure's.")


def _wrapped(name: str, text: str) -> str:
    """A module as a function that gives what the module exports."""

    def imported(found: re.Match[str]) -> str:
        if found[3]:
            return f"const {{ default: {found[3]} }} = {found[4]}_js;\n"
        return f"const {{{re.sub(r' as ', ': ', found[1])}}} = {found[2]}_js;\n"

    exports = [f"{'default: ' if found[1] else ''}{found[2]}" for found in _EXPORT.finditer(text)]
    body = _EXPORT.sub("", _IMPORT.sub(imported, text))
    body = body.replace("import.meta.url", "document.baseURI")  # what lies beside a module lies beside the page
    if left := re.search(r"^(?:import|export)\b.*|(?<!\{)\bimport(?:\.|\().*", body, re.MULTILINE):
        raise AttentionError(
            f"The bundler reads named and default imports and exports of declarations; {name}.js has {left[0]!r}."
        )
    return f"const {name}_js = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();\n"
