"""Three servers behind nginx with the configuration that compose.yaml uses, and browsers that visit them."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Protocol, Self
from urllib.request import Request, urlopen

from playwright.sync_api import BrowserContext, ConsoleMessage, Error, Page

LOST = ("WebSocket connection", "Failed to load resource", "ERR_")  # console messages about a killed server


Process = subprocess.Popen[bytes]


class Replicas:
    """Servers by address, and the proxy in front of them with its access log; a context manager."""

    def __init__(
        self,
        servers: dict[str, Process],
        replica: Callable[[int], Process],
        proxy: Callable[[list[str]], AbstractContextManager[tuple[str, Path]]],
    ) -> None:
        self.servers, self._replica, self._proxy, self._stack = servers, replica, proxy, ExitStack()

    def __enter__(self) -> Self:
        self.home, self.log = self._stack.enter_context(self._proxy(list(self.servers)))
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def restart(self, proxy: bool = True) -> None:
        """Restarts killed servers, and the proxy, which would avoid them for a while; empties the log."""
        killed = [address for address, process in self.servers.items() if process.poll() is not None]
        for address in killed:
            self.servers[address] = self._replica(int(address.rpartition(":")[2]))
        if killed and proxy:
            self._stack.close()
            self.__enter__()
        self.log.write_text("")

    def get(self, path: str, route: str = "", replica: str = "", **headers: str) -> tuple[bytes, dict[str, str]]:
        cookie = {"Cookie": f"route={route}; replica={replica}"} if route else {}
        with urlopen(Request(self.home + path, headers={**cookie, **headers}), timeout=60) as answer:
            return answer.read(), {name.lower(): value for name, value in answer.getheaders()}

    def of_route(self, route: str, replica: str = "") -> str:
        """The server that would serve a visitor with these cookies now."""
        path = f"/asked-{time.monotonic_ns()}"
        self.get(path, route, replica)
        (server,) = self.served(f"{path} ")
        return server

    def of(self, visitor: Visitor) -> str:
        """The server that would serve a visitor now."""
        return self.of_route(visitor.cookies["route"], visitor.cookies["replica"])

    def route_to(self, wanted: Callable[[str], bool]) -> str:
        return next(route for i in range(200) if wanted(self.of_route(route := f"{i:032x}")))

    def served(self, request: str) -> set[str]:
        """The servers that answered matching requests, from the proxy's log."""
        for _ in range(600):  # a line is written when the answer has been sent
            lines = [line for line in self.log.read_text().splitlines() if re.search(request, line)]
            if lines:
                return {line.rsplit(maxsplit=1)[-1] for line in lines}  # after a retry, the last server
            time.sleep(0.1)
        raise AssertionError(f"no request like {request} was logged")


class Tabs(Protocol):
    """A pool that lends pages to visitors."""

    context: BrowserContext

    def take(self) -> Page: ...

    def give_back(self, page: Page) -> None: ...


class Visitor:
    """A new visitor with a browser, and its console errors except those about killed servers."""

    def __init__(self, tabs: Tabs, home: str) -> None:
        self.tabs, self.home, self.complaints, self.killed = tabs, home, list[str](), False
        self.context, self.pages = tabs.context, list[Page]()

    def open(self, path: str, route: str = "") -> Page:
        page = self.tabs.take() if not self.pages else self.context.new_page()
        if route:
            self.context.add_cookies([{"name": "route", "value": route, "url": self.home}])
        self.pages.append(page)
        page.on("console", self.heard)
        page.on("pageerror", self.broke)
        page.goto(self.home + path if path.startswith("/") else path)
        return page

    def leave(self) -> None:
        """Returns the first page to the pool, and closes the others."""
        for i, page in enumerate(self.pages):
            page.remove_listener("console", self.heard)
            page.remove_listener("pageerror", self.broke)
            page.close() if i else self.tabs.give_back(page)

    def broke(self, error: Error) -> None:
        self.complaints.append(str(error))

    def heard(self, message: ConsoleMessage) -> None:
        lost = self.killed and any(word in message.text for word in LOST)
        if message.type == "error" and not lost:
            self.complaints.append(f"{message.text} {message.location}")

    @property
    def cookies(self) -> dict[str, str]:
        return {cookie["name"]: cookie["value"] for cookie in self.context.cookies()}
