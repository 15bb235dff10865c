"""The demo's page in one file: the modules of the figure and of the demo, merged into one classic script that also runs from a file.

The scripts of a notebook's outputs, compressed, as bytes and as text: Plotly, and the Lab's own.
"""

from __future__ import annotations

import base64
import hashlib
import re
import zlib
from base64 import b64encode
from functools import cache
from pathlib import Path

from attention.base.errors import AttentionError
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


PAGE_DIR = Path(__file__).parent / "page"

# 85 characters that neither HTML, an attribute in quotes nor JSON has to escape.
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%()*+,-./:;=?@[]^_{|"
_STANDARD = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_TRANSLATION = str.maketrans(_STANDARD, ALPHABET)


@cache
def packed_scripts() -> bytes:
    """Plotly's script and the page's, compressed: about 540 kB."""
    plotly = (SCRIPTS_DIR / "vendor" / "plotly-cartesian.min.js").read_text(encoding="utf-8")
    return compress(f"{plotly}\n;{bundle('notebook_output', PAGE_DIR)}".encode())


@cache
def scripts_hash() -> str:
    """The SHA-256 of `packed_scripts`, by which an output recognizes them."""
    return hashlib.sha256(packed_scripts()).hexdigest()


@cache
def scripts_text() -> str:
    """`packed_scripts` as text: about 680 kB."""
    return as_text(packed_scripts())


@cache
def loader() -> str:
    """The script that every output carries, without its comments."""
    text = (PAGE_DIR / "loader.js").read_text(encoding="utf-8")
    return re.sub(r"^ *//.*\n|^ +", "", text, flags=re.MULTILINE)


@cache
def styles() -> str:
    """The styles of every output."""
    return (PAGE_DIR / "output.css").read_text(encoding="utf-8") + (SCRIPTS_DIR / "figure.css").read_text(
        encoding="utf-8"
    )


def compress(content: bytes) -> bytes:
    """The content compressed with gzip, without a time stamp."""
    compressor = zlib.compressobj(9, wbits=31)
    return compressor.compress(content) + compressor.flush()


def as_text(content: bytes) -> str:
    """Bytes as text: their number, a colon, and five characters for every four of them."""
    return f"{len(content)}:{base64.b85encode(content, pad=True).decode().translate(_TRANSLATION)}"
