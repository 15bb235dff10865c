"""A queue for long work: a few places, which the visitors who wait get in turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Hashable

from attention.errors import BusyError

ENDING = "This server is about to end, and another takes its place: try again in a moment."


class LineFullError(BusyError):
    """A visitor has enough requests that wait."""


class FairQueue:
    """Places for requests. Each visitor has a line; whoever has waited longest is served, and then their line goes to the end."""

    def __init__(self, places: int) -> None:
        self._free = places
        self._closed = False
        self._lines: dict[Hashable, deque[asyncio.Future[None]]] = {}

    def waiting(self, visitor: Hashable) -> int:
        """How many requests of a visitor wait."""
        return len(self._lines.get(visitor, ()))

    async def acquire(self, visitor: Hashable, most: int) -> None:
        """Waits for a place; `release` returns it, from the thread of the event loop.

        Raises:
            LineFullError: `most` requests of this visitor wait already.
            BusyError: the queue is closed.
        """
        if self._closed:
            raise BusyError(ENDING)
        if self._free:
            self._free -= 1
            return
        if self.waiting(visitor) >= most:
            raise LineFullError(
                "Your files are made one after the other, and enough of them wait: try again in a moment."
            )
        call: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line = self._lines.setdefault(visitor, deque())
        line.append(call)
        try:
            await call
        except asyncio.CancelledError:
            if call.done() and not call.cancelled() and call.exception() is None:
                self.release()  # the place came at the same moment
            elif call in line:
                line.remove(call)
                if not line:
                    del self._lines[visitor]
            raise

    def close(self) -> None:
        """Refuses whoever waits, and whoever comes."""
        self._closed = True
        for call in [call for line in self._lines.values() for call in line if not call.done()]:
            call.set_exception(BusyError(ENDING))
        self._lines.clear()

    def release(self) -> None:
        """Hands the place to the next visitor."""
        while self._lines:
            visitor = next(iter(self._lines))
            line = self._lines.pop(visitor)
            call = line.popleft()
            if line:
                self._lines[visitor] = line
            if not call.done():
                call.set_result(None)
                return
        self._free += 1
