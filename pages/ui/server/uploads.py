"""Limits uploads: only files that a page has requested, and within the memory for the files that stay.

Streamlit accepts a file under any name from any client that knows a session id, keeps it as long as the session, and limits only
the size of one file. It has no setting for that, so a middleware handles uploads before Streamlit does; a form is parsed in
memory, without a temporary file. What has not arrived completely is counted and limited in `in_flight`, as every body is.

`read` has one rule for every kind of file: by what reading it is estimated to take, it is read in the turn of the script run, or in a job.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar
from weakref import WeakValueDictionary

import streamlit as st
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]  # protobuf has no annotation
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import runtime
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.memory_uploaded_file_manager import MemoryUploadedFileManager
from streamlit.runtime.scriptrunner import get_script_run_ctx
from streamlit.runtime.uploaded_file_manager import DeletedFile, UploadedFile

from attention.base.errors import BusyError, FileError
from attention.files.reading_cost import ReadingCost
from pages.ui.server import heavy
from pages.ui.server.in_flight import address_of, whole_body
from pages.ui.server.limits import UPLOADED_MB, UPLOADED_MB_OF_ADDRESS, UPLOADED_MB_OF_ONE

_Result = TypeVar("_Result")

_MOST = 16  # upload URLs of one session at a time
_GONE = "This server no longer has the uploaded file: upload it again."
_NO_ROOM = "This server has no room for more files now: try again in a minute."
_ADVICE = "Save a smaller file"
_UPLOAD_URL = re.compile(r"/_stcore/upload_file/([^/]+)/([^/]+)$")
"""The path of an upload URL: a session id and a file id."""
_LONGEST_NAME = 200  # characters of a file's name in the address
_LONGEST_ANSWER = 2**16  # bytes of a message with upload URLs
_LONGEST_HEAD = 2**13  # bytes before the file: the boundary and the headers of the part


class _Visitor(NamedTuple):
    address: str
    files: deque[str]


_visitors: dict[str, _Visitor] = {}  # by session
# By session and place; the session itself owns the files.
_session_files: WeakValueDictionary[tuple[str, str], _Kept] = WeakValueDictionary()


def _register(session: str, file: str, address: str) -> None:
    """Registers an upload URL that was given to a session, whose page is open at this address."""
    _visitors.setdefault(session, _Visitor(address, deque(maxlen=_MOST))).files.append(file)


def _consume(session: str, file: str) -> bool:
    """Whether the session was given this upload URL. Each URL is valid once."""
    if is_known := session in _visitors and file in _visitors[session].files:
        _visitors[session].files.remove(file)
    return is_known


def _with_few_names(message: bytes) -> bytes:
    """The message with at most `_MOST` requested upload URLs."""
    try:
        request = BackMsg.FromString(message)
    except DecodeError:
        return message  # Streamlit reports the error
    if len(request.file_urls_request.file_names) <= _MOST:
        return message
    del request.file_urls_request.file_names[_MOST:]
    return bytes(request.SerializeToString())


def _urls_in(message: bytes) -> list[tuple[str, str]]:
    """The upload URLs in a message to a page, as pairs of session id and file id."""
    if len(message) > _LONGEST_ANSWER or b"/_stcore/upload_file/" not in message:
        return []
    answer = ForwardMsg.FromString(message).file_urls_response
    matches = (_UPLOAD_URL.search(file.upload_url) for file in answer.file_urls)
    return [(match[1], match[2]) for match in matches if match]


class _Kept(Protocol):
    """What a session keeps of an uploaded file."""

    @property
    def nbytes(self) -> int: ...


class _Waiting:
    """A file that is in line to be read."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes


class _RefusedError(Exception):
    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


def _manager() -> MemoryUploadedFileManager:
    manager = runtime.get_instance().uploaded_file_mgr
    assert isinstance(manager, MemoryUploadedFileManager)
    return manager


def _sizes(manager: MemoryUploadedFileManager) -> Counter[str]:
    """The bytes of the files of each session that has or had some, in Streamlit's store and in ours."""
    sizes = Counter(_session_file_sizes())
    for session, files in [*manager.file_storage.items()]:
        sizes[session] += sum(len(file.data) for file in [*files.values()])
    return sizes


def _check_room(session: str, size: int, manager: MemoryUploadedFileManager) -> None:
    """Raises _RefusedError if the memory for uploads is not enough for one more file of this session."""
    sizes = _sizes(manager)
    address = _visitors[session].address if session in _visitors else ""
    if sizes[session] + size > UPLOADED_MB_OF_ONE * 2**20:
        raise _RefusedError(
            413,
            f"A page may have at most {UPLOADED_MB_OF_ONE} MB of files, and this one would exceed that: remove another file first.",
        )
    of_address = sum(sizes[other] for other, visitor in _visitors.items() if visitor.address == address)
    if of_address + size > UPLOADED_MB_OF_ADDRESS * 2**20 or sizes.total() + size > UPLOADED_MB * 2**20:
        raise _RefusedError(429, _NO_ROOM)


def content(file: UploadedFile | DeletedFile) -> bytes:
    """The bytes of an uploaded file. It can be read once; its memory is then free for other uploads.

    Raises:
        FileError: this server does not have the file.
    """
    if isinstance(file, DeletedFile):
        raise FileError(_GONE)
    data = file.getvalue()
    if (context := get_script_run_ctx()) and isinstance(context.uploaded_file_mgr, MemoryUploadedFileManager):
        session, manager = context.session_id, context.uploaded_file_mgr
        for record in manager.get_files(session, [file.file_id]):
            manager.add_file(session, record._replace(data=b""))
    file.truncate(0)  # the session state still references this object
    return data


