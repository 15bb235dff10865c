"""Sends files to browsers piece by piece, with a minimum pace, and drops slow downloads when memory is short."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import Send

from attention.errors import BusyError
from pages.ui.exports.fair_queue import SHUTTING_DOWN
from pages.ui.exports.production import ClientLeftError, Production
from pages.ui.server.limits import DOWNLOADS_MB

PATIENCE = 60.0  # seconds that a browser may be slower than `PACE`
PACE = 2**17  # bytes a second
GRACE = 20.0  # seconds for which no download is dropped


@dataclass(eq=False)
class _Download:
    """A download.

    Attributes:
        file: the file in production.
        since: the start time of sending; None before.
        limit: the timeout of the current piece.
    """

    file: Production
    since: float | None = None
    limit: asyncio.Timeout | None = field(default=None)


_downloads: list[_Download] = []  # the oldest first


@asynccontextmanager
async def download(file: Production) -> AsyncIterator[_Download]:
    """Registers a download; cancels its production at the end."""
    registered = _Download(file)
    _downloads.append(registered)
    try:
        yield registered
    finally:
        _downloads.remove(registered)
        file.cancel()


def make_room() -> None:
    """Drops the oldest downloads while all unsent bytes together exceed `DOWNLOADS_MB`.

    Raises:
        BusyError: all downloads are younger than `GRACE`.
    """
    now = asyncio.get_running_loop().time()
    for active in [*_downloads]:
        if sum(other.file.waiting for other in _downloads) <= DOWNLOADS_MB * 2**20:
            return
        if active.since is None:
            continue
        if now - active.since < GRACE:
            break
        active.file.cancel()
        if active.limit is not None:
            active.limit.reschedule(now)
    if sum(active.file.waiting for active in _downloads) > DOWNLOADS_MB * 2**20:
        raise BusyError("This server is still sending other files: try again in a moment.")


def cancel_unfinished() -> None:
    """Cancels unfinished files at shutdown; finished ones are still sent."""
    for active in [*_downloads]:
        if not active.file.ended:
            active.file.cancel(BusyError(SHUTTING_DOWN))


async def send_file(send: Send, download: _Download, status: int, headers: Mapping[str, str]) -> None:
    """Sends the headers and then the file piece by piece.

    Raises:
        ClientLeftError: the client reads too slowly.
        Exception: the exception of the file's production.
    """
    clock, allowed = asyncio.get_running_loop().time, PATIENCE
    download.since = clock()
    await begin(send, status, headers)
    while piece := await download.file.take():
        began = clock()
        try:
            async with asyncio.timeout(allowed) as download.limit:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            raise ClientLeftError from None
        download.limit = None
        allowed += len(piece) / PACE - (clock() - began)
    await send({"type": "http.response.body", "body": b""})


async def begin(send: Send, status: int, headers: Mapping[str, Any]) -> None:
    """Sends the status and the headers of an answer."""
    encoded = [(key.lower().encode("latin-1"), str(value).encode("latin-1")) for key, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": encoded})
