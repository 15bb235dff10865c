"""What strangers may send and receive, as middleware: bounded sockets, no text messages, no sockets from other sites, and security headers on every answer.

A page may load scripts and styles from its own server only and connect only to it. Only sites in LAB_FRAME_ANCESTORS may show it in a frame.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import re
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from ipaddress import ip_address
from threading import Lock
from urllib.parse import urlsplit

import streamlit as st
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.logger import get_logger

from pages.ui.server import limits
from pages.ui.server.assets import INDEX
from pages.ui.server.in_flight import BUDGET, Budget, Part, address_of

_MOST = 500  # messages of one socket, as many as Streamlit keeps
_CLOSING = 5.0  # seconds for the last message to a socket that reads nothing
_PAUSE = 60.0  # seconds between two lines
_TRY_LATER = 1013  # WebSocket close code: try again later
_UNSUPPORTED = 1003  # WebSocket close code: unsupported data
_REFUSED = 1008  # WebSocket close code: policy violation

_TEXT = "A socket received a text message; it accepts only binary messages."
_FAILED = "Error processing back message"  # a readable message: the first one in a minute keeps its traceback
_UNREADABLE = {
    _TEXT,
    "Error deserializing back message",
    _FAILED,
    'No handler for "%s"',
    "Client tried to disconnect websocket when not in development mode or e2e testing.",
    "Client tried to shut down runtime when not in development mode or e2e testing.",
    "Client WebSocket message size %s bytes exceeds the limit of %s bytes; closing connection.",
}
"""The format strings that Streamlit 1.67 logs for unreadable messages. `benchmarks/garbage.py` sends such messages."""
_LOGGERS = ("streamlit.web.server.starlette.starlette_websocket", "streamlit.runtime.app_session", __name__)
_METRICS, _HEALTH = "/_stcore/metrics", "/_stcore/script-health-check"
"""Paths for operators only: metrics of the process, which its own machine reads, and a health check that runs the page, for which a cluster asks from its network."""
_LOCAL = ("localhost", "127.0.0.1", "::1")

# The inline scripts of Streamlit's index page are allowed by their digests.
_INLINE = " ".join(
    f"'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'"
    for script in re.findall(r"<script>(.*?)</script>", INDEX.read_text(encoding="utf-8"), re.DOTALL)
)
_POLICY = {
    "default-src": "'self'",
    # blob: is for the loaders of components. Streamlit's reader of messages tries WebAssembly first, and does not need it.
    "script-src": f"'self' blob: {_INLINE}",
    "style-src": "'self' 'unsafe-inline'",
    "img-src": "'self' data: blob:",
    "font-src": "'self' data:",
    "connect-src": "'self' blob: data:",
    "worker-src": "'self' blob:",
    "object-src": "'none'",
    "base-uri": "'self'",
    "form-action": "'self'",
    "frame-ancestors": f"'self' {limits.FRAME_ANCESTORS}".strip(),
}
_HEADERS = {
    "Content-Security-Policy": "; ".join(f"{directive} {sources}" for directive, sources in _POLICY.items()),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",  # a link contains the user's text
    "Permissions-Policy": "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=()",
}

# Lets a proxy route a visitor to the same one of several servers.
_REPLICA = {"Lab-Replica": limits.REPLICA} if limits.REPLICA else {}


async def backpressure(app: ASGIApp, scope: Scope, receive: Receive, send: Send, budget: Budget = BUDGET) -> None:
    """Middleware that limits the unread bytes of all sockets together (backpressure).

    Streamlit queues 500 messages for each socket, about seven runs of a page: up to 10 MB with a table, for every client that opens a
    socket and does not read. It has no setting for that, so this middleware accepts each message at once and queues it
    itself. When more is unread than the budget of bytes in flight allows, it closes the socket with the largest queue. A page that was only slow reconnects.
    """
    if scope["type"] != "websocket":
        await app(scope, receive, send)
        return
    socket = _Socket(receive, send)
    socket.unread = Part(address_of(scope), socket.give_up, budget)
    try:
        await app(scope, socket.receive, socket.send)
    finally:
        await socket.end()


class _Socket:
    unread: Part  # the bytes in the queue, including the message being sent

    def __init__(self, receive: Receive, send: Send) -> None:
        self._receive, self._send = receive, send
        self._queue: deque[Message] = deque()
        self._queued = asyncio.Event()
        self._sender: asyncio.Task[None] | None = None
        self._receiving: asyncio.Timeout | None = None
        self._closed = False  # accepts no more messages
        self._given_up = False  # closed because the client does not read

    async def send(self, message: Message) -> None:
        """Queues a message. A message that opens or closes the socket is sent at once if the queue is empty."""
        if self._closed:
            raise OSError("the socket is closed")
        self._closed = message["type"] == "websocket.close"
        if message["type"] != "websocket.send" and not self._queue:
            await self._send(message)
            return
        self._queue.append(message)
        self._queued.set()
        if self._sender is None:
            self._sender = asyncio.create_task(self._send_queue())
        self.unread.resize(self.unread.size + _size(message))
        if len(self._queue) > _MOST:
            self.give_up()

    async def _send_queue(self) -> None:
        with suppress(OSError):  # the browser has gone
            while self._queue or not self._closed:
                while self._queue:
                    await self._send(self._queue[0])
                    self.unread.resize(self.unread.size - _size(self._queue.popleft()))
                self._queued.clear()
                if not self._closed:
                    await self._queued.wait()
        self._close()

    async def receive(self) -> Message:
        message: Message = {"type": "websocket.disconnect", "code": _TRY_LATER}
        if not self._given_up:
            try:
                async with asyncio.timeout(None) as self._receiving:
                    message = await self._receive()
            except TimeoutError:
                pass
            finally:
                self._receiving = None
        if message["type"] == "websocket.disconnect":
            self._close()
        return message

    def give_up(self) -> None:
        """Drops the queue and reports to the app that the browser has disconnected."""
        self._close()
        self._given_up = True
        if self._sender is not None:
            self._sender.cancel()
        if self._receiving is not None:
            self._receiving.reschedule(asyncio.get_running_loop().time())

    def _close(self) -> None:
        self._closed = True
        self._queue.clear()
        self.unread.resize(0)

    async def end(self) -> None:
        """Sends the queue, or the close code if the socket was given up. Takes at most `_CLOSING` seconds."""
        self._closed = True
        self._queued.set()
        with suppress(TimeoutError, OSError):
            async with asyncio.timeout(_CLOSING):
                if self._given_up:
                    await self._send({"type": "websocket.close", "code": _TRY_LATER})
                elif self._queue and self._sender is not None:
                    await asyncio.wait({self._sender})
        if self._sender is not None:
            self._sender.cancel()


def _size(message: Message) -> int:
    return len(message.get("bytes") or message.get("text") or b"")


class _OneLineAMinute(logging.Filter):
    """A log filter that passes one line a minute about unreadable messages, with their number and the last one, without tracebacks.

    Streamlit closes a socket that sends unreadable bytes and logs a traceback for each message. It is not patched: a filter limits its loggers.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock, self._lock = clock, Lock()
        self._count, self._next = 0, float("-inf")

    def filter(self, record: logging.LogRecord) -> bool:
        if record.msg not in _UNREADABLE:
            return True
        with self._lock:
            self._count += 1
            now = self._clock()
            if now < self._next:
                return False
            count, self._count, self._next = self._count, 0, now + _PAUSE
        if record.msg != _FAILED:
            record.exc_info = None
        last = record.getMessage()
        record.msg, record.args = (
            f"{count} unreadable socket messages since the last line like this; the last: {last}",
            (),
        )
        return True


