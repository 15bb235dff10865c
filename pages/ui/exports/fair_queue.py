"""A fair queue for long work: waiting visitors get its few slots in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

from attention.errors import BusyError

SHUTTING_DOWN = "This server is shutting down, and another one replaces it: try again in a moment."


class QueueFullError(BusyError):
    """A visitor has too many waiting requests."""


class FairQueue:
    """A round-robin queue. Each visitor has a line of requests; after each request a visitor's line moves to the end."""

    def __init__(self, slots: int) -> None:
        self._free = slots
        self._closed = False
        self._lines: dict[Hashable, deque[asyncio.Future[None]]] = {}

    def waiting(self, visitor: Hashable) -> int:
        """The number of waiting requests of a visitor."""
        return len(self._lines.get(visitor, ()))

    async def acquire(self, visitor: Hashable, most: int) -> None:
        """Waits for a slot. Call `release` afterwards, in the thread of the event loop.

        Raises:
            QueueFullError: `most` requests of this visitor are already waiting.
            BusyError: the queue is closed.
        """
        if self._closed:
            raise BusyError(SHUTTING_DOWN)
        if self._free:
            self._free -= 1
            return
        if self.waiting(visitor) >= most:
            raise QueueFullError(
                f"At most {most} of your files may wait, since files are made one after the other; got one more: try again in a moment."
            )
        slot: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(visitor, deque())
        line.append(slot)
        try:
            await slot
        except asyncio.CancelledError:
            if slot.done() and not slot.cancelled() and slot.exception() is None:
                self.release()  # the slot was granted at the same moment
            elif slot in line:
                line.remove(slot)
                if not line:
                    del self._lines[visitor]
            raise

    def close(self) -> None:
        """Refuses all waiting and future requests."""
        self._closed = True
        for slot in [slot for line in self._lines.values() for slot in line if not slot.done()]:
            slot.set_exception(BusyError(SHUTTING_DOWN))
        self._lines.clear()

    def release(self) -> None:
        """Gives the slot to the next visitor."""
        while self._lines:
            visitor = next(iter(self._lines))
            line = self._lines.pop(visitor)
            slot = line.popleft()
            if line:
                self._lines[visitor] = line
            if not slot.done():
                slot.set_result(None)
                return
        self._free += 1
