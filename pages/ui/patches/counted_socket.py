"""Counts the parts of socket messages that are not complete, in the budget of bytes in flight.

Replaces: `WebSocketsSansIOProtocol.__new__` of uvicorn, so that each socket is a `_CountedSocket`.
Why: uvicorn keeps the parts of an unfinished message of any number of sockets, and no middleware sees them: 117 sockets that sent all but
    the last byte of 7 MB ended a server of 1 GiB. uvicorn chooses its class by name before it imports the app.
Canary: `tests/pages/server/test_in_flight.py`, test_sockets_of_streamlit_are_counted.
Public replacement: an option of Streamlit for the class of uvicorn's sockets.
"""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from pages.ui.server import scheduler
from pages.ui.server.in_flight import SECONDS, Deadline, Part

_MOST_FRAMES = 2000
"""The frames of a socket in `SECONDS`: each costs the server 5 µs, however small; a page sends a few in a second."""
_PIECE = 2**12  # bytes that are read at once: a chunk of the network may be 40,000 frames


class _CountedSocket(WebSocketsSansIOProtocol):
    """uvicorn's socket, with the parts of a message that is not complete counted in the budget, a deadline for the rest, and bounded frames."""

    _part: Part | None = None
    _deadline: Deadline | None = None
    _frames_until, _n_frames = 0.0, 0

    def handle_connect(self, event: Any) -> None:
        forwarded = ",".join(event.headers.get_all("X-Forwarded-For"))
        self._part = Part(
            scheduler.request_address(self.client[0] if self.client else "", forwarded), self.transport_abort
        )
        self._deadline = Deadline(self._part)
        super().handle_connect(event)

    def data_received(self, data: bytes) -> None:
        for start in range(0, len(data), _PIECE):
            super().data_received(data[start : start + _PIECE])
            if self._n_frames > _MOST_FRAMES:
                self.transport_abort()
                return
        if self._part is None or self._deadline is None or self.transport.is_closing():
            return
        size = len(self.conn.reader.buffer) + sum(map(len, self.frames))
        self._part.resize(size)
        self._deadline.stop(size)
        if self._part.size:
            self._deadline.begin()

    def handle_events(self) -> None:
        if (now := self.loop.time()) > self._frames_until:
            self._frames_until, self._n_frames = now + SECONDS, 0
        self._n_frames += len(self.conn.events)
        super().handle_events()

    def send_receive_event_to_app(self) -> None:
        if self._deadline is not None:  # the message is complete: the clock starts anew with the next one
            self._deadline.stop()
        super().send_receive_event_to_app()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._deadline is not None:
            self._deadline.stop()
        if self._part is not None:
            self._part.resize(0)
        super().connection_lost(exc)

    def transport_abort(self) -> None:
        """Closes the socket without waiting for its browser, which reconnects if it was only slow."""
        self.frames.clear()
        self.conn.reader.buffer.clear()
        self.transport.abort()


def apply() -> None:
    """Makes every socket a `_CountedSocket`."""
    WebSocketsSansIOProtocol.__new__ = lambda *_, **__: object.__new__(_CountedSocket)  # type: ignore[assignment,method-assign]  # the patch