async def binary_only(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Middleware that closes a socket when it sends text, which makes Streamlit fail."""

    async def receive_bytes() -> Message:
        message = await receive()
        if message["type"] != "websocket.receive" or message.get("bytes") is not None:
            return message
        get_logger(__name__).warning(_TEXT)
        await send({"type": "websocket.close", "code": _UNSUPPORTED})
        return {"type": "websocket.disconnect", "code": _UNSUPPORTED}

    await app(scope, receive_bytes if scope["type"] == "websocket" else receive, send)


def bound_log() -> None:
    """Installs the log filter for unreadable messages."""
    log_filter = _OneLineAMinute()
    for name in _LOGGERS:
        get_logger(name).addFilter(log_filter)


def _relative_location(path: str, location: str) -> str:
    """Streamlit's redirect for a path with trailing slashes, as a relative address: a proxy may have removed a prefix of the path."""
    page, mark, query = location.partition("?")
    return "../" * (len(path) - len(path.rstrip("/"))) + page.rpartition("/")[2] + mark + query


def _is_operator(scope: Scope) -> bool:
    """Whether a request for a path of operators comes from where they are, and not through a proxy, which sets X-Forwarded-For."""
    if "X-Forwarded-For" in Headers(scope=scope):
        return False
    peer, *_ = scope.get("client") or ("",)
    try:
        address = ip_address(peer)
    except ValueError:  # such as a socket in the file system
        return not peer
    return address.is_loopback or (address.is_private and scope["path"].endswith(_HEALTH))


async def with_headers(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Middleware that adds our headers to every answer and hides the operators' paths from visitors."""

    async def send_with_headers(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.accept"):
            headers = MutableHeaders(scope=message)
            headers.update(_HEADERS | _REPLICA)
            if headers.get("Location", "").startswith("/") and scope["path"].endswith("/"):
                headers["Location"] = _relative_location(scope["path"], headers["Location"])
        await send(message)

    if scope["type"] == "http" and scope["path"].endswith((_METRICS, _HEALTH)) and not _is_operator(scope):
        await PlainTextResponse("Not found", 404)(scope, receive, send_with_headers)
    else:
        await app(scope, receive, send_with_headers)


def _is_allowed(site: str, host: str) -> bool | None:
    """Whether pages of a site, such as https://a.example, may open sockets to the server called `host`; None for its own pages."""
    try:
        origin = urlsplit(site)
        name = origin.hostname
    except ValueError:
        return False
    if host and origin.netloc == host:
        return None
    allowed = map(str.strip, st.get_option("server.corsAllowedOrigins"))
    urls = (text if "://" in text else f"//{text}" for text in allowed)
    return name in {
        *_LOCAL,
        "0.0.0.0",
        st.get_option("browser.serverAddress"),
        *(urlsplit(url).hostname for url in urls),
    }


async def allowed_origins(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Middleware that rejects sockets from pages of sites that are not allowed.

    Streamlit accepts a socket from another site if that site has this machine's external address, which Streamlit requests from a service.
    This middleware decides first, with Streamlit's own options but without that address. It removes the Origin header of allowed
    sockets, so that Streamlit makes no comparison of its own.
    """
    if scope["type"] != "websocket" or not st.get_option("server.enableCORS"):
        await app(scope, receive, send)
        return
    headers = Headers(scope=scope)
    site, host = headers.get("Origin"), headers.get("Host", "")
    allowed = None if site is None else _is_allowed(site, host)
    if allowed is False:
        get_logger(__name__).warning("A page of %r may not open a socket to %r.", site, host)
        await send({"type": "websocket.close", "code": _REFUSED})
        return
    if allowed:
        scope = {**scope, "headers": [header for header in scope["headers"] if header[0].lower() != b"origin"]}
    await app(scope, receive, send)


async def allowed_hosts(app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
    """Middleware that answers only to names of this machine, where users may open any folder of it.

    A page of another site whose name is made to resolve to 127.0.0.1 (DNS rebinding) has that name in Host. Any port is allowed,
    since containers and SSH forward to others.
    """
    if scope["type"] == "lifespan" or not limits.ALLOW_LOCAL_MODELS:
        await app(scope, receive, send)
        return
    host = Headers(scope=scope).get("Host", "")
    try:
        name = urlsplit(f"//{host}").hostname
    except ValueError:
        name = None
    if name in {*_LOCAL, *limits.ALLOWED_HOSTS}:
        await app(scope, receive, send)
    elif scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": _REFUSED})
    else:
        sentence = (
            f"This Lab may open folders of its machine, so it answers to {', '.join(_LOCAL)} and the names in LAB_ALLOWED_HOSTS; "
            f"got {host[:100]!r}: open it as localhost, or add the name."
        )
        await PlainTextResponse(sentence, 421)(scope, receive, send)
