"""Which places for files the page of each session was given: an upload to any other is refused (`uploads.py`).

A page asks for places over its socket, in a message of Streamlit's protocol, and gets them in another; a middleware reads both.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import runtime
from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg

PLACE = re.compile(r"/_stcore/upload_file/([^/]+)/([^/]+)$")
"""The path of a place: a session and a file of it."""
MOST = 16
"""Places that a session has at a time."""
_LONGEST_ANSWER = 2**16  # bytes of a message with places

_places: defaultdict[str, deque[str]] = defaultdict(lambda: deque(maxlen=MOST))  # files by session


def add(session: str, file: str) -> None:
    """Notes a place."""
    _places[session].append(file)


def take(session: str, file: str) -> bool:
    """Whether the session was given this place; it is taken once."""
    if there := file in _places.get(session, ()):
        _places[session].remove(file)
    return there


class NotedPlaces:
    """Notes the places that sessions are given, as long as they are active."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands everything on; a message that asks for many places asks for `MOST`."""
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return

        async def receive_few() -> Message:
            message = await receive()
            return {**message, "bytes": _with_few_names(message["bytes"])} if message.get("bytes") else message

        async def send_noted(message: Message) -> None:
            for session, file in _places_in(message.get("bytes") or b""):
                add(session, file)
            await send(message)

        try:
            await self.app(scope, receive_few, send_noted)
        finally:
            for session in [one for one in _places if not runtime.get_instance().is_active_session(one)]:
                del _places[session]


def _with_few_names(message: bytes) -> bytes:
    """A message of a page; one that asks for places for files asks for `MOST`."""
    try:
        asks = BackMsg.FromString(message)
    except DecodeError:
        return message  # of which Streamlit says so
    if len(asks.file_urls_request.file_names) <= MOST:
        return message
    del asks.file_urls_request.file_names[MOST:]
    return bytes(asks.SerializeToString())


def _places_in(message: bytes) -> list[tuple[str, str]]:
    """The places for files in a message to a page, each a session and a file of it."""
    if len(message) > _LONGEST_ANSWER or b"/_stcore/upload_file/" not in message:
        return []
    answer = ForwardMsg.FromString(message).file_urls_response
    places = (PLACE.search(one.upload_url) for one in answer.file_urls)
    return [(place[1], place[2]) for place in places if place]
