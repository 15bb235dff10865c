"""What strangers make the server hold is bounded: parts of messages, slow bodies, and the address that holds most pays."""

from __future__ import annotations

import asyncio
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.web.server.starlette import starlette_server
from test_harm import finished
from uvicorn import Config
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode

from pages.ui.patches import counted_socket
from pages.ui.patches.counted_socket import _CountedSocket
from pages.ui.server import in_flight
from pages.ui.server.in_flight import Budget, Part, bounded_bodies

pytestmark = pytest.mark.quick

MB = 2**20


def test_largest_of_the_greediest_address_is_dropped() -> None:
    budget = Budget(100, 80)
    dropped: list[str] = []
    school = [Part("school", lambda: dropped.append("pupil"), budget) for _ in range(10)]
    greedy = [Part("greedy", lambda size=size: dropped.append(f"greedy {size}"), budget) for size in (30, 45)]
    for part in school:
        part.resize(4)
    greedy[0].resize(30)
    assert (budget.total, dropped) == (70, [])
    greedy[1].resize(45)
    assert (budget.total, dropped) == (70, ["greedy 45"])
    greedy[1].resize(81)
    assert dropped == ["greedy 45", "greedy 45"]
    for part in (*school, *greedy):
        part.resize(0)
    assert (budget.total, budget._parts, budget._of_address) == (0, {}, {})


@pytest.mark.slow
def test_sockets_of_streamlit_are_counted() -> None:
    counted_socket.apply()
    config = Config("pages.ui.application:parts", ws=starlette_server._get_websocket_protocol(), log_config=None)
    config.load()
    state: Any = SimpleNamespace(connections=set(), tasks=set(), default_headers=[])

    async def opens() -> None:
        assert config.ws_protocol_class is not None
        assert isinstance(config.ws_protocol_class(config=config, server_state=state, app_state={}), _CountedSocket)

    finished(opens())


async def _send_part(socket: ClientConnection, size: int) -> None:
    """All but the last byte of a message of this size."""
    frame = Frame(Opcode.BINARY, bytes(size)).serialize(mask=True)
    socket.transport.write(frame[:-1])
    while socket.transport.get_write_buffer_size():
        await asyncio.sleep(0.01)


class Server:
    """The Lab's sockets on a free port, in front of an app that counts what it receives."""

    def __init__(self, budget: Budget, monkeypatch: pytest.MonkeyPatch) -> None:
        self.received: list[int] = []
        monkeypatch.setattr(counted_socket, "Part", lambda address, drop: Part(address, drop, budget))
        self.config = Config(self._app, interface="asgi3", ws=_CountedSocket, ws_max_size=8 * MB, log_config=None)
        self.config.load()
        self.state = SimpleNamespace(connections=set(), tasks=set(), default_headers=[], total_requests=0)

    async def _app(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] == "websocket.receive":
            self.received.append(len(message["bytes"]))

    async def start(self) -> str:
        loop = asyncio.get_running_loop()
        server: Any = self.state
        self._server = await loop.create_server(
            lambda: _CountedSocket(config=self.config, server_state=server, app_state={}), "127.0.0.1", 0
        )
        host, port = self._server.sockets[0].getsockname()
        return f"ws://{host}:{port}/"

    async def stop(self) -> None:
        self._server.close()
        while self.state.tasks:
            await asyncio.sleep(0.01)


@pytest.mark.slow
def test_parts_of_messages_end_at_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    async def use() -> None:
        budget = Budget(10 * MB, 8 * MB)
        server = Server(budget, monkeypatch)
        address = await server.start()
        attacker = [
            await connect(address, additional_headers={"X-Forwarded-For": "198.51.100.7"}, compression=None)
            for _ in range(6)
        ]
        visitor = await connect(address, additional_headers={"X-Forwarded-For": "203.0.113.9"}, compression=None)
        for socket in attacker:
            await _send_part(socket, 3 * MB)
        await visitor.send(bytes(4 * MB))
        while server.received != [4 * MB]:
            await asyncio.sleep(0.01)
        assert budget.total <= 10 * MB
        closed = 0
        for socket in attacker:
            try:
                async with asyncio.timeout(0.2):
                    await socket.recv()
            except ConnectionClosed:
                closed += 1
            except TimeoutError:
                pass
        assert closed == 4  # 8 MB hold two parts of 3 MB
        for socket in (*attacker, visitor):
            await socket.close()
        await server.stop()
        assert (budget.total, budget._parts) == (0, {})

    finished(use())


