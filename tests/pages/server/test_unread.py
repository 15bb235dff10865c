"""Browsers that do not read their messages slow down no other browser."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.session_manager import SessionClient, SessionClientDisconnectedError
from streamlit.web.server.starlette.starlette_websocket import create_websocket_routes
from test_harm import finished
from websockets.exceptions import ConnectionClosedError

from benchmarks.session import Session
from pages.ui.server import guard
from pages.ui.server.guard import backpressure
from pages.ui.server.in_flight import Budget

LARGE = ForwardMsg(script_finished=ForwardMsg.FINISHED_SUCCESSFULLY, hash="x" * 100_000)
SCOPE = {"type": "websocket", "path": "/_stcore/stream", "headers": [], "query_string": b"", "root_path": ""}


class Browser:
    """A browser that reads as many messages as it `may`, and then nothing more; its socket to Streamlit's own endpoint."""

    def __init__(self, app: ASGIApp, clients: list[SessionClient], may: float) -> None:
        self.may, self.codes, self.read = may, list[int](), 0
        self._coming: asyncio.Queue[Message] = asyncio.Queue()
        self._coming.put_nowait({"type": "websocket.connect"})
        self._clients = clients
        self._task = asyncio.create_task(app(SCOPE, self._coming.get, self._send))

    async def client(self) -> SessionClient:
        """What Streamlit writes to."""
        while not self._clients:
            await asyncio.sleep(0)
        return self._clients.pop(0)

    async def _send(self, message: Message) -> None:
        if message["type"] == "websocket.close":
            self.codes.append(message["code"])
        if message["type"] == "websocket.send":
            while self.may <= 0:
                await asyncio.sleep(0.001)
            self.may -= 1
            self.read += 1

    async def leave(self) -> None:
        self._coming.put_nowait({"type": "websocket.disconnect", "code": 1001})
        await self._task


class Sockets(SimpleNamespace):
    """Streamlit's endpoint of sockets behind ours: `open` one, and see which sessions were `disconnected`."""

    def __init__(self, most: int) -> None:
        clients: list[SessionClient] = []
        super().__init__(disconnected=[])
        runtime: Any = SimpleNamespace(
            connect_session=lambda client, **_: clients.append(client) or id(client),
            disconnect_session=lambda session, client: self.disconnected.append(client),
        )
        self.budget = Budget(most, most)
        app = partial(backpressure, Starlette(routes=create_websocket_routes(runtime, None)), budget=self.budget)
        self.app, self.clients = app, clients

    def open(self, may: float) -> Browser:
        return Browser(self.app, self.clients, may)


def in_process(use: Callable[[Sockets], Awaitable[None]], most: int = 2**27) -> None:
    async def limited() -> None:
        async with asyncio.timeout(60):
            await use(sockets := Sockets(most))
        assert (sockets.budget.total, sockets.budget._parts, sockets.budget._of_address) == (0, {}, {})

    finished(limited())


def test_slowest_reader_is_dropped() -> None:
    async def use(sockets: Sockets) -> None:
        browsers = [sockets.open(may) for may in (0, 0, float("inf"))]
        slow, slower, reads = browsers
        clients = [await browser.client() for browser in browsers]
        for i in range(250):
            for client, every in zip(clients, (2, 1, 1), strict=True):
                if i % every == 0:
                    with suppress(SessionClientDisconnectedError):  # as Streamlit does
                        client.write_forward_msg(LARGE)
            while reads.read <= i:
                await asyncio.sleep(0)
        while not slower.codes:
            await asyncio.sleep(0)
        assert (slow.codes, slower.codes, reads.codes) == ([], [1013], [])
        assert sockets.disconnected == [clients[1]]
        with pytest.raises(SessionClientDisconnectedError):
            clients[1].write_forward_msg(LARGE)
        assert reads.read == 250
        for browser in browsers:
            await browser.leave()

    in_process(use, 20 * 2**20)


def test_full_message_queue_is_cleared() -> None:
    async def use(sockets: Sockets) -> None:
        browser = sockets.open(0)
        client = await browser.client()
        while not browser.codes:
            with suppress(SessionClientDisconnectedError):
                client.write_forward_msg(ForwardMsg())
            assert sockets.budget.total <= guard._MOST * len(LARGE.SerializeToString())
            await asyncio.sleep(0)
        assert browser.codes == [1013]
        await browser.leave()

    in_process(use)


def test_messages_sent_before_a_socket_closes_arrive() -> None:
    async def use(sockets: Sockets) -> None:
        browser = sockets.open(0)
        client = await browser.client()
        for _ in range(10):
            client.write_forward_msg(LARGE)
            await asyncio.sleep(0)
        browser._coming.put_nowait({"type": "websocket.receive", "bytes": b"no message of Streamlit's"})
        while client not in sockets.disconnected:
            await asyncio.sleep(0)
        assert not browser.codes
        browser.may = float("inf")
        await browser._task
        assert (browser.read, browser.codes) == (10, [1002])

    in_process(use)


def test_message_over_8_mb_is_refused(server: str) -> None:
    async def use() -> None:
        async with Session(server) as session:

            async def send() -> None:
                await session._socket.send(bytes(9 * 2**20))
                await session.open()

            with pytest.raises(ConnectionClosedError) as closed:
                await send()
            assert closed.value.rcvd
            assert closed.value.rcvd.code == 1009

    finished(use())
