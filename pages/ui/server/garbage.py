"""Limits the log of unreadable socket messages to one line a minute, without tracebacks.

Streamlit closes a socket that sends unreadable bytes and logs a traceback for each message; a text message makes it fail.
No part of Streamlit is patched: a filter limits its loggers, and a middleware closes sockets that send text.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.logger import get_logger

PAUSE = 60.0  # seconds between two lines
_TEXT = "A socket received a text message; it accepts only binary messages."
_FAILED = "Error processing back message"  # a readable message: the first one in a minute keeps its traceback
_UNSUPPORTED = 1003  # WebSocket close code: unsupported data
_UNREADABLE = frozenset(
    {
        _TEXT,
        "Error deserializing back message",
        _FAILED,
        'No handler for "%s"',
        "Client tried to disconnect websocket when not in development mode or e2e testing.",
        "Client tried to shut down runtime when not in development mode or e2e testing.",
        "Client WebSocket message size %s bytes exceeds the limit of %s bytes; closing connection.",
    }
)
"""The format strings that Streamlit 1.67 logs for unreadable messages. `benchmarks/garbage.py` sends such messages."""
_LOGGERS = ("streamlit.web.server.starlette.starlette_websocket", "streamlit.runtime.app_session", __name__)


class OneLineAMinute(logging.Filter):
    """A log filter that passes one line a minute about unreadable messages, with their number and the last one."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._lock = clock, Lock()
        self._count, self._next = 0, float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether to log the record. Adds the count to a record that is logged."""
        if record.msg not in _UNREADABLE:
            return True
        with self._lock:
            self._count += 1
            now = self._clock()
            if now < self._next:
                return False
            count, self._count, self._next = self._count, 0, now + PAUSE
        if record.msg != _FAILED:
            record.exc_info = None
        record.msg = (
            f"{count} unreadable socket messages since the last line like this; the last: {record.getMessage()}"
        )
        record.args = ()
        return True


class BinaryOnly:
    """Middleware that closes a socket when it sends text."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards everything except text messages of sockets."""

        async def receive_bytes() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive" or message.get("bytes") is not None:
                return message
            get_logger(__name__).warning(_TEXT)
            await send({"type": "websocket.close", "code": _UNSUPPORTED})
            return {"type": "websocket.disconnect", "code": _UNSUPPORTED}

        await self.app(scope, receive_bytes if scope["type"] == "websocket" else receive, send)


def bound_log() -> None:
    """Installs the log filter for unreadable messages."""
    log_filter = OneLineAMinute()
    for name in _LOGGERS:
        get_logger(name).addFilter(log_filter)
