"""What an address asks for: which file, of which state, for which tab, and what its bytes are called."""

from __future__ import annotations

import hashlib
import platform
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import version
from pathlib import Path
from urllib.parse import parse_qsl

import attention
from attention import ConfigError
from attention.sources.knobs import UPLOADED
from attention.sources.link import sizes
from attention.sources.link_aliases import with_current_keys
from pages.ui.exports import catalog, tokens
from pages.ui.exports.production import Made
from pages.ui.exports.request import Request
from pages.ui.knobs.table import LIMITS


@dataclass(frozen=True)
class Wanted:
    """What an address asks for.

    Attributes:
        name: of the file, in the address.
        media_type: of the file.
        make: makes it.
        request: the state that it is made of; None where a page offers the file.
        tab: the tab that asks, if one does.
        tag: the same for the same bytes; empty where nobody can know.
    """

    name: str
    media_type: str
    make: Callable[[], Made]
    request: Request | None = None
    tab: tokens.Tab | None = None
    tag: str = ""


def find(name: str, query: bytes) -> Wanted:
    """What an address asks for; what is wrong with it is found before anybody waits.

    Raises:
        AttentionError: there is no such file, or no such state.
    """
    texts, notes = with_current_keys(dict(parse_qsl(query.decode("utf-8", "replace"), keep_blank_values=True)))
    if notes:
        raise ConfigError(notes[0])
    token = texts.pop("token", "")
    if texts.pop("offer", ""):
        tab = tokens.find(token)
        if name not in tab.offers:
            raise tokens.GoneError(
                "The page does not offer this file any more: open it again and take the file from there."
            )
        offer = tab.offers[name]
        return Wanted(name, offer.media_type, lambda: Made(offer.file_name, [offer.make()]), tab=tab)
    export, step = catalog.find(name)
    missing = [one for one in sizes(texts.get(UPLOADED, "")) if one not in texts]
    found = None
    try:
        found = tokens.find(token) if token else None
    except tokens.GoneError:
        if missing or texts.get("source") == "file":  # otherwise the address says all
            raise
    if found is not None:
        texts |= {one: found.matrices[one] for one in missing if one in found.matrices}
    request = Request(texts, found, step, export.ending)
    _ = request.source
    return Wanted(name, export.media_type, lambda: export.make(request), request, found, _tag(name, texts))


@cache
def _code() -> str:
    """The content of our own modules: a release that writes other bytes must not confirm those that a browser has."""
    content = hashlib.blake2b(digest_size=16)
    for folder in (Path(attention.__file__).parent, Path(__file__).parents[2]):
        for path in sorted(folder.rglob("*.py")):
            content.update(path.read_bytes())
    return content.hexdigest()


def _tag(name: str, texts: Mapping[str, str]) -> str:
    """An ETag of a file: the same for the same state, on machines of one type with the same versions."""
    versions = [version("torch"), version("numpy"), version("matplotlib"), platform.machine(), _code()]
    said = repr((name, sorted(texts.items()), LIMITS, versions))
    return f'"{hashlib.blake2b(said.encode("utf-8", "replace"), digest_size=16).hexdigest()}"'
