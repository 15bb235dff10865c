"""Parses a multipart form with one file in memory, without a temporary file."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.types import Receive

_LONGEST_HEAD = 2**13  # bytes before the file: the boundary and the headers of the part


async def body(receive: Receive) -> bytes:
    """The whole body of a request.

    Raises:
        ClientDisconnect: the client left before the end of the body.
    """
    pieces, more = [], True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        pieces.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(pieces)


def parts(form: bytes) -> tuple[bytes, bytes, bytes] | None:
    """The bytes before the file, of the file, and after it; None if the body is not a form with one file."""
    boundary = b"\r\n" + form[:_LONGEST_HEAD].partition(b"\r\n")[0]
    start = form.find(b"\r\n\r\n", 0, _LONGEST_HEAD) + 4
    end = form.find(boundary, start)
    if start < 4 or end < 0 or form[end + len(boundary) :].rstrip() != b"--":
        return None
    return form[:start], form[start:end], form[end:]
