"""What pages have not read yet is bounded, for all sockets together.

Streamlit queues 500 messages for each socket, some seven runs of a page: with a table in it 10 MB, for everybody who opens a
socket and reads nothing. It has no setting for that, so this middleware takes each message from it at once and keeps the queue
itself. When all queues are too much, the fullest socket is closed; a page that was only slow connects again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.ui.server.limits import UNREAD_MB

_MOST = 500  # messages of one socket, as many as Streamlit keeps
_CLOSING = 5.0  # seconds for the last message to a socket that reads nothing
_TRY_LATER = 1013  # the code with which a socket is closed


class BoundedUnread:
    """Bounds what all sockets have not read."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app
        self._sockets: set[_Socket] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hands on what is no socket."""
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
        while sum(one.unread for one in self._sockets) > UNREAD_MB * 2**20:
            max(self._sockets, key=lambda one: one.unread).give_up()


class _Socket:
    """A socket with a queue of its own.

    Attributes:
        unread: bytes in the queue, with the message on its way.
    """

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._queue: deque[Message] = deque()
        self._queued = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._receiving: asyncio.Timeout | None = None
        self._closed = self._given_up = False  # no more messages; because nobody reads them
        self.unread = 0

    async def send(self, message: Message) -> None:
        """Queues a message; one that opens or closes the socket is sent at once where nothing waits before it.

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
        """The next message of the browser, or that a socket which was given up has gone."""
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
        """Forgets what is queued, and tells the app that the browser has gone."""
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
        """Sends what is queued, or, to a socket that was given up, why it is closed; no longer than `_CLOSING`."""
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
