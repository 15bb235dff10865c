"""The route of exports: ``GET export/weights.csv?<state>``. The state is in the URL, so no session is needed.

Small files are made here, all others in processes of their own, for visitors in turn. An interrupted download can resume: equal states give equal bytes and the same
ETag. Files are sent piece by piece, with a minimum pace, and what is unread counts as bytes in flight (`in_flight`).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import platform
import re
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, quote
from weakref import WeakSet

import streamlit as st
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

import attention
from attention.base.errors import AttentionError, AwaitedError, BusyError, MissingError, SizeError
from attention.base.progress import Watcher, watching
from attention.sources.matrices import UPLOADED, uploaded_sizes
from pages.ui import process
from pages.ui.exports import catalog, links
from pages.ui.exports.request import ClientLeftError, Production, Request
from pages.ui.server import heavy, scheduler
from pages.ui.server.in_flight import address_of, whole_body
from pages.ui.server.limits import LIMITS

_MOST_PARAMETERS = 1000  # of a state; the knobs of all sources are a third of them
_LONGEST_QUERY = 2**20  # bytes of a state in the body of a POST request, for states too long for a URL
_PATIENCE = 60.0  # seconds that a browser may be slower than `_PACE`
_PACE = 2**17  # bytes a second
_RETRY = {429: "5", 503: "20"}  # seconds
_HEADERS = {
    "Cache-Control": "private, no-cache",
    # Prevents Streamlit's compression, with which ranges of a file would not fit together.
    "Content-Encoding": "identity",
    "Cross-Origin-Resource-Policy": "same-origin",
}


_STATUS: tuple[tuple[type[AttentionError], int], ...] = (
    (links.GoneError, 410),
    (heavy.QueueFullError, 429),
    (BusyError, 503),
    (SizeError, 413),
    (MissingError, 404),
    (AwaitedError, 404),
    (AttentionError, 400),
)


_reading = asyncio.Semaphore(1)


def routes() -> list[Route]:
    """The route, for `st.App`. Call it when Streamlit's options have been read."""
    process.SHUTDOWN_CALLBACKS.append(_end)
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return [Route(f"{'/' + base if base else ''}/export/{{name}}", _Exports(), methods=["GET", "HEAD", "POST"])]


def _end() -> None:
    """Refuses what waits in line; what is being made or read goes on, for `process.SECONDS_TO_END`."""
    for line in (heavy.LINE, heavy.FILES):
        line.close()

    def drop_all() -> None:
        for file in [*_productions]:
            file.drop()

    asyncio.get_running_loop().call_later(process.SECONDS_TO_END, drop_all)


