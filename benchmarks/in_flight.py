"""Bytes that arrive and are never used: messages without their last byte, slow bodies, and junk that must be parsed."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, suppress
from urllib.parse import urlsplit

from websockets.asyncio.client import connect
from websockets.exceptions import WebSocketException
from websockets.frames import Frame, Opcode

from benchmarks.attack import Attack
from benchmarks.server import Server

_MB = 2**20
_HOLDS = 15.0  # seconds that the connections stay open


async def unfinished(server: Server, sockets: int = 117, size: int = 7 * _MB, seconds: float = _HOLDS) -> list[str]:
    """Sockets of a visitor without a cookie that send all of a message but its last byte."""
    return await _hold(server, Frame(Opcode.BINARY, bytes(size)).serialize(mask=True)[:-1], sockets, seconds)


async def fragments(server: Server, sockets: int = 30, frames: int = 500_000, seconds: float = _HOLDS) -> list[str]:
    """Sockets that send a message in pieces of two bytes, each of which the server has to read by itself."""
    first, piece = (Frame(code, bytes(2), fin=False).serialize(mask=True) for code in (Opcode.BINARY, Opcode.CONT))
    return await _hold(server, first + piece * frames, sockets, seconds)


async def _hold(server: Server, sent: bytes, sockets: int, seconds: float) -> list[str]:
    """Sends these bytes on each socket, and keeps it open."""
    url = f"ws{server.base.removeprefix('http')}/_stcore/stream"
    async with AsyncExitStack() as stack:

        async def hold() -> bool:
            with suppress(WebSocketException, OSError, TimeoutError):
                socket = await stack.enter_async_context(connect(url, compression=None, open_timeout=60))
                socket.transport.write(sent)
                async with asyncio.timeout(seconds):
                    while True:
                        await socket.recv()
            return True

        await asyncio.gather(*(hold() for _ in range(sockets)))
    return []


async def slow_bodies(server: Server, connections: int = 900, seconds: float = _HOLDS) -> list[str]:
    """Requests for files whose state, of a megabyte, lacks its last byte."""
    place = urlsplit(server.base)
    head = f"POST {place.path}/export/weights.csv HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {_MB}\r\n\r\n"
    request = head.encode() + b"x" * (_MB - 1)

    async def post() -> str:
        with suppress(OSError, TimeoutError):
            answer, body = await asyncio.open_connection(place.hostname, place.port)
            body.write(request)
            async with asyncio.timeout(2 * seconds):
                line = await answer.readline()
            body.close()
            return line.decode()
        return ""

    lines = await asyncio.gather(*(post() for _ in range(connections)))
    return [f"a body without its end got {line!r}" for line in {*lines} if " 4" not in line and line]


async def junk(server: Server, connections: int = 12, rounds: int = 3) -> list[str]:
    """States of a megabyte that consist of parameters without a meaning."""
    place = urlsplit(server.base)
    body = b"&".join(b"a%d=%%41" % number for number in range(90_000))[: _MB - 1]
    head = (
        f"POST {place.path}/export/weights.csv HTTP/1.1\r\nHost: {place.netloc}\r\nContent-Length: {len(body)}\r\n\r\n"
    )

    async def send() -> list[str]:
        lines = []
        for _ in range(rounds):
            answer, request = await asyncio.open_connection(place.hostname, place.port)
            request.write(head.encode() + body)
            lines.append((await answer.readline()).decode())
            request.close()
        return lines

    lines = [line for each in await asyncio.gather(*(send() for _ in range(connections))) for line in each]
    return [f"junk got {line!r}" for line in {*lines} if " 4" not in line]


ATTACKS = (
    Attack("117 sockets that send all but the last byte of 7 MB", unfinished, 700, {"sockets": 20, "seconds": 2}),
    Attack(
        "30 sockets that send fragments of 2 bytes", fragments, 700, {"sockets": 10, "frames": 200_000, "seconds": 2}
    ),
    Attack("900 requests whose bodies do not end", slow_bodies, 700, {"connections": 40}),
    Attack("12 connections that send parameters without a meaning", junk, 600, {"connections": 2, "rounds": 1}),
)
