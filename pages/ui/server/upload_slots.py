"""The upload URLs that each session was given; uploads to any other URL are refused (`uploads.py`).

A page requests upload URLs over its socket in a message of Streamlit's protocol, and the answer contains them. A middleware reads both.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import runtime
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

UPLOAD_URL = re.compile(r"/_stcore/upload_file/([^/]+)/([^/]+)$")
"""The path of an upload URL: a session id and a file id."""
MOST = 16
"""Upload URLs of one session at a time."""
_LONGEST_ANSWER = 2**16  # bytes of a message with upload URLs

_urls: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=MOST))  # files by session


def register(session: str, file: str) -> None:
    """Registers an upload URL."""
    _urls[session].append(file)


def consume(session: str, file: str) -> bool:
    """Whether the session was given this upload URL. Each URL is valid once."""
    if is_known := file in _urls.get(session, ()):
        _urls[session].remove(file)
    return is_known


class UploadUrls:
    """Middleware that registers the upload URLs of active sessions."""

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
    matches = (UPLOAD_URL.search(file.upload_url) for file in answer.file_urls)
    return [(match[1], match[2]) for match in matches if match]