class _Exports:
    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_on(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await _answer(scope, receive, send_on)
        except (ClientDisconnect, ClientLeftError):
            return
        except Exception as error:  # the client gets a message, the log the traceback
            if isinstance(error, AttentionError):
                status, message = next(status for kind, status in _STATUS if isinstance(error, kind)), str(error)
            else:
                logging.getLogger(__name__).exception("an export")
                status, message = 500, "The server could not make the file."
            if not begun:  # otherwise the connection closes, and the browser reports an incomplete download
                headers = {"Cache-Control": "no-store"} | ({"Retry-After": _RETRY[status]} if status in _RETRY else {})
                await PlainTextResponse(message, status, headers)(scope, receive, send)


async def _answer(scope: Scope, receive: Receive, send: Send) -> None:
    headers = Headers(scope=scope)
    query = scope["query_string"] if scope["method"] != "POST" else await whole_body(scope, receive, _LONGEST_QUERY)
    if query is None:
        raise SizeError(f"A state may have at most {_LONGEST_QUERY:,} bytes here; got more: choose a shorter text.")
    async with _reading:  # one after the other: long states hold the lock of the interpreter
        wanted = await asyncio.to_thread(_find, scope["path_params"]["name"], query)
    known = {**_HEADERS, "Content-Type": wanted.media_type}
    if wanted.tag:
        known |= {"ETag": wanted.tag, "Accept-Ranges": "bytes"}
        if wanted.tag in re.findall(r'"[^"]*"', headers.get("If-None-Match", "")):
            await Response(status_code=304, headers=known)(scope, receive, send)
            return
    if scope["method"] == "HEAD":
        await _begin_answer(send, 200, known | _content_disposition(wanted.name))
        await send({"type": "http.response.body", "body": b""})
        return
    await _unless_left(receive, _deliver(scope, headers, send, wanted, known))


async def _deliver(scope: Scope, headers: Headers, send: Send, wanted: _RequestedFile, known: dict[str, str]) -> None:
    address = address_of(scope)
    start, stop = _range(headers, wanted.tag)
    file = Production(address, start or 0, stop)
    _productions.add(file)
    try:
        key = wanted.tab.session if wanted.tab else f"address {address}"
        file.begin(wanted.pieces, Watcher(("export", key), address, lambda: not file.cancelled.is_set()))
        await (file.until_ready() if start is None else file.until_finished())
        known |= _content_disposition(file.file_name)
        if start is None:
            known |= {"Content-Length": str(file.total)} if file.ended else {}
            await _send_file(send, file, 200, known)
        elif start >= file.total:
            await _begin_answer(send, 416, {"Content-Range": f"bytes */{file.total}", "Content-Length": "0"})
            await send({"type": "http.response.body", "body": b""})
        else:
            end = min(stop or file.total, file.total)
            known |= {"Content-Range": f"bytes {start}-{end - 1}/{file.total}", "Content-Length": str(end - start)}
            await _send_file(send, file, 206, known)
    finally:
        file.cancel()


def _range(headers: Headers, tag: str) -> tuple[int | None, int | None]:
    """The requested range, start inclusive and stop exclusive; None, None for the whole file or if the file has changed."""
    match = re.fullmatch(r"bytes=(\d{1,15})-(\d{0,15})", headers.get("Range", ""), re.ASCII)
    if not (match and tag) or headers.get("If-Range", tag) != tag:
        return None, None
    start, stop = int(match[1]), int(match[2]) + 1 if match[2] else None
    return (None, None) if stop is not None and stop <= start else (start, stop)


def _content_disposition(name: str) -> dict[str, str]:
    plain = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    return {"Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"}


async def _unless_left(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Runs the coroutine; cancels it and raises ClientLeftError if the client leaves."""

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(left())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done() or working.cancelled():  # cancelled: what it has not read is dropped for others
            raise ClientLeftError
        working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


@dataclass(frozen=True)
class _RequestedFile:
    """A file by its name in the URL: `pieces` yields its name in the browser and then its content; `tag` is its ETag, empty if unknown."""

    name: str
    media_type: str
    pieces: Callable[[Watcher], Generator[str | bytes]]
    tab: links.Tab | None = None
    tag: str = ""


def _find(name: str, query: bytes) -> _RequestedFile:
    """The requested file. Errors are raised here, before the request waits in a queue.

    Raises:
        AttentionError: the file or the state does not exist.
    """
    if (number := query.count(b"&") + 1) > _MOST_PARAMETERS:
        raise SizeError(
            f"A state has at most {_MOST_PARAMETERS:,} parameters; got {number:,}: use the address that a page offers."
        )
    texts = dict(parse_qsl(query.decode("utf-8", "replace"), keep_blank_values=True))
    token = texts.pop("token", "")
    if texts.pop("offer", ""):
        tab = links.find(token)
        if name not in tab.offers:
            raise links.GoneError(
                "The page no longer offers this file: open the page again and download the file there."
            )
        offer = tab.offers[name]
        return _RequestedFile(
            name, offer.media_type, partial(_made_here, lambda: (offer.file_name, offer.make()), int), tab
        )
    export, step = catalog.find(name)
    missing = [matrix for matrix in uploaded_sizes(texts.get(UPLOADED, "")) if matrix not in texts]
    requester, gone = None, None
    try:
        requester = links.find(token) if token else None
    except links.GoneError as error:
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
    given = requester and replace(requester, offers={})
    if export.is_small(request):
        pieces = partial(_made_here, partial(catalog.pieces, name, texts, given), request.prepare)
    else:
        pieces = partial(_made_by_job, name, texts, given, request.prepare)
    return _RequestedFile(name, export.media_type, pieces, requester, _tag(name, texts))


def _made_here(
    make: Callable[[], Iterable[str | bytes]], prepare: Callable[[], object], visitor: Watcher
) -> Generator[str | bytes]:
    """The name and the content of a small file, which takes a turn like a script run."""
    with heavy.FILES.turn(visitor), watching(visitor):
        prepare()
        with scheduler.turn():
            for piece in make():
                yield piece
                with scheduler.without_turn():  # others run between two pieces
                    del piece


def _made_by_job(
    name: str, texts: Mapping[str, str], tab: links.Tab | None, prepare: Callable[[], object], visitor: Watcher
) -> Generator[str | bytes]:
    yield from heavy.stream(
        catalog.pieces, name, texts, tab, words=f"Making {name}", visitor=visitor, prepare=prepare, keep=False
    )


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


_productions = WeakSet[Production]()


async def _send_file(send: Send, file: Production, status: int, headers: Mapping[str, str]) -> None:
    """Sends the headers and then the file piece by piece; a client that reads too slowly has left."""
    clock, allowed = asyncio.get_running_loop().time, _PATIENCE
    await _begin_answer(send, status, headers)
    while piece := await file.take():
        began = clock()
        try:
            async with asyncio.timeout(allowed):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            raise ClientLeftError from None
        allowed += len(piece) / _PACE - (clock() - began)
    await send({"type": "http.response.body", "body": b""})


async def _begin_answer(send: Send, status: int, headers: Mapping[str, Any]) -> None:
    encoded = [(key.lower().encode("latin-1"), str(value).encode("latin-1")) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
