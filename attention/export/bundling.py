"""The scripts and the styles of a page without a server: its own, those of the player in `page/`, and the figure's; modules become one classic script, which also runs from a file."""

from __future__ import annotations

import re
from pathlib import Path

from attention.base.errors import AttentionError
from attention.pictures import look
from attention.pictures.message import SCRIPTS_DIR

_PLAYER = Path(__file__).parent / "page"
_IMPORT = re.compile(
    r'^import \{([^}]*)\} from "\./([\w]+)\.js";\n|^import (\w+) from "\./([\w]+)\.js";\n', re.MULTILINE
)
_EXPORT = re.compile(r"^export (default )?(?=(?:async )?(?:const|let|function|class) (\w+))", re.MULTILINE)


def bundle(start: str, folder: Path) -> str:
    """A module and its imports as one classic script: each module becomes a function that is called once, after its imports.

    They are looked up in the folder of the page, then among the player's and the figure's.

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
        text = _module(name, folder)
        for match in _IMPORT.finditer(text):
            add(match[2] or match[4], (*path, name))
        pieces[name] = _wrapped(name, text)
        order.append(name)

    add(start, ())
    return '"use strict";\n' + "".join(pieces[name] for name in order)


def styles(own: Path) -> str:
    """The styles of a page: those that all such pages share, its `own`, of sliders, and the figure's."""
    files = (_PLAYER / "page.css", own, SCRIPTS_DIR / "sliders.css", SCRIPTS_DIR / "figure.css")
    text = look.variables() + "".join(file.read_text(encoding="utf-8") for file in files)
    return re.sub(r" */\*.*?\*/", "", text, flags=re.DOTALL)  # every output of a notebook carries them


def _module(name: str, folder: Path) -> str:
    for place in (folder, _PLAYER, SCRIPTS_DIR):
        if (path := place / f"{name}.js").exists():
            return path.read_text(encoding="utf-8")
    raise AttentionError(f"The page imports {name}.js, which is neither among its own scripts nor among the figure's.")


def _wrapped(name: str, text: str) -> str:
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
