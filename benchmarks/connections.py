"""Connections that cost whoever opens them nothing: idle ones, heads and bodies without an end, and answers that nobody reads.

They come from another address of loopback than the visitors who must not notice them, to the server as the image starts it.
"""

from __future__ import annotations

import asyncio
import re
import resource
import socket
import time
from contextlib import suppress
from urllib.parse import urlsplit
from urllib.request import urlopen

from benchmarks.attack import WAIT, Attack
from benchmarks.server import Server
from benchmarks.wire import http

_FROM = "127.0.0.2"
_HOLDS = 15.0  # seconds that all of them stay open
_MOST_LINES = 10  # of the log meanwhile


def _open(server: Server, sent: bytes, connections: int, unread: bool) -> list[socket.socket]:
    """So many connections, each of which has sent this, or as much of it as the system takes at once."""
    place = urlsplit(server.base)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(max(soft, connections + 500), hard), hard))
    sockets = []
    for _ in range(connections):
        each = socket.socket()
        each.settimeout(10)
        if unread:
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2**12)
        sockets.append(each)
        with suppress(OSError):  # it was closed at once, as it may be
            each.bind((_FROM, 0))
            each.connect((place.hostname, place.port))
            each.setblocking(False)
            each.send(sent)
    return sockets


async def _held(server: Server, sent: bytes, connections: int, seconds: float, unread: bool = False) -> list[str]:
    """Opens the connections and keeps them, while newcomers ask for the page; what these must not have seen."""
    broken, before = [], len(server.errors().splitlines())

    async def newcomers() -> None:
        while not done.is_set():
            began = time.monotonic()
            status = await asyncio.to_thread(http, "GET", server.base)
            waited = time.monotonic() - began
            server.waited = max(server.waited, waited)
            if status != 200:
                broken.append(f"a newcomer got {status} {status.words} after {waited:.1f} s")
            await asyncio.sleep(WAIT / 4)

    done = asyncio.Event()
    coming = asyncio.create_task(newcomers())
    sockets = await asyncio.to_thread(_open, server, sent, connections, unread)
    await asyncio.sleep(seconds)
    done.set()
    await coming
    for each in sockets:
        each.close()
    if (lines := len(server.errors().splitlines()) - before) > _MOST_LINES:
        broken.append(f"the log has {lines:,} more lines")
    return broken


async def idle(server: Server, connections: int = 1100, seconds: float = _HOLDS) -> list[str]:
    """Connections that say nothing."""
    return await _held(server, b"", connections, seconds)


async def heads(server: Server, connections: int = 15_000, size: int = 2**14, seconds: float = _HOLDS) -> list[str]:
    """Requests whose head does not end."""
    return await _held(server, b"GET / HTTP/1.1\r\nHost: lab\r\nX-Long: " + b"x" * size, connections, seconds)


async def bodies(server: Server, connections: int = 8000, size: int = 250_000, seconds: float = _HOLDS) -> list[str]:
    """Requests for a page with a body that does not end."""
    head = f"GET / HTTP/1.1\r\nHost: lab\r\nContent-Length: {2 * size}\r\n\r\n"
    return await _held(server, head.encode() + b"x" * size, connections, seconds)


async def readers(server: Server, connections: int = 700, seconds: float = _HOLDS) -> list[str]:
    """Requests for the largest script, whose answer is not read."""
    page = await asyncio.to_thread(lambda: urlopen(server.base, timeout=60).read().decode())
    found = re.search(r"app/static/\w+/", page)
    assert found
    request = f"GET /{found[0]}plotly.js HTTP/1.1\r\nHost: lab\r\n\r\n"
    return await _held(server, request.encode(), connections, seconds, unread=True)


ATTACKS = (
    Attack(
        "8,000 pages asked for with a body that does not end",
        bodies,
        700,
        {"connections": 300, "seconds": 1},
        front=True,
    ),
    Attack("15,000 unfinished heads of 16 KB", heads, 700, {"connections": 600, "seconds": 1}, front=True),
    Attack(
        "1,100 idle connections to a server with 1,024 descriptors",
        idle,
        700,
        {"seconds": 1},
        front=True,
        descriptors=1024,
    ),
    Attack("700 readers of a script who read nothing", readers, 700, {"connections": 300, "seconds": 1}, front=True),
)
