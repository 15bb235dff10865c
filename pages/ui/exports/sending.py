"""How a file reaches its browser: piece by piece, at a pace, and not for ever where others need the room."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Send

from attention.errors import BusyError
from pages.ui.exports.fair_queue import ENDING
from pages.ui.exports.production import Production, StoppedError
from pages.ui.server.limits import DOWNLOADS_MB

PATIENCE = 60.0  # seconds that a browser may be slower than `PACE`
PACE = 2**17  # bytes a second
GRACE = 20.0  # seconds that a browser has in any case, also where others need the room


@dataclass(eq=False)
class _Download:
    """A file that somebody waits for: since when it is sent, if it is, and what ends that."""

    file: Production
    since: float | None = None
    limit: asyncio.Timeout | None = field(default=None)


_downloads: list[_Download] = []  # the oldest first


@asynccontextmanager
async def download(file: Production) -> AsyncIterator[_Download]:
    """A file on its way; at the end nobody waits for it any more."""
    found = _Download(file)
    _downloads.append(found)
    try:
        yield found
    finally:
        _downloads.remove(found)
        file.leave()


def make_room() -> None:
    """Gives up whoever has been reading longest, while what is on its way takes too much room.

    Raises:
        BusyError: nobody has been reading for long.
    """
    now = asyncio.get_running_loop().time()
    for one in [*_downloads]:
        if sum(other.file.waiting for other in _downloads) <= DOWNLOADS_MB * 2**20:
            return
        if one.since is None:
            continue
        if now - one.since < GRACE:
            break
        one.file.leave()
        if one.limit is not None:
            one.limit.reschedule(now)
    if sum(one.file.waiting for one in _downloads) > DOWNLOADS_MB * 2**20:
        raise BusyError("The files of others are still on their way: try again in a moment.")


def end() -> None:
    """Gives up what is still being made; what is ready may arrive."""
    for one in [*_downloads]:
        if not one.file.ended:
            one.file.leave(BusyError(ENDING))


async def send_file(send: Send, one: _Download, status: int, headers: Mapping[str, str]) -> None:
    """Sends headers, and the file piece by piece, each when the one before has gone.

    Raises:
        StoppedError: nobody reads it.
        Exception: it could not be made to its end.
    """
    clock, allowed = asyncio.get_running_loop().time, PATIENCE
    one.since = clock()
    await begin(send, status, headers)
    while piece := await one.file.take():
        began = clock()
        try:
            async with asyncio.timeout(allowed) as one.limit:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            raise StoppedError from None
        one.limit = None
        allowed += len(piece) / PACE - (clock() - began)
    await send({"type": "http.response.body", "body": b""})


async def begin(send: Send, status: int, headers: Mapping[str, Any]) -> None:
    """Sends the head of an answer."""
    encoded = [(key.lower().encode("latin-1"), str(value).encode("latin-1")) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
