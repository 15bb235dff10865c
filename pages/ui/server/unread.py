"""What a page has not read yet is bounded, for all sockets together.

Streamlit queues 500 messages for each of them, some seven runs of a page: with a table in it 10 MB, for everybody who opens a
socket and reads nothing. There is no setting for it, so its client is wrapped here; `tests/test_unread.py` fails where a newer
Streamlit has another.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import wraps
from weakref import WeakSet

from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from streamlit.runtime.session_manager import SessionClientDisconnectedError
from streamlit.web.server.starlette.starlette_websocket import StarletteSessionClient

from pages.ui.server.limits import UNREAD_MB

_BEHIND = 100  # messages; whoever reads has fewer before it, about what one run sends
_behind: WeakSet[StarletteSessionClient] = WeakSet()
_closing: set[asyncio.Task[None]] = set()  # a task that nobody holds may be collected


def bound_unread() -> None:
    """From now on the fullest socket is given up when what nobody reads takes too much room."""
    write = StarletteSessionClient.write_forward_msg

    @wraps(write)
    def bounded(self: StarletteSessionClient, msg: ForwardMsg) -> None:
        try:
            write(self, msg)
        except SessionClientDisconnectedError:
            _give_up(self)
            raise
        if self._send_queue.qsize() > _BEHIND:
            _behind.add(self)
            unread = {one: _unread(one) for one in _behind}
            while sum(unread.values()) > UNREAD_MB * 2**20:
                _give_up(fullest := max(unread, key=unread.__getitem__))
                del unread[fullest]

    StarletteSessionClient.write_forward_msg = bounded  # type: ignore[method-assign]  # wrapped on purpose, see above


def _unread(client: StarletteSessionClient) -> int:
    waiting = client._send_queue._queue  # type: ignore[attr-defined]  # what asyncio.Queue has for its heirs
    return sum(len(payload) for payload in waiting)


def _give_up(client: StarletteSessionClient) -> None:
    """Forgets what waits for it, and closes its socket, so that a page which was only slow connects anew."""
    _behind.discard(client)
    if client._closed.is_set() and client._send_queue.empty():
        return
    client._closed.set()
    client._sender_task.cancel()
    while not client._send_queue.empty():
        client._send_queue.get_nowait()
    closing = asyncio.get_running_loop().create_task(_close(client))
    _closing.add(closing)
    closing.add_done_callback(_closing.discard)


async def _close(client: StarletteSessionClient) -> None:
    with suppress(Exception):  # it may be closed already, or read nothing of this either
        async with asyncio.timeout(20):
            await client._websocket.close(code=1013)
