"""Limits uploads: only files that a page has requested, a few at a time, and within the memory for uploads.

Streamlit accepts a file under any name from any client that knows a session id, keeps it as long as the session, and limits only
the size of one file. Incomplete uploads stay in the temporary folder as long as the client likes. It has no setting for any of that,
so two middlewares handle uploads before Streamlit does; a form is parsed in memory, without a temporary file.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from typing import Protocol
from weakref import WeakValueDictionary

import streamlit as st
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no annotation
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import runtime
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.uploaded_file_manager import DeletedFile, UploadedFile

from attention.base.errors import FileError
from pages.ui.server import scheduler
from pages.ui.server.limits import UPLOADED_MB, UPLOADED_MB_OF_ONE, UPLOADS_AT_ONCE

MOST = 16
"""Upload URLs of one session at a time."""
_PATIENCE = 20.0  # seconds for the rest of a body that is refused
SMALL = 2**20  # bytes; smaller uploads do not queue
LONGEST_WAIT = 60.0  # seconds in the queue
GONE = "This server no longer has the uploaded file: upload it again."
_UPLOAD_URL = re.compile(r"/_stcore/upload_file/([^/]+)/([^/]+)$")
"""The path of an upload URL: a session id and a file id."""
_ACCEPTED = 204  # Streamlit's status for a successful upload
_LONGEST_ANSWER = 2**16  # bytes of a message with upload URLs
_LONGEST_HEAD = 2**13  # bytes before the file: the boundary and the headers of the part

_urls: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=MOST))  # files by session
_arriving: Counter[str] = Counter()  # bytes of uploads in progress, by session
_slots = asyncio.Semaphore(UPLOADS_AT_ONCE)
_locks: WeakValueDictionary[str, asyncio.Lock] = (
    WeakValueDictionary()
)  # by session: a stalled session uses one slot, not all
_session_files: WeakValueDictionary[tuple[str, str], Content] = (
    WeakValueDictionary()
)  # by session and place; the session itself owns the files


def register(session: str, file: str) -> None:
    """Registers an upload URL."""
    _urls[session].append(file)


def consume(session: str, file: str) -> bool:
    """Whether the session was given this upload URL. Each URL is valid once."""
    if is_known := file in _urls.get(session, ()):
        _urls[session].remove(file)
    return is_known


class UploadUrls:
    """Middleware that registers the upload URLs of active sessions; uploads to any other URL are refused.

    A page requests upload URLs over its socket in a message of Streamlit's protocol, and the answer contains them. A middleware reads both.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards everything. Limits each request for upload URLs to `MOST`."""
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return

        async def receive_few() -> Message:
            message = await receive()
            return {**message, "bytes": _with_few_names(message["bytes"])} if message.get("bytes") else message

        async def send_noted(message: Message) -> None:
            for session, file in _urls_in(message.get("bytes") or b""):
                register(session, file)
            await send(message)

        try:
            await self.app(scope, receive_few, send_noted)
        finally:
            for session in [session for session in _urls if not runtime.get_instance().is_active_session(session)]:
                del _urls[session]


def _with_few_names(message: bytes) -> bytes:
    """The message with at most `MOST` requested upload URLs."""
    try:
        request = BackMsg.FromString(message)
    except DecodeError:
        return message  # Streamlit reports the error
    if len(request.file_urls_request.file_names) <= MOST:
        return message
    del request.file_urls_request.file_names[MOST:]
    return bytes(request.SerializeToString())


def _urls_in(message: bytes) -> list[tuple[str, str]]:
    """The upload URLs in a message to a page, as pairs of session id and file id."""
    if len(message) > _LONGEST_ANSWER or b"/_stcore/upload_file/" not in message:
        return []
    answer = ForwardMsg.FromString(message).file_urls_response
    matches = (_UPLOAD_URL.search(file.upload_url) for file in answer.file_urls)
    return [(match[1], match[2]) for match in matches if match]


class Content(Protocol):
    """An uploaded file that a session keeps."""

    @property
    def content(self) -> bytes:
        """Its bytes."""


class _RefusedError(Exception):
    """A refused upload: its HTTP status and the reason."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def _manager() -> MemoryUploadedFileManager:
    manager = runtime.get_instance().uploaded_file_mgr
    assert isinstance(manager, MemoryUploadedFileManager)
    return manager


@asynccontextmanager
async def _room(session: str, size: int) -> AsyncIterator[None]:
    """Reserves memory for a file of this size.

    Raises:
        _RefusedError: the memory for uploads is not enough.
    """
    manager, in_sessions = _manager(), session_file_sizes()
    in_streamlit = {
        name: sum(len(file.data) for file in [*files.values()]) for name, files in [*manager.file_storage.items()]
    }
    of_session = in_streamlit.get(session, 0) + in_sessions.get(session, 0)
    if of_session + _arriving[session] + size > UPLOADED_MB_OF_ONE * 2**20:
        raise _RefusedError(
            413,
            f"A page may have at most {UPLOADED_MB_OF_ONE} MB of files, and this one would exceed that: remove another file first.",
        )
    if sum(in_streamlit.values()) + sum(in_sessions.values()) + _arriving.total() + size > UPLOADED_MB * 2**20:
        raise _RefusedError(429, "This server has no room for more files now: try again in a minute.")
    _arriving[session] += size
    try:
        yield
    finally:
        _arriving[session] -= size
        if not _arriving[session]:
            del _arriving[session]


@asynccontextmanager
async def _turn(session: str) -> AsyncIterator[None]:
    """Waits until fewer than `UPLOADS_AT_ONCE` uploads are in progress, and none of this session.

    Raises:
        _RefusedError: the wait takes too long.
    """
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                await stack.enter_async_context(_locks.setdefault(session, asyncio.Lock()))
                await stack.enter_async_context(_slots)
        except TimeoutError:
            raise _RefusedError(429, "Too many other uploads are in progress: try again in a minute.") from None
        yield


async def _drain(receive: Receive) -> None:
    """Reads the rest of the body: a client that is cut off while sending does not see the error."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            while (await receive()).get("more_body"):
                pass


