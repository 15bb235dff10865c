"""One budget for what strangers make the server hold: parts of socket messages, bodies of requests, and messages and files that no browser has read.

Whoever holds most loses it first: within an address when that address exceeds its share, and else within the address that holds most.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pages.ui.server import scheduler
from pages.ui.server.limits import IN_FLIGHT_MB, IN_FLIGHT_MB_OF_ADDRESS

SECONDS = 10.0
"""In which a message or a body must be complete, or go on by `_PROGRESS`."""
_PROGRESS = 2**16  # bytes


class Budget:
    """The bytes that all visitors together, and one address, may make the server hold.

    Attributes:
        total: the bytes that are held.
    """

    def __init__(self, most: int, most_of_address: int) -> None:
        self._most, self._most_of_address = most, most_of_address
        self._of_address = Counter[str]()
        self._parts: dict[Part, None] = {}  # the oldest first
        self.total = 0

    def bound(self, grown: Part) -> None:
        """Drops the largest parts until all are within the budget."""
        while self._of_address[grown.address] > self._most_of_address:
            self._largest(grown.address).drop()
        while self.total > self._most:
            address, _ = max(self._of_address.items(), key=lambda item: item[1])
            self._largest(address).drop()

    def count(self, part: Part, change: int) -> None:
        """Counts a change of the size of a part."""
        self.total += change
        self._of_address[part.address] += change
        if part.size:
            self._parts[part] = None
            return
        self._parts.pop(part, None)
        if not self._of_address[part.address]:
            del self._of_address[part.address]

    def _largest(self, address: str) -> Part:
        newest_first = (part for part in reversed(self._parts) if part.address == address)
        return max(newest_first, key=lambda part: part.size)


BUDGET = Budget(IN_FLIGHT_MB * 2**20, IN_FLIGHT_MB_OF_ADDRESS * 2**20)


class Part:
    """What one connection makes the server hold.

    Attributes:
        address: the visitor's address.
        size: bytes.
    """

    def __init__(self, address: str, on_drop: Callable[[], None], budget: Budget = BUDGET) -> None:
        self.address, self.size = address, 0
        self._budget, self._on_drop = budget, on_drop

    def resize(self, size: int) -> None:
        """Counts this size from now on. Drops what is too much, which may be this part."""
        change, self.size = size - self.size, size
        self._budget.count(self, change)
        if change > 0:
            self._budget.bound(self)

    def drop(self) -> None:
        """Ends what is held."""
        self.resize(0)
        self._on_drop()


def address_of(scope: Scope) -> str:
    """The address of the visitor who sent a request or opened a socket."""
    peer = scope["client"][0] if scope.get("client") else ""
    return scheduler.request_address(peer, ",".join(Headers(scope=scope).getlist("X-Forwarded-For")))


def _declared_bytes(scope: Scope) -> int:
    """The length of its body that a request declares; 0 if it declares none."""
    length = Headers(scope=scope).get("Content-Length", "")
    return int(length) if length.isdecimal() and len(length) < 16 else 0


class Deadline:
    """Drops a part that is awaited too long without progress.

    Attributes:
        expired: whether it did.
    """

    expired = False

    def __init__(self, part: Part) -> None:
        self._part, self._loop = part, asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._began = self._waited = 0.0
        self._reached = 0

    def begin(self) -> None:
        """Waits for more bytes from now on."""
        if self._timer is None:
            self._began = self._loop.time()
            self._timer = self._loop.call_later(SECONDS - self._waited, self._expire)

    def stop(self, arrived: int = 0) -> None:
        """Waits no more: so many bytes have arrived of a message, 0 if it is complete."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
            self._waited += self._loop.time() - self._began
        if not arrived or arrived >= self._reached + _PROGRESS:
            self._waited, self._reached = 0.0, arrived

    def _expire(self) -> None:
        self.expired = True
        self._part.drop()


async def whole_body(scope: Scope, receive: Receive, most: int) -> bytes | None:
    """The whole body of a request; None if it has more than `most` bytes, of which no more are read.

    Raises:
        ClientDisconnect: the client left before the end of the body.
    """
    body, more = bytearray(), True
    while more:
        if max(_declared_bytes(scope), len(body)) > most:
            return None
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return bytes(body) if len(body) <= most else None


async def bounded_bodies(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Middleware that counts the bodies of requests until they are answered, and refuses those that are too much or too slow."""
    if scope["type"] != "http" or scope["method"] in ("GET", "HEAD"):
        await app(scope, receive, send)
        return
    begun, complete, arrived = False, False, 0
    declared = _declared_bytes(scope)
    dropped = asyncio.Event()
    task = asyncio.current_task()
    assert task is not None

    def drop() -> None:
        dropped.set()
        task.cancel()

    part = Part(address_of(scope), drop)
    deadline = Deadline(part)

    async def receive_counted() -> Message:
        nonlocal complete, arrived
        if complete:
            return await receive()  # that the client leaves
        part.resize(max(part.size, declared))  # before a byte of it is read
        deadline.begin()
        message = await receive()
        arrived += len(message.get("body", b""))
        part.resize(max(arrived, declared))
        deadline.stop(arrived)
        complete = not message.get("more_body", False)
        return message

    async def send_noted(message: Message) -> None:
        nonlocal begun
        begun = True
        await send(message)

    try:
        await app(scope, receive_counted, send_noted)
    except asyncio.CancelledError:
        if not dropped.is_set():
            raise
        task.uncancel()
        if not begun:
            status, sentence = (
                (408, "The upload has stalled and was stopped: send it again.")
                if deadline.expired
                else (429, "This server has no room for more now: try again in a minute.")
            )
            await PlainTextResponse(sentence, status, {"Connection": "close"})(scope, receive, send)
    finally:
        deadline.stop()
        part.resize(0)
