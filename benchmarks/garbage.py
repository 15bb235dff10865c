"""Invalid messages over the socket of a session: the server continues, and its log stays short."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.exceptions import WebSocketException

from benchmarks.attack import Attack
from benchmarks.server import Server
from benchmarks.session import Session

MOST_LINES = 10  # of the log for all messages


def frames(seed: int) -> list[bytes | str]:
    """The messages: random bytes, text, another message type, an empty one, and valid ones with odd values."""
    drawn = random.Random(seed)
    other, odd, debug = ForwardMsg(), BackMsg(), BackMsg()
    other.hash = "x" * 100
    other.session_status_changed.run_on_save = True
    odd.rerun_script.page_script_hash = "\0" * 50
    odd.rerun_script.query_string = "%ff&&=&" * 99
    odd.rerun_script.widget_states.widgets.add(id="$$ID-none", json_value="[" * 999)
    debug.debug_shutdown_runtime = True
    return [
        drawn.randbytes(drawn.randrange(1, 999)),
        "text " * drawn.randrange(1, 99),
        other.SerializeToString(),
        b"",
        odd.SerializeToString(),
        debug.SerializeToString(),
        b"\x0a" + b"\xff" * 20,
    ]


async def garbage(server: Server, rounds: int = 30) -> list[str]:
    """Sends every message repeatedly, each over a separate socket; returns the failures."""
    start = len(server.errors())
    for number in range(rounds):
        for frame in frames(number):
            async with Session(server.base, timeout=30) as session:
                with suppress(WebSocketException, TimeoutError):
                    await session._socket.send(frame)
                    async with asyncio.timeout(0.2):
                        while True:
                            await session._socket.recv()
    async with Session(server.base, timeout=60) as session:
        run = await session.open()
    logged = server.errors()[start:]
    broken = [] if run.figures else [f"the next visitor sees {run.sentences}"]
    broken += ["a traceback is in the log"] * ("Traceback" in logged)
    if len(lines := logged.splitlines()) > MOST_LINES:
        broken.append(f"{len(lines)} lines in the log, such as {lines[:3]}")
    return broken


ATTACKS = (Attack("messages that no page sends", garbage, slice={"rounds": 2}),)