def shortened(name: str, longest: int = _LONGEST_NAME) -> str:
    """A file name short enough for an address, or another place, with its extension."""
    return name if len(name) <= longest else f"{name[: longest // 2]}…{name[-longest // 2 :]}"


def read(function: Callable[..., _Result], content: bytes, *args: Any, cost: ReadingCost, words: str) -> _Result:
    """What a function makes of the bytes of a file: in the turn of this script run if that is light, so that one is read at a time, and else in a job.

    Args:
        function: at the top of a module that does not import Streamlit.
        content: of the file.
        args: what pickle can copy.
        cost: what reading it is estimated to take.
        words: what happens, for the visitor, such as "Reading the series".

    Raises:
        AttentionError: the function raised it, or as for `heavy.in_process`.
    """
    if cost.is_light:
        return function(content, *args)
    waiting = _Waiting(len(content))
    count_file(waiting, f"waiting {id(waiting)}")
    return heavy.in_process(function, content, *args, words=words, advice=_ADVICE)


def count_file(file: _Kept, place: str = "file") -> None:
    """Counts this file of the session as one of its uploads, instead of the previous one of the same `place`.

    Raises:
        BusyError: it takes more memory than there is for uploads, such as after it was unpacked; it is then not counted, and not to be kept.
    """
    if not (context := get_script_run_ctx()):
        return
    key = context.session_id, place
    before = _session_files.pop(key, None)
    try:
        if isinstance(context.uploaded_file_mgr, MemoryUploadedFileManager):
            _check_room(context.session_id, file.nbytes, context.uploaded_file_mgr)
    except _RefusedError as error:
        if before is not None:
            _session_files[key] = before
        raise BusyError(str(error)) from None
    _session_files[key] = file


def _session_file_sizes() -> dict[str, int]:
    sizes: Counter[str] = Counter()
    for (session, _), file in [*_session_files.items()]:
        sizes[session] += file.nbytes
    return dict(sizes)


async def bounded_uploads(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Middleware that registers the upload URLs of active sessions, and accepts uploads to them within the limits.

    A page requests upload URLs over its socket in a message of Streamlit's protocol, and the answer contains them: both are read.
    """
    if scope["type"] == "websocket":
        await _connect(app, scope, receive, send)
        return
    place = _UPLOAD_URL.search(scope["path"]) if scope["type"] == "http" and scope["method"] == "PUT" else None
    if place is None or not runtime.get_instance().is_active_session(place[1]):
        await app(scope, receive, send)  # Streamlit refuses an upload without a session
        return
    try:
        most = st.get_option("server.maxUploadSize")
        form = await whole_body(scope, receive, most * 2**20 + _LONGEST_HEAD)
        if form is None:
            raise _RefusedError(413, f"A file has at most {most} MB; got more: upload a smaller one.")
        answer = await _store(app, place[1], place[2], form, scope)
    except ClientDisconnect:  # no client to answer
        return
    except _RefusedError as error:
        await PlainTextResponse(str(error), error.status, {"Connection": "close"})(scope, receive, send)
        return
    for message in answer:
        await send(message)


async def _connect(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    async def receive_few() -> Message:
        message = await receive()
        return {**message, "bytes": _with_few_names(message["bytes"])} if message.get("bytes") else message

    async def send_noted(message: Message) -> None:
        for session, file in _urls_in(message.get("bytes") or b""):
            _register(session, file, address_of(scope))
        await send(message)

    try:
        await app(scope, receive_few, send_noted)
    finally:
        kept = _sizes(_manager())  # also of sessions whose page may come back
        for session in [session for session in _visitors if session not in kept]:
            if not runtime.get_instance().is_active_session(session):
                del _visitors[session]


async def _store(app: ASGIApp, session: str, file: str, form: bytes, scope: Scope) -> list[Message]:
    """The answer of Streamlit to the upload with an empty file, to which the content is added where there is room.

    Streamlit would store a file of more than 1 MB in the temporary folder until it is complete.
    """
    if not _consume(session, file):
        raise _RefusedError(404, "This upload address is unknown or already used: upload the file again.")
    if (parts := _form_parts(form)) is None:
        raise _RefusedError(400, "An upload must be a form with one file; got something else: send only the file.")
    head, content, tail = parts
    answer: list[Message] = []

    async def receive_empty() -> Message:
        return {"type": "http.request", "body": head + tail, "more_body": False}

    async def collect(message: Message) -> None:
        answer.append(message)

    await app(scope, receive_empty, collect)
    manager = _manager()
    for taken in manager.get_files(session, [file]):  # none where Streamlit refuses the upload
        try:
            _check_room(session, len(content), manager)  # nobody else's file is stored before this one
        except _RefusedError:
            manager.remove_file(session, file)
            raise
        manager.add_file(session, taken._replace(data=content))
    return answer


def _form_parts(form: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The bytes before the file, of the file, and after it; None if the body is not a form with one file."""
    boundary = b"\r\n" + form[:_LONGEST_HEAD].partition(b"\r\n")[0]
    start = form.find(b"\r\n\r\n", 0, _LONGEST_HEAD) + 4
    end = form.find(boundary, start)
    if start < 4 or end < 0 or form[end + len(boundary) :].rstrip() != b"--":
        return None
    return form[:start], form[start:end], form[end:]
