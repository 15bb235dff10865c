"""What no page of ours sends over its socket costs the log one line a minute, and no traceback.

Streamlit closes the socket of whoever sends bytes that it cannot read, and logs a traceback for each; of a text it fails.
Nothing of it is replaced for this: loggers take filters, and a middleware closes the socket of a text.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Lock

from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.logger import get_logger

PAUSE = 60.0  # seconds between two lines
_TEXT = "A text came over a socket, which takes binary messages alone."
_FAILED = "Error processing back message"  # one that could be read: the first in a minute keeps its traceback
_UNSUPPORTED = 1003  # the code with which a socket is closed
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
"""What Streamlit 1.67 logs of messages that it cannot read, as its format strings; `benchmarks/garbage.py` sends them."""
_LOGGERS = ("streamlit.web.server.starlette.starlette_websocket", "streamlit.runtime.app_session", __name__)


class OneLineAMinute(logging.Filter):
    """Lets one line through a minute of those about messages that cannot be read: how many came, and the last."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._lock = clock, Lock()
        self._count, self._next = 0, float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the record is logged; one that is has the count in it."""
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
            f"{count} unreadable messages over sockets since the last such line; the last: {record.getMessage()}"
        )
        record.args = ()
        return True


class BinaryOnly:
    """Closes the socket of whoever sends a text."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands everything on but texts over a socket."""

        async def receive_bytes() -> Message:
            message = await receive()
            if message["type"] != "websocket.receive" or message.get("bytes") is not None:
                return message
            get_logger(__name__).warning(_TEXT)
            await send({"type": "websocket.close", "code": _UNSUPPORTED})
            return {"type": "websocket.disconnect", "code": _UNSUPPORTED}

        await self.app(scope, receive_bytes if scope["type"] == "websocket" else receive, send)


def bound_log() -> None:
    """From now on messages that cannot be read cost the log one line a minute."""
    one_line = OneLineAMinute()
    for name in _LOGGERS:
        get_logger(name).addFilter(one_line)
