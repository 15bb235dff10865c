"""Messages that no page sends over a socket: one log line a minute, and a text message closes its socket."""

from __future__ import annotations

import logging
from functools import partial

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from pages.ui.server import guard


def record(text: str, *args: object) -> logging.LogRecord:
    error = (ValueError, ValueError("odd"), None)
    return logging.LogRecord("streamlit", logging.WARNING, __file__, 1, text, args, error)


@pytest.mark.quick
def test_unreadable_messages_log_one_line_a_minute_with_their_count() -> None:
    clock = [0.0]
    one_line = guard._OneLineAMinute(lambda: clock[0])
    first = record("Error deserializing back message")
    assert one_line.filter(first)
    assert first.getMessage().startswith("1 unreadable socket messages")
    assert first.exc_info is None
    clock[0] = guard._PAUSE - 1
    assert not any(one_line.filter(record('No handler for "%s"', "x")) for _ in range(100))
    failed = record(guard._FAILED)
    assert not one_line.filter(failed)
    other = record("Something else")
    assert one_line.filter(other)
    assert other.exc_info is not None
    clock[0] = guard._PAUSE
    later = record('No handler for "%s"', "y")
    assert one_line.filter(later)
    assert (
        later.getMessage()
        == '102 unreadable socket messages since the last line like this; the last: No handler for "y"'
    )


def test_text_closes_the_socket_and_bytes_arrive() -> None:
    received: list[bytes] = []

    async def echo(websocket: WebSocket) -> None:
        await websocket.accept()
        try:
            while True:
                received.append(await websocket.receive_bytes())
        except WebSocketDisconnect as end:
            received.append(str(end.code).encode())

    app = Starlette(routes=[WebSocketRoute("/", echo)], middleware=[Middleware(partial(partial, guard.binary_only))])
    with TestClient(app).websocket_connect("/") as socket:
        socket.send_bytes(b"one")
        socket.send_text("two")
        with pytest.raises(WebSocketDisconnect) as closed:
            socket.receive_bytes()
    assert closed.value.code == 1003
    assert received == [b"one", b"1003"]


@pytest.mark.quick
def test_failing_readable_message_logs_its_traceback_once_a_minute() -> None:
    one_line, first = guard._OneLineAMinute(lambda: 0.0), record(guard._FAILED)
    assert one_line.filter(first)
    assert first.exc_info is not None
    assert not one_line.filter(record(guard._FAILED))