@pytest.mark.parametrize("kind", ["fragments", "empty fragments", "messages", "pings"])
def test_socket_of_many_small_frames_is_cut(monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    async def use() -> None:
        server = Server(Budget(64 * MB, 64 * MB), monkeypatch)
        address = await server.start()
        attacker, visitor = await connect(address, compression=None), await connect(address, compression=None)
        frame = Frame(Opcode.CONT, b"" if "empty" in kind else b"x", fin=False)
        if "fragments" not in kind:
            frame = Frame(Opcode.PING if kind == "pings" else Opcode.BINARY, b"x")
        else:
            attacker.transport.write(Frame(Opcode.BINARY, b"x", fin=False).serialize(mask=True))
        attacker.transport.write(frame.serialize(mask=True) * 3 * counted_socket._MOST_FRAMES)
        with pytest.raises(ConnectionClosed):
            await attacker.recv()
        assert len(server.received) <= counted_socket._MOST_FRAMES + counted_socket._PIECE // 6
        await visitor.send(bytes(4 * MB))
        while 4 * MB not in server.received:
            await asyncio.sleep(0.01)
        for socket in (attacker, visitor):
            await socket.close()
        await server.stop()

    finished(use())


def test_message_that_stays_incomplete_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "SECONDS", 0.2)

    async def use() -> None:
        server = Server(Budget(64 * MB, 64 * MB), monkeypatch)
        address = await server.start()
        stalled, idle = await connect(address, compression=None), await connect(address, compression=None)
        await idle.send(b"whole")
        await _send_part(stalled, MB // 4)
        with pytest.raises(ConnectionClosed):
            await stalled.recv()
        await idle.send(b"still open")
        while server.received != [5, 10]:
            await asyncio.sleep(0.01)
        await idle.close()
        await server.stop()

    finished(use())


async def _post(app: ASGIApp, pieces: asyncio.Queue[Message], address: str) -> list[Message]:
    """The answer to a POST whose body comes from a queue."""
    answer: list[Message] = []

    async def send(message: Message) -> None:
        answer.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/export/weights.csv",
        "headers": [(b"x-forwarded-for", address.encode())],
        "client": ("127.0.0.1", 1),
    }
    await app(scope, pieces.get, send)
    return answer


async def _reads_body(scope: Scope, receive: Receive, send: Send) -> None:
    """An app that keeps the whole body."""
    body, more = b"", True
    while more:
        message = await receive()
        body, more = body + message.get("body", b""), message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(len(body)).encode()})


def _piece(size: int, more: bool = True) -> Message:
    return {"type": "http.request", "body": bytes(size), "more_body": more}


def test_slow_bodies_are_refused_and_others_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_flight, "SECONDS", 0.2)
    budget = Budget(10 * MB, 8 * MB)
    monkeypatch.setattr(in_flight, "Part", lambda address, drop: Part(address, drop, budget))

    async def use() -> None:
        app = partial(bounded_bodies, _reads_body)
        slow = [asyncio.Queue[Message]() for _ in range(12)]
        answers = [asyncio.create_task(_post(app, pieces, "198.51.100.7")) for pieces in slow]
        for pieces in slow:
            pieces.put_nowait(_piece(MB))
        await asyncio.sleep(0)
        whole = asyncio.Queue[Message]()
        whole.put_nowait(_piece(MB))
        whole.put_nowait(_piece(7, more=False))
        answer = await _post(app, whole, "203.0.113.9")
        assert (answer[0]["status"], answer[1]["body"]) == (200, str(MB + 7).encode())
        while sum(task.done() for task in answers) < 4:
            await asyncio.sleep(0)
        assert budget.total == 8 * MB
        statuses = [(await task)[0]["status"] for task in answers]
        assert sorted(statuses) == [408] * 8 + [429] * 4
        assert budget.total == 0

    finished(use())
