"""The demo's page in one file: the modules of the figure and of the demo, merged into one classic script that also runs from a file."""

from __future__ import annotations

import hashlib
import re
from base64 import b64encode
from pathlib import Path

from attention.errors import AttentionError
from attention.pictures.message import CONTAINERS_HTML, SCRIPTS_DIR

_PAGE = Path(__file__).parent / "page"
_IMPORT = re.compile(
    r'^import \{([^}]*)\} from "\./([\w]+)\.js";\n|^import (\w+) from "\./([\w]+)\.js";\n', re.MULTILINE
)
_EXPORT = re.compile(r"^export (default )?(?=(?:async )?(?:const|let|function|class) (\w+))", re.MULTILINE)


def page(about: str, start: str = "demo") -> bytes:
    """The page, complete except for Plotly and the states.

    Args:
        about: the description of the states, as JSON.
        start: the entry module.
    """
    script = bundle(start)
    safe = about.replace("<", "\\u003c")
    digest = b64encode(hashlib.sha256(script.encode()).digest()).decode()
    parts = {
        "FRAME": CONTAINERS_HTML,
        "STYLE": (_PAGE / "demo.css").read_text(encoding="utf-8")
        + (SCRIPTS_DIR / "figure.css").read_text(encoding="utf-8"),
        "ABOUT": safe,
        "SCRIPT": script,
        "HASH": digest,
    }
    template = (_PAGE / "demo.html").read_text(encoding="utf-8")
    return re.sub(r"<!--(\w+)-->|\{\{(\w+)\}\}", lambda match: parts[match[1] or match[2]], template).encode()


def bundle(start: str, *folders: Path) -> str:
    """A module and its imports as one classic script: each module becomes a function that is called once, after its imports.

    Args:
        start: the entry module.
        folders: where modules are looked up before the demo's page and the figure's scripts.

    Raises:
        AttentionError: an import or export has a form that this bundler does not read.
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
        text = _module(name, *folders)
        for match in _IMPORT.finditer(text):
            add(match[2] or match[4], (*path, name))
        pieces[name] = _wrapped(name, text)
        order.append(name)

    add(start, ())
    return '"use strict";\n' + "".join(pieces[name] for name in order)


def _module(name: str, *folders: Path) -> str:
    for folder in (*folders, _PAGE, SCRIPTS_DIR):
        if (path := folder / f"{name}.js").exists():
            return path.read_text(encoding="utf-8")
    raise AttentionError(f"The page imports {name}.js, which is neither among its own scripts nor among the figure's.")


def _wrapped(name: str, text: str) -> str:
    """A module as a function that returns its exports."""

    def replace_import(match: re.Match[str]) -> str:
        if match[3]:
            return f"const {{ default: {match[3]} }} = {match[4]}_js;\n"
        return f"const {{{re.sub(r' as ', ': ', match[1])}}} = {match[2]}_js;\n"

    exports = [f"{'default: ' if match[1] else ''}{match[2]}" for match in _EXPORT.finditer(text)]
    body = _EXPORT.sub("", _IMPORT.sub(replace_import, text))
    body = body.replace("import.meta.url", "document.baseURI")  # the module's files are next to the page
    if unread := re.search(r"^(?:import|export)\b.*|(?<!\{)\bimport(?:\.|\().*", body, re.MULTILINE):
        raise AttentionError(
            f"The bundler reads named and default imports, and exports of declarations; {name}.js has {unread[0]!r}: rewrite that line."
        )
    return f"const {name}_js = (() => {{\n{body}return {{ {', '.join(exports)} }};\n}})();\n"
