"""A form with one file, as a browser sends it, taken apart without a copy of it in a folder."""

from __future__ import annotations

from starlette.requests import ClientDisconnect
from starlette.types import Receive

_LONGEST_HEAD = 2**13  # bytes before the file: the boundary and what it is called


async def body(receive: Receive) -> bytes:
    """The whole body of a request.

    Raises:
        ClientDisconnect: it was not sent to its end.
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
    """What comes before the file, what the file holds, and what comes after it; None where it is no form with one file."""
    boundary = b"\r\n" + form[:_LONGEST_HEAD].partition(b"\r\n")[0]
    start = form.find(b"\r\n\r\n", 0, _LONGEST_HEAD) + 4
    end = form.find(boundary, start)
    if start < 4 or end < 0 or form[end + len(boundary) :].rstrip() != b"--":
        return None
    return form[:start], form[start:end], form[end:]
