"""The route of exports: ``GET export/weights.csv?<state>``. The state is in the URL, so no session is needed.

The server makes one file at a time, for visitors in turn; models run or train for a file before that. An interrupted download can
resume: equal states give equal bytes and the same ETag.
"""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import streamlit as st
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from attention import AttentionError, MissingError
from attention.errors import AwaitedError, BusyError, SizeError
from attention.sources import Preparable
from attention.training.watchers import Watcher
from pages.ui import process
from pages.ui.exports import export_address, export_tokens, sending
from pages.ui.exports.export_address import RequestedFile
from pages.ui.exports.fair_queue import FairQueue, QueueFullError
from pages.ui.exports.production import ClientLeftError, Production
from pages.ui.server import visitor
from pages.ui.server.limits import EXPORTS_OF_ADDRESS, EXPORTS_PREPARED, EXPORTS_WAITING
from pages.ui.server.traces import is_cached

LONGEST_QUERY = 2**20  # bytes of a state in the body of a POST request, for states too long for a URL
_STATUS: tuple[tuple[type[AttentionError], int], ...] = (
    (export_tokens.GoneError, 410),
    (QueueFullError, 429),
    (BusyError, 503),
    (SizeError, 413),
    (MissingError, 404),
    (AwaitedError, 404),
    (AttentionError, 400),
)
_RETRY = {429: "5", 503: "20"}  # seconds
_HEADERS = {
    "Cache-Control": "private, no-cache",
    # Prevents Streamlit's compression, with which ranges of a file would not fit together.
    "Content-Encoding": "identity",
    "Cross-Origin-Resource-Policy": "same-origin",
}

_making, _preparing = FairQueue(1), FairQueue(EXPORTS_PREPARED)


def routes() -> list[Route]:
    """The route, for `st.App`. Call it when Streamlit's options have been read."""
    process.SHUTDOWN_CALLBACKS.append(_end)
    base = str(st.get_option("server.baseUrlPath") or "").strip("/")
    return [Route(f"{'/' + base if base else ''}/export/{{name}}", _Exports(), methods=["GET", "HEAD", "POST"])]


def _end() -> None:
    for queue in (_making, _preparing):
        queue.close()
    sending.cancel_unfinished()


class _Exports:
    """The ASGI app that answers with files or error messages."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        begun = False

        async def send_on(message: Any) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await _answer(scope, receive, send_on)
        except ClientLeftError:
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
    query = await _body(receive) if scope["method"] == "POST" else scope["query_string"]
    wanted = await asyncio.to_thread(export_address.find, scope["path_params"]["name"], query)
    known = {**_HEADERS, "Content-Type": wanted.media_type}
    if wanted.tag:
        known |= {"ETag": wanted.tag, "Accept-Ranges": "bytes"}
        if wanted.tag in re.findall(r'"[^"]*"', headers.get("If-None-Match", "")):
            await Response(status_code=304, headers=known)(scope, receive, send)
            return
    if scope["method"] == "HEAD":
        await sending.begin(send, 200, known | _content_disposition(wanted.name))
        await send({"type": "http.response.body", "body": b""})
        return
    await _unless_left(receive, _deliver(scope, headers, send, wanted, known))


async def _deliver(scope: Scope, headers: Headers, send: Send, wanted: RequestedFile, known: dict[str, str]) -> None:
    """Waits for the file and sends it, or only the requested range."""
    start, stop = _range(headers, wanted.tag)
    file = Production(start or 0, stop)
    async with sending.download(file) as download:
        await _make(wanted, file, scope, headers)
        await (file.until_ready() if start is None else file.until_finished())
        known |= _content_disposition(file.file_name)
        if start is None:
            known |= {"Content-Length": str(file.total)} if file.ended else {}
            await sending.send_file(send, download, 200, known)
        elif start >= file.total:
            await sending.begin(send, 416, {"Content-Range": f"bytes */{file.total}", "Content-Length": "0"})
            await send({"type": "http.response.body", "body": b""})
        else:
            end = min(stop or file.total, file.total)
            known |= {"Content-Range": f"bytes {start}-{end - 1}/{file.total}", "Content-Length": str(end - start)}
            await sending.send_file(send, download, 206, known)


async def _make(wanted: RequestedFile, file: Production, scope: Scope, headers: Headers) -> None:
    """Starts the production of the file when it is the visitor's turn, after its model has run or trained."""
    peer = scope["client"][0] if scope.get("client") else ""
    address = visitor.request_address(peer, ",".join(headers.getlist("X-Forwarded-For")))
    key, most = (wanted.tab.session, EXPORTS_WAITING) if wanted.tab else (f"address {address}", EXPORTS_OF_ADDRESS)
    watcher = Watcher(("export", key), address, lambda: not file.cancelled.is_set())
    request = wanted.request
    if request and isinstance(request.source, Preparable) and not is_cached(request.source):
        preparation = Production()
        await _preparing.acquire(key, most)
        try:
            with _released_on_error(_preparing):
                preparation_watcher = replace(watcher, is_connected=lambda: not preparation.cancelled.is_set())
                preparation.begin(request.prepare, preparation_watcher, _preparing.release)
            await preparation.until_finished()
        finally:
            preparation.cancel()
    await _making.acquire(key, most)
    with _released_on_error(_making):
        sending.make_room()
        file.begin(wanted.make, watcher, _making.release)


@contextmanager
def _released_on_error(queue: FairQueue) -> Iterator[None]:
    """Releases the slot if the thread that would release it did not start."""
    try:
        yield
    except Exception:
        queue.release()
        raise


def _range(headers: Headers, tag: str) -> tuple[int | None, int | None]:
    """The requested range, start inclusive and stop exclusive; None, None for the whole file or if the file has changed."""
    match = re.fullmatch(r"bytes=(\d{1,15})-(\d{0,15})", headers.get("Range", ""), re.ASCII)
    if not (match and tag) or headers.get("If-Range", tag) != tag:
        return None, None
    start, stop = int(match[1]), int(match[2]) + 1 if match[2] else None
    return (None, None) if stop is not None and stop <= start else (start, stop)


def _content_disposition(name: str) -> dict[str, str]:
    """The Content-Disposition header, with which the browser saves the file under this name."""
    plain = re.sub(r"[^\w.-]", "_", name, flags=re.ASCII)
    return {"Content-Disposition": f"attachment; filename=\"{plain}\"; filename*=UTF-8''{quote(name)}"}


async def _body(receive: Receive) -> bytes:
    """The body of a request.

    Raises:
        SizeError: the body is longer than `LONGEST_QUERY`.
        ClientLeftError: the client has left.
    """
    body, more = bytearray(), True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > LONGEST_QUERY:
            raise SizeError(f"A state may have at most {LONGEST_QUERY:,} bytes here; got more: choose a shorter text.")
    return bytes(body)


async def _unless_left(receive: Receive, work: Coroutine[Any, Any, None]) -> None:
    """Runs the coroutine, and cancels it if the client leaves.

    Raises:
        ClientLeftError: the client has left.
    """

    async def left() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass

    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(left())
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeftError
        working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)
