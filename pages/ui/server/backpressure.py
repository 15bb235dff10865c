"""Limits the memory of unread messages of all sockets together (backpressure).

Streamlit queues 500 messages for each socket, about seven runs of a page: up to 10 MB with a table, for every client that opens a
socket and does not read. It has no setting for that, so this middleware accepts each message at once and queues it
itself. When all queues together are too large, it closes the socket with the largest one. A page that was only slow reconnects.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.ui.server.limits import UNREAD_MB

_MOST = 500  # messages of one socket, as many as Streamlit keeps
_CLOSING = 5.0  # seconds for the last message to a socket that reads nothing
_TRY_LATER = 1013  # WebSocket close code: try again later


class Backpressure:
    """Middleware that limits the unread bytes of all sockets together."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._sockets: set[_Socket] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forwards requests; sockets get a limited queue."""
        if scope["type"] != "websocket":
            await self.app(scope, receive, send)
            return
        socket = _Socket(receive, send)
        self._sockets.add(socket)

        async def send_bounded(message: Message) -> None:
            await socket.send(message)
            self._bound()

        try:
            await self.app(scope, socket.receive, send_bounded)
        finally:
            await socket.end()
            self._sockets.discard(socket)

    def _bound(self) -> None:
        while sum(socket.unread for socket in self._sockets) > UNREAD_MB * 2**20:
            max(self._sockets, key=lambda socket: socket.unread).give_up()


class _Socket:
    """A socket with its own send queue.

    Attributes:
        unread: bytes in the queue, including the message being sent.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._queue: deque[Message] = deque()
        self._queued = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._receiving: asyncio.Timeout | None = None
        self._closed = False  # accepts no more messages
        self._given_up = False  # closed because the client does not read
        self.unread = 0

    async def send(self, message: Message) -> None:
        """Queues a message. A message that opens or closes the socket is sent at once if the queue is empty.

        Raises:
            OSError: the socket is closed.
        """
        if self._closed:
            raise OSError("the socket is closed")
        self._closed = message["type"] == "websocket.close"
        if message["type"] != "websocket.send" and not self._queue:
            await self._send(message)
            return
        self._queue.append(message)
        self.unread += _size(message)
        self._queued.set()
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_queue())
        if len(self._queue) > _MOST:
            self.give_up()

    async def _send_queue(self) -> None:
        with suppress(OSError):  # the browser has gone
            while self._queue or not self._closed:
                while self._queue:
                    await self._send(self._queue[0])
                    self.unread -= _size(self._queue.popleft())
                self._queued.clear()
                if not self._closed:
                    await self._queued.wait()
        self._close()

    async def receive(self) -> Message:
        """The next message of the browser, or a disconnect message if the socket was given up."""
        message: Message = {"type": "websocket.disconnect", "code": _TRY_LATER}
        if not self._given_up:
            try:
                async with asyncio.timeout(None) as self._receiving:
                    message = await self._receive()
            except TimeoutError:
                pass
            finally:
                self._receiving = None
        if message["type"] == "websocket.disconnect":
            self._close()
        return message

    def give_up(self) -> None:
        """Drops the queue and reports to the app that the browser has disconnected."""
        self._close()
        self._given_up = True
        if self._sender is not None:
            self._sender.cancel()
        if self._receiving is not None:
            self._receiving.reschedule(asyncio.get_running_loop().time())

    def _close(self) -> None:
        self._closed = True
        self._queue.clear()
        self.unread = 0

    async def end(self) -> None:
        """Sends the queue, or the close code if the socket was given up. Takes at most `_CLOSING` seconds."""
        self._closed = True
        self._queued.set()
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(_CLOSING):
                if self._given_up:
                    await self._send({"type": "websocket.close", "code": _TRY_LATER})
                elif self._queue and self._sender is not None:
                    await asyncio.wait({self._sender})
        if self._sender is not None:
            self._sender.cancel()


def _size(message: Message) -> int:
    return len(message.get("bytes") or message.get("text") or b"")
