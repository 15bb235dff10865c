"""What people upload: files that their page has asked for, a few at a time, and no more than there is room for.

Streamlit takes a file under any name from whoever knows a session, keeps it as long as that lives, and has no limit but that
of one file; what has not arrived lies in the temporary folder, for as long as its sender likes. There is no setting for any of
it, so the route of the uploads and the manager of their files are wrapped here; `tests/test_uploads.py` fails where a newer
Streamlit has others.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext, suppress
from functools import wraps
from weakref import WeakValueDictionary

from starlette.formparsers import MultiPartParser
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send
from streamlit import runtime
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.uploaded_file_manager import DeletedFile, UploadedFile, UploadFileUrlInfo
from streamlit.web.server.starlette import starlette_routes

from attention import File, FileError
from pages.ui.server import turns
from pages.ui.server.limits import UPLOADED_MB, UPLOADED_MB_OF_ONE, UPLOADS_AT_ONCE

PATIENCE = 20.0  # seconds in which `PROGRESS` must come
PROGRESS = 2**16  # bytes
SMALL = 2**20  # bytes of an upload that waits for nobody
LONGEST_WAIT = 60.0  # seconds for the uploads of others
GONE = "A file is read as soon as it is there, and this server no longer has it: upload it again."

_ASKED_FOR = 16  # names of files that a page may have for later
_asked: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=_ASKED_FOR))  # by session
_coming: Counter[str] = Counter()  # bytes, by session
_slots = asyncio.Semaphore(UPLOADS_AT_ONCE)
_own: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # by session: who stalls takes one slot, not all


_held: WeakValueDictionary[str, File] = WeakValueDictionary()  # by session, which has the file itself


class _RefusedError(Exception):
    """An upload that is not taken: its HTTP status, and why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


@asynccontextmanager
async def _room(session: str, size: int) -> AsyncIterator[None]:
    """Keeps room for a file of so many bytes.

    Raises:
        _RefusedError: there is none.
    """
    manager = runtime.get_instance().uploaded_file_mgr
    assert isinstance(manager, MemoryUploadedFileManager)
    kept = held()
    there = sum(len(file.data) for file in manager.file_storage.get(session, {}).values()) + kept.get(session, 0)
    if there + _coming[session] + size > UPLOADED_MB_OF_ONE * 2**20:
        raise _RefusedError(
            413, f"A page holds at most {UPLOADED_MB_OF_ONE} MB of files; this one is too much: remove another first."
        )
    if manager._total_bytes + sum(kept.values()) + _coming.total() + size > UPLOADED_MB * 2**20:
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


def bound_uploads() -> None:
    """From now on this process takes the uploads that it has room for."""
    handle = Route.handle
    urls, forget = MemoryUploadedFileManager.get_upload_urls, MemoryUploadedFileManager.remove_session_files

    @wraps(handle)
    async def bounded(self: Route, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "PUT" or not self.path.endswith(starlette_routes._ROUTE_UPLOAD_FILE):
            await handle(self, scope, receive, send)
            return
        session, file = (scope["path_params"][name] for name in ("session_id", "file_id"))
        if not runtime.get_instance().is_active_session(session):
            await handle(self, scope, receive, send)  # which refuses it
            return
        try:
            if file not in _asked.get(session, ()):
                raise _RefusedError(404, "A page asks for a place before it uploads a file: upload it again.")
            _asked[session].remove(file)
            size = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"content-length"), "")
            if not size.isdecimal():
                raise _RefusedError(411, "An upload says how large it is: send it with a Content-Length.")
            # What is small is there at once, and need not wait for those that are slow.
            async with _turn(session) if int(size) > SMALL else nullcontext(), _room(session, int(size)):
                await handle(self, scope, _patient(receive), send)
        except ClientDisconnect:  # nobody is there to be answered
            pass
        except _RefusedError as why:
            if why.status != 408:
                await _read(receive)
            await PlainTextResponse(str(why), why.status, {"Connection": "close"})(scope, receive, send)

    @wraps(urls)
    def asked(self: MemoryUploadedFileManager, session_id: str, file_names: Sequence[str]) -> list[UploadFileUrlInfo]:
        made = urls(self, session_id, file_names[:_ASKED_FOR])
        _asked[session_id].extend(url.file_id for url in made)
        return made

    @wraps(forget)
    def forgotten(self: MemoryUploadedFileManager, session_id: str) -> None:
        _asked.pop(session_id, None)
        _held.pop(session_id, None)
        forget(self, session_id)

    # Wrapped on purpose, see above; mypy knows of no method that may be replaced.
    Route.handle = bounded  # type: ignore[method-assign]
    MemoryUploadedFileManager.get_upload_urls = asked  # type: ignore[method-assign]
    MemoryUploadedFileManager.remove_session_files = forgotten  # type: ignore[method-assign]
    MultiPartParser.spool_max_size = 2**30  # in memory, which is counted here; the temporary folder would fill up
