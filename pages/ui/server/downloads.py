"""What people take away: files that are made when they are asked for, one at a time, and kept until they have arrived.

Streamlit makes as many files at once as it is asked for, also for somebody who has gone; deletes one when two scripts have run, whosever
they were, and forgets how to make it when a page has run again, though the browser still shows the old button; and hands a
file to the network as a whole, however slowly it is read. There is no setting for any of it, so what handles these requests is
wrapped here; `tests/test_downloads.py` fails where a newer Streamlit has another.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import wraps
from io import BytesIO
from time import monotonic

from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send
from streamlit import runtime
from streamlit.proto.BackMsg_pb2 import BackendOperationRequest
from streamlit.proto.ForwardMsg_pb2 import BackendOperationResponse, DeferredFileResponsePayload
from streamlit.runtime.backend_operation_handler import DeferredFileHandler
from streamlit.runtime.media_file_manager import MediaFileManager
from streamlit.runtime.media_file_storage import MediaFileKind
from streamlit.web.server.starlette import starlette_routes

from attention import AttentionError, FileError
from pages.ui.server.limits import DOWNLOADS_MB, EXPORTS_WAITING, LARGEST_FILE_MB

KEPT = 60.0  # seconds that a file waits for its browser, and that a button works which the page has drawn anew
PATIENCE = 60.0  # seconds that a browser may be slower than `PACE`
PACE = 2**17  # bytes a second
GRACE = 20.0  # seconds that a browser has in any case, also where others need the room
_BUTTONS = 32  # of one session that are kept so; they hold what their page knows
_SENT = 2**17  # bytes in a piece

_one = asyncio.Lock()
_waiting: Counter[str] = Counter()  # files, by session
_asking: ContextVar[str] = ContextVar("asking", default="")  # the session that a file is made for
_unused: dict[str, float] = {}  # files and buttons that no page shows any more, and since when
_going: dict[asyncio.Timeout, tuple[str, float]] = {}  # what ends an answer: the file on its way, and since when


def _there(session: str) -> bool:
    return not runtime.exists() or runtime.get_instance().is_active_session(session)


def in_pieces(pieces: Callable[[], Iterable[str]]) -> Callable[[], bytes]:
    """What makes a file of these pieces, and stops when nobody waits for it any more."""

    def joined() -> bytes:
        file = BytesIO()
        for piece in pieces():
            if (session := _asking.get()) and not _there(session):
                raise FileError("A file is made for a page that is open; this one is gone: open it again.")
            if file.write(piece.encode()) and file.tell() > LARGEST_FILE_MB * 2**20:
                raise FileError(f"A file may have {LARGEST_FILE_MB} MB; this one has more: take a shorter text.")
        return file.getvalue()

    return joined


async def _made(handler: DeferredFileHandler, file_id: str, session: str) -> str:
    """The address of the file, when its turn has come.

    Raises:
        AttentionError: it is not made, and why.
    """
    if _waiting[session] >= EXPORTS_WAITING:
        raise FileError("Your files are made one after the other, and enough of them wait: click again in a moment.")
    _waiting[session] += 1
    try:
        await _one.acquire()
    finally:
        _waiting[session] -= 1
        if not _waiting[session]:
            del _waiting[session]
    try:
        if not _there(session):
            raise FileError("This page is gone: open it again.")
        manager = handler._get_media_file_mgr()
        _make_room(manager)
        if file_id not in manager._deferred_callables:
            raise FileError("The page has changed meanwhile: click again.")
        _asking.set(session)
        url = await asyncio.to_thread(manager.execute_deferred, file_id)
        _unused.pop(_id(url), None)  # one that was made before is as good as new
        manager.remove_orphaned_files()
        return url
    finally:
        _one.release()


def _make_room(manager: MediaFileManager) -> None:
    """Gives up who has been reading longest, while what is on its way takes too much room.

    Raises:
        FileError: nobody has been reading for long.
    """
    now = asyncio.get_running_loop().time()
    for limit, (_, since) in [*_going.items()]:  # the oldest first
        if _bytes(manager, {one for one, _ in _going.values()}) <= DOWNLOADS_MB * 2**20:
            return
        if now - since < GRACE:
            raise FileError("The files of others are still on their way: click again in a moment.")
        limit.reschedule(now)
        del _going[limit]


def _id(url: str) -> str:
    return url.rpartition("/")[2].partition(".")[0]


def _bytes(manager: MediaFileManager, ids: Iterable[str]) -> int:
    files = (manager.read_file(file_id) for file_id in ids)
    return sum(len(file.content) for file in files if file)


def _outdated(manager: MediaFileManager, unused: set[str]) -> set[str]:
    """Those of the unused files that need not be kept: they are old, or newer ones have taken the room."""
    now, room = monotonic(), DOWNLOADS_MB * 2**20
    going = {one for one, _ in [*_going.values()]}
    downloads = [one for one in unused if manager._file_metadata[one].kind == MediaFileKind.DOWNLOADABLE]
    since = {one: _unused.setdefault(one, now) for one in downloads}
    kept: set[str] = set()
    for one in sorted(downloads, key=since.__getitem__, reverse=True):
        room -= _bytes(manager, [one])
        if one in going or (now - since[one] < KEPT and (room >= 0 or not kept)):
            kept.add(one)
    return unused - kept


def keep_downloads() -> None:
    """From now on this process makes one file at a time, and keeps it until it has arrived."""
    inactive, handle = MediaFileManager._get_inactive_file_ids, Route.handle

    async def made(
        self: DeferredFileHandler, request: BackendOperationRequest, session_id: str
    ) -> BackendOperationResponse:
        try:
            url = await _made(self, request.deferred_file.file_id, session_id)
        except Exception as error:  # whatever making a file raises, the browser gets a sentence, and the log the rest
            why = error if isinstance(error, AttentionError) else error.__cause__  # Streamlit wraps it
            if isinstance(why, AttentionError):
                return BackendOperationResponse(request_id=request.request_id, error_msg=str(why))
            logging.getLogger(__name__).exception("a download")
            return BackendOperationResponse(request_id=request.request_id, error_msg="The file could not be made.")
        return BackendOperationResponse(
            request_id=request.request_id, deferred_file=DeferredFileResponsePayload(url=url)
        )

    @wraps(inactive)
    def outdated(self: MediaFileManager) -> set[str]:
        unused = inactive(self)
        for one in [*_unused]:
            if one not in unused and one not in self._deferred_callables:
                del _unused[one]  # it is deleted, or a page shows it again
        gone = _outdated(self, unused)
        for one in gone:
            self._file_metadata[one].mark_for_delete()  # Streamlit would wait for one more run of anybody
        return gone

    def forget_buttons(self: MediaFileManager) -> None:
        shown = {one for ids in self._files_by_session_and_coord.values() for one in ids.values()}
        now, kept = monotonic(), Counter[str]()
        for one, entry in reversed([*self._deferred_callables.items()]):  # the newest first
            if one in shown:
                _unused.pop(one, None)
                continue
            kept[session := entry["session_id"]] += 1
            if now - _unused.setdefault(one, now) > KEPT or kept[session] > _BUTTONS or not _there(session):
                self._drop_deferred_id(one)
                _unused.pop(one, None)

    @wraps(handle)
    async def sent(self: Route, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET" or not self.path.endswith(starlette_routes._ROUTE_MEDIA):
            await handle(self, scope, receive, send)
            return
        # A part of a file would be a copy of it in memory, for as long as it is not read.
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"range"]
        try:
            async with asyncio.timeout(PATIENCE) as limit:
                _going[limit] = _id(scope["path_params"]["file_id"]), asyncio.get_running_loop().time()
                await handle(self, scope, receive, _in_pieces(send, limit))
        except TimeoutError:  # nobody reads: the connection is closed by whoever finds the answer unfinished
            pass
        finally:
            _going.pop(limit, None)

    # Wrapped on purpose, see above; mypy knows of no method that may be replaced.
    DeferredFileHandler.handle = made  # type: ignore[method-assign]
    MediaFileManager._get_inactive_file_ids = outdated  # type: ignore[method-assign]
    MediaFileManager._remove_orphaned_deferred_callables = forget_buttons  # type: ignore[method-assign]
    Route.handle = sent  # type: ignore[method-assign]


def _in_pieces(send: Send, limit: asyncio.Timeout) -> Send:
    """Sends a body piece by piece, each when the one before has gone; a slow reader needs no memory then."""

    async def in_turn(message: Message) -> None:
        body = message.get("body", b"")
        for start in range(0, len(body), _SENT):
            piece = body[start : start + _SENT]
            await send(
                {**message, "body": piece, "more_body": start + _SENT < len(body) or message.get("more_body", False)}
            )
            if (until := limit.when()) is not None and not limit.expired():
                limit.reschedule(until + len(piece) / PACE)
        if not body:
            await send(message)

    return in_turn
