"""A TCP proxy between a browser and a server that delays the server's WebSocket messages for as long as a test wants."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit


class Proxy:
    """Forwards every connection; messages over a WebSocket wait while it holds."""

    def __init__(self, server: str) -> None:
        self.host, _, port = urlsplit(server).netloc.partition(":")
        self.server_port = int(port)
        self.loop = asyncio.new_event_loop()
        self.opened = asyncio.Event()
        self.opened.set()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()
        started = asyncio.run_coroutine_threadsafe(asyncio.start_server(self._connect, "127.0.0.1", 0), self.loop)
        self.listening = started.result()
        self.address = f"http://127.0.0.1:{self.listening.sockets[0].getsockname()[1]}"

    def hold(self) -> None:
        """Holds all further answers."""
        self.loop.call_soon_threadsafe(self.opened.clear)

    def release(self) -> None:
        """Forwards all waiting answers, in order."""
        self.loop.call_soon_threadsafe(self.opened.set)

    def close(self) -> None:
        """Ends every connection."""

        async def end() -> None:
            self.listening.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self.loop).result()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            server_reader, server_writer = await asyncio.open_connection(self.host, self.server_port)
        except OSError:
            writer.close()
            return
        is_socket = asyncio.Event()

        async def forward(source: asyncio.StreamReader, target: asyncio.StreamWriter, answers: bool) -> None:
            with suppress(OSError, asyncio.CancelledError):
                while data := await source.read(2**16):
                    if not answers and b"upgrade: websocket" in data.lower():
                        is_socket.set()
                    if answers and is_socket.is_set():
                        await self.opened.wait()
                    target.write(data)
                    await target.drain()
            target.close()

        with suppress(asyncio.CancelledError):
            await asyncio.gather(forward(reader, server_writer, False), forward(server_reader, writer, True))
        writer.close()
        server_writer.close()


@contextmanager
def delaying(server: str) -> Iterator[Proxy]:
    """A delaying proxy in front of a server."""
    proxy = Proxy(server)
    try:
        yield proxy
    finally:
        proxy.close()
