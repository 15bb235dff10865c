"""Resolves the URL of an export: the file, its state, the requesting tab, and the ETag."""

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
from attention.errors import AwaitedError
from attention.sources.kinds.matrices_source import UPLOADED, uploaded_sizes
from pages.ui.exports import catalog, export_tokens
from pages.ui.exports.production import ExportFile
from pages.ui.exports.request import Request
from pages.ui.server.limits import LIMITS


@dataclass(frozen=True)
class RequestedFile:
    """A requested file.

    Attributes:
        name: the name of the file in the URL.
        media_type: the media type of the file.
        make: returns the file.
        request: the state of the file; None for an offer of a page.
        tab: the requesting tab, if there is one.
        tag: the ETag, equal for equal bytes; empty if unknown.
    """

    name: str
    media_type: str
    make: Callable[[], ExportFile]
    request: Request | None = None
    tab: export_tokens.Tab | None = None
    tag: str = ""


def find(name: str, query: bytes) -> RequestedFile:
    """The requested file. Errors are raised here, before the request waits in a queue.

    Raises:
        AttentionError: the file or the state does not exist.
    """
    texts = dict(parse_qsl(query.decode("utf-8", "replace"), keep_blank_values=True))
    token = texts.pop("token", "")
    if texts.pop("offer", ""):
        tab = export_tokens.find(token)
        if name not in tab.offers:
            raise export_tokens.GoneError(
                "The page no longer offers this file: open the page again and download the file there."
            )
        offer = tab.offers[name]
        return RequestedFile(name, offer.media_type, lambda: ExportFile(offer.file_name, [offer.make()]), tab=tab)
    export, step = catalog.find(name)
    missing = [matrix for matrix in uploaded_sizes(texts.get(UPLOADED, "")) if matrix not in texts]
    requester, gone = None, None
    try:
        requester = export_tokens.find(token) if token else None
    except export_tokens.GoneError as error:
        gone = error
        if missing:
            raise
    if requester is not None:
        texts |= {matrix: requester.matrices[matrix] for matrix in missing if matrix in requester.matrices}
    request = Request(texts, requester, step, export.ending)
    try:
        _ = request.source
    except AwaitedError as error:  # otherwise the URL has the whole state
        raise gone or error from error
    return RequestedFile(name, export.media_type, lambda: export.make(request), request, requester, _tag(name, texts))


@cache
def _code() -> str:
    """A hash of our own modules, so that a release with other output does not confirm a browser's old file."""
    digest = hashlib.blake2b(digest_size=16)
    for folder in (Path(attention.__file__).parent, Path(__file__).parents[2]):
        for path in sorted(folder.rglob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _tag(name: str, texts: Mapping[str, str]) -> str:
    """The ETag of a file: equal for the same state on machines of the same type with the same versions."""
    versions = [version("torch"), version("numpy"), version("matplotlib"), platform.machine(), _code()]
    content = repr((name, sorted(texts.items()), LIMITS, versions))
    return f'"{hashlib.blake2b(content.encode("utf-8", "replace"), digest_size=16).hexdigest()}"'