def content(file: UploadedFile | DeletedFile) -> bytes:
    """The bytes of an uploaded file. It can be read once; its memory is then free for other uploads.

    Raises:
        FileError: this server does not have the file.
    """
    if isinstance(file, DeletedFile):
        raise FileError(GONE)
    # Only one run at a time reads a large file.
    with scheduler.exclusive() if file.size > SMALL else nullcontext():
        data = file.getvalue()
    if (context := get_script_run_ctx()) and isinstance(context.uploaded_file_mgr, MemoryUploadedFileManager):
        session, manager = context.session_id, context.uploaded_file_mgr
        for record in manager.get_files(session, [file.file_id]):
            manager.add_file(session, record._replace(data=b""))
    file.truncate(0)  # the session state still references this object
    return data


def count_file(file: Content, place: str = "file") -> None:
    """Counts this file of the session as one of its uploads, instead of the previous one of the same `place`."""
    if context := get_script_run_ctx():
        _session_files[context.session_id, place] = file


def session_file_sizes() -> dict[str, int]:
    """The bytes of the files of each session."""
    sizes: Counter[str] = Counter()
    for (session, _), file in [*_session_files.items()]:
        sizes[session] += len(file.content)
    return dict(sizes)


class BoundedUploads:
    """Middleware that accepts uploads within the limits."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards all requests that are not uploads."""
        if scope["type"] == "http" and scope["method"] == "PUT" and (place := _UPLOAD_URL.search(scope["path"])):
            await self._take(place[1], place[2], scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _take(self, session: str, file: str, scope: Scope, receive: Receive, send: Send) -> None:
        if not runtime.get_instance().is_active_session(session):
            await self.app(scope, receive, send)  # Streamlit refuses it
            return
        try:
            if not consume(session, file):
                raise _RefusedError(404, "This upload address is unknown or already used: upload the file again.")
            length = Headers(scope=scope).get("Content-Length", "")
            if not length.isdecimal():
                raise _RefusedError(411, "An upload needs a Content-Length header; got none: send one.")
            size = int(length)
            # Small files arrive at once and do not wait for slow uploads.
            async with _turn(session) if size > SMALL else nullcontext(), _room(session, size):
                if SMALL < size <= st.get_option("server.maxUploadSize") * 2**20:
                    await self._take_large(session, file, scope, receive, send)
                else:
                    await self.app(scope, receive, send)
        except ClientDisconnect:  # no client to answer
            pass
        except _RefusedError as error:
            if error.status != 400:  # the client may still be sending
                await _drain(receive)
            await PlainTextResponse(str(error), error.status, {"Connection": "close"})(scope, receive, send)

    async def _take_large(self, session: str, file: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards the upload with an empty file, and adds the content when Streamlit has accepted it.

        Streamlit would store a file of more than 1 MB in the temporary folder until it is complete. Here its memory is counted.
        """
        parts = _form_parts(await _form_body(receive))
        if parts is None:
            raise _RefusedError(400, "An upload must be a form with one file; got something else: send only the file.")
        head, content, tail = parts

        async def receive_empty() -> Message:
            return {"type": "http.request", "body": head + tail, "more_body": False}

        async def send_when_filled(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == _ACCEPTED:
                manager = _manager()
                for taken in manager.get_files(session, [file]):
                    manager.add_file(session, taken._replace(data=content))
            await send(message)

        await self.app(scope, receive_empty, send_when_filled)


async def _form_body(receive: Receive) -> bytes:
    """The whole body of a request.

    Raises:
        ClientDisconnect: the client left before the end of the body.
    """
    pieces, more = [], True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


def _form_parts(form: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The bytes before the file, of the file, and after it; None if the body is not a form with one file."""
    boundary = b"\r\n" + form[:_LONGEST_HEAD].partition(b"\r\n")[0]
    start = form.find(b"\r\n\r\n", 0, _LONGEST_HEAD) + 4
    end = form.find(boundary, start)
    if start < 4 or end < 0 or form[end + len(boundary) :].rstrip() != b"--":
        return None
    return form[:start], form[start:end], form[end:]
