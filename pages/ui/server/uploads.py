"""What people upload: files that their page has asked for, a few at a time, and no more than there is room for.

Streamlit takes a file under any name from whoever knows a session, keeps it as long as that lives, and has no limit but that
of one file; what has not arrived lies in the temporary folder, for as long as its sender likes. It has no setting for any of it, so a
middleware stands before the route of its uploads.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from weakref import WeakValueDictionary

import streamlit as st
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import runtime
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.uploaded_file_manager import DeletedFile, UploadedFile

from attention import File, FileError
from pages.ui.server import forms, places, turns
from pages.ui.server.limits import UPLOADED_MB, UPLOADED_MB_OF_ONE, UPLOADS_AT_ONCE
from pages.ui.server.places import PLACE

PATIENCE = 20.0  # seconds in which `PROGRESS` must come
PROGRESS = 2**16  # bytes
TAKEN = 204  # the status of an upload that was taken
SMALL = 2**20  # bytes of an upload that waits for nobody
LONGEST_WAIT = 60.0  # seconds for the uploads of others
GONE = "A file is read as soon as it is there, and this server no longer has it: upload it again."

_coming: Counter[str] = Counter()  # bytes, by session
_slots = asyncio.Semaphore(UPLOADS_AT_ONCE)
_own: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by session: who stalls takes one slot, not all
_held: WeakValueDictionary[str, File] = WeakValueDictionary()  # by session, which has the file itself


class _RefusedError(Exception):
    """An upload that is not taken: its HTTP status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


def _manager() -> MemoryUploadedFileManager:
    manager = runtime.get_instance().uploaded_file_mgr
    assert isinstance(manager, MemoryUploadedFileManager)
    return manager


@asynccontextmanager
async def _room(session: str, size: int) -> AsyncIterator[None]:
    """Keeps room for a file of so many bytes.

    Raises:
        _RefusedError: there is none.
    """
    manager, kept = _manager(), held()
    read = {name: sum(len(file.data) for file in [*files.values()]) for name, files in [*manager.file_storage.items()]}
    there = read.get(session, 0) + kept.get(session, 0)
    if there + _coming[session] + size > UPLOADED_MB_OF_ONE * 2**20:
        raise _RefusedError(
            413, f"A page holds at most {UPLOADED_MB_OF_ONE} MB of files; this one is too much: remove another first."
        )
    if sum(read.values()) + sum(kept.values()) + _coming.total() + size > UPLOADED_MB * 2**20:
        raise _RefusedError(429, "The files of others leave no room on this server: try again in a minute.")
    _coming[session] += size
    try:
        yield
    finally:
        _coming[session] -= size
        if not _coming[session]:
            del _coming[session]


@asynccontextmanager
async def _turn(session: str) -> AsyncIterator[None]:
    """Waits until fewer than `UPLOADS_AT_ONCE` are on their way, and none of this session.

    Raises:
        _RefusedError: that takes too long.
    """
    async with AsyncExitStack() as stack:
        try:
            async with asyncio.timeout(LONGEST_WAIT):
                await stack.enter_async_context(_own.setdefault(session, asyncio.Lock()))
                await stack.enter_async_context(_slots)
        except TimeoutError:
            raise _RefusedError(429, "Others are uploading: try again in a minute.") from None
        yield


async def _read(receive: Receive) -> None:
    """Reads what is still to come: whoever is cut off while sending does not see why."""
    with suppress(TimeoutError):
        async with asyncio.timeout(PATIENCE):
            while (await receive()).get("more_body"):
                pass


def _patient(receive: Receive) -> Receive:
    """The same messages, unless they come too slowly."""
    loop = asyncio.get_running_loop()
    until, came = loop.time() + PATIENCE, 0

    async def next_message() -> Message:
        nonlocal until, came
        try:
            async with asyncio.timeout_at(until):
                message = await receive()
        except TimeoutError:
            raise _RefusedError(408, "The upload has stalled, so others go first: upload it again.") from None
        came += len(message.get("body", b""))
        if came >= PROGRESS:
            until, came = loop.time() + PATIENCE, 0
        return message

    return next_message


def content(file: UploadedFile | DeletedFile) -> bytes:
    """What an uploaded file holds; it is read once, and gives its room back.

    Raises:
        FileError: this server does not have it.
    """
    if isinstance(file, DeletedFile):
        raise FileError(GONE)
    # To its end this run is the only one that reads a large one.
    with turns.alone() if file.size > SMALL else nullcontext():
        data = file.getvalue()
    if (context := get_script_run_ctx()) and isinstance(context.uploaded_file_mgr, MemoryUploadedFileManager):
        session, manager = context.session_id, context.uploaded_file_mgr
        for there in manager.get_files(session, [file.file_id]):
            manager.add_file(session, there._replace(data=b""))
    file.truncate(0)  # the session's state keeps this
    return data


def hold(file: File) -> None:
    """From now on this file, which the session keeps, takes room as one of its uploads; the one before no longer does."""
    if context := get_script_run_ctx():
        _held[context.session_id] = file


def held() -> dict[str, int]:
    """The bytes of the files that sessions keep, by session."""
    return {session: len(file.content) for session, file in [*_held.items()]}


class BoundedUploads:
    """Takes the uploads that this process has room for."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands on what is no upload."""
        if scope["type"] == "http" and scope["method"] == "PUT" and (place := PLACE.search(scope["path"])):
            await self._take(place[1], place[2], scope, receive, send)
        else:
            await self.app(scope, receive, send)

    async def _take(self, session: str, file: str, scope: Scope, receive: Receive, send: Send) -> None:
        if not runtime.get_instance().is_active_session(session):
            await self.app(scope, receive, send)  # which refuses it
            return
        try:
            if not places.take(session, file):
                raise _RefusedError(404, "A page asks for a place before it uploads a file: upload it again.")
            length = Headers(scope=scope).get("Content-Length", "")
            if not length.isdecimal():
                raise _RefusedError(411, "An upload says how large it is: send it with a Content-Length.")
            size = int(length)
            # What is small is there at once, and need not wait for those that are slow.
            async with _turn(session) if size > SMALL else nullcontext(), _room(session, size):
                if SMALL < size <= st.get_option("server.maxUploadSize") * 2**20:
                    await self._take_large(session, file, scope, _patient(receive), send)
                else:
                    await self.app(scope, _patient(receive), send)
        except ClientDisconnect:  # nobody is there to be answered
            pass
        except _RefusedError as why:
            if why.status not in (400, 408):  # there may be more of it
                await _read(receive)
            await PlainTextResponse(str(why), why.status, {"Connection": "close"})(scope, receive, send)

    async def _take_large(self, session: str, file: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands on an upload with an empty file, and adds what the file holds when Streamlit has taken it.

        Streamlit would keep a file of more than 1 MB in the temporary folder until all of it has come, which fills up; here it is counted.
        """
        parts = forms.parts(await forms.body(receive))
        if parts is None:
            raise _RefusedError(400, "An upload is a form with one file: send nothing else with it.")
        head, content, tail = parts

        async def receive_empty() -> Message:
            return {"type": "http.request", "body": head + tail, "more_body": False}

        async def send_when_filled(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == TAKEN:
                manager = _manager()
                for taken in manager.get_files(session, [file]):
                    manager.add_file(session, taken._replace(data=content))
            await send(message)

        await self.app(scope, receive_empty, send_when_filled)
