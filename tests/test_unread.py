"""Who reads nothing costs the others nothing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.session_manager import SessionClientDisconnectedError
from streamlit.web.server.starlette.starlette_websocket import StarletteSessionClient
from test_harm import finished
from websockets.exceptions import ConnectionClosedError

from benchmarks.session import Session
from pages.ui.server import process, unread

assert process  # it has wrapped Streamlit
LARGE = ForwardMsg(script_finished=ForwardMsg.FINISHED_SUCCESSFULLY, hash="x" * 100_000)


class Socket(SimpleNamespace):
    """A web socket that takes what it `may`, and then nothing more."""

    def __init__(self, may: float) -> None:
        super().__init__(headers={}, cookies={}, client=None, may=may, codes=[])

    async def send_bytes(self, _: bytes) -> None:
        while self.may <= 0:
            await asyncio.sleep(0.001)
        self.may -= 1

    async def close(self, code: int) -> None:
        self.codes.append(code)


def test_the_one_who_has_read_least_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unread, "UNREAD_MB", 20)

    async def use() -> None:
        slow, slower, reads = Socket(0), Socket(0), Socket(float("inf"))
        clients: list[Any] = [StarletteSessionClient(socket) for socket in (slow, slower, reads)]  # type: ignore[arg-type]  # as below
        for i in range(250):
            await asyncio.sleep(0)
            for client, every in zip(clients, (2, 1, 1), strict=True):
                if i % every == 0 and not client._closed.is_set():
                    client.write_forward_msg(LARGE)
            while not clients[2]._send_queue.empty():
                await asyncio.sleep(0)
        while not slower.codes:
            await asyncio.sleep(0)
        assert (slow.codes, slower.codes, reads.codes) == ([], [1013], [])
        assert [client._send_queue.qsize() > 0 for client in clients] == [True, False, False]
        with pytest.raises(SessionClientDisconnectedError):
            clients[1].write_forward_msg(LARGE)
        for client in clients:
            await client.aclose()

    finished(use())


def test_a_full_queue_is_emptied() -> None:
    async def use() -> None:
        socket = Socket(0)
        client: Any = StarletteSessionClient(socket)  # type: ignore[arg-type]  # it has what is asked of one
        while not client._send_queue.full():
            client.write_forward_msg(ForwardMsg())
        with pytest.raises(SessionClientDisconnectedError):
            client.write_forward_msg(ForwardMsg())
        assert client._send_queue.empty()
        while not socket.codes:
            await asyncio.sleep(0)
        await client.aclose()

    finished(use())


def test_a_message_of_more_than_8_mb_is_not_taken(server: str) -> None:
    async def use() -> None:
        async with Session(server) as one:

            async def send() -> None:
                await one._socket.send(bytes(9 * 2**20))
                await one.open()

            with pytest.raises(ConnectionClosedError) as closed:
                await send()
            assert closed.value.rcvd
            assert closed.value.rcvd.code == 1009

    finished(use())
