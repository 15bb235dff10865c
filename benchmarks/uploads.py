"""Uploads that nobody has room for: under invented names, too many, too slow. Each must end in a refusal, and others go on."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

from benchmarks.server import Server
from benchmarks.session import Session
from benchmarks.wire import http, multipart

LARGE = 15 * 2**20  # bytes of one file; the server takes 16 MB
SMALL = b"1,0\n0,1\n"
FIELD = "matrices_file_x"
MATRICES = "source=matrices"


async def invented(server: Server, files: int = 49) -> list[int]:
    """Large files under names that nobody has handed out: their statuses."""
    body, kind = multipart("x.csv", b"1" * LARGE)
    async with Session(server.base, MATRICES) as one:
        await one.open()
        place = f"{server.base}/_stcore/upload_file/{one.id}"
        return [
            await asyncio.to_thread(http, "PUT", f"{place}/{i}", body, {"Content-Type": kind}, one.xsrf)
            for i in range(files)
        ]


async def too_many(server: Server, people: int = 12, files: int = 3) -> list[int]:
    """Each of these people uploads large files, all at once: their statuses."""

    async def person() -> list[int]:
        async with Session(server.base, MATRICES) as one:
            await one.open()
            return [(await one.upload(FIELD, "x.csv", b"1" * LARGE))[0] for _ in range(files)]

    return [status for statuses in await asyncio.gather(*(person() for _ in range(people))) for status in statuses]


async def stalled(server: Server, people: int = 8) -> tuple[list[int], int]:
    """Uploads that stop in the middle: what each of them is answered, and another's small file meanwhile."""
    async with AsyncExitStack() as stack:
        stalling = []
        for _ in range(people):
            one = await stack.enter_async_context(Session(server.base, MATRICES))
            await one.open()
            stalling.append(asyncio.create_task(_stall(one)))
        await asyncio.sleep(1)
        other = await stack.enter_async_context(Session(server.base, MATRICES, timeout=120))
        await other.open()
        status, _ = await other.upload(FIELD, "x.csv", SMALL)
        return await asyncio.gather(*stalling), status


async def _stall(one: Session) -> int:
    """Sends all of a large file but its end; the status that comes, 0 if the server closes the connection."""
    body, kind = multipart("x.csv", b"1" * LARGE)
    place = urlsplit(await one.place("x.csv"))
    head = (
        f"PUT {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    )
    head += f"X-Xsrftoken: {one.xsrf}\r\nCookie: _streamlit_xsrf={one.xsrf}\r\n\r\n"
    answer, request = await asyncio.open_connection(place.hostname, place.port)
    try:
        request.write(head.encode() + body[:-1000])
        line = await asyncio.wait_for(answer.readline(), 120)
        return int(line.split()[1]) if line else 0
    except OSError:
        return 0
    finally:
        request.close()
