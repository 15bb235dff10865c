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

LOST = ("WebSocket connection", "Failed to load resource", "ERR_")  # what a browser says of a server that is gone


Process = subprocess.Popen[bytes]


class Replicas:
    """Servers by their address, and the proxy before them with its access log; used with `with`."""

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
        """Starts servers anew that were killed, and the proxy, which would shun them for a while; its log is empty."""
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
        """The server that a visitor with these cookies gets now."""
        asked = f"/asked-{time.monotonic_ns()}"
        self.get(asked, route, replica)
        (server,) = self.served(f"{asked} ")
        return server

    def of(self, visitor: Visitor) -> str:
        """The server that a visitor gets now."""
        return self.of_route(visitor.cookies["route"], visitor.cookies["replica"])

    def route_to(self, wanted: Callable[[str], bool]) -> str:
        return next(route for i in range(200) if wanted(self.of_route(route := f"{i:032x}")))

    def served(self, request: str) -> set[str]:
        """The servers that answered requests like this one, from the proxy's log."""
        for _ in range(600):  # a line is written when the answer has been sent
            lines = [line for line in self.log.read_text().splitlines() if re.search(request, line)]
            if lines:
                return {line.rsplit(maxsplit=1)[-1] for line in lines}  # the last one, where others did not answer
            time.sleep(0.1)
        raise AssertionError(f"no request like {request} was logged")


class Tabs(Protocol):
    """Where a visitor's pages come from, and go to."""

    context: BrowserContext

    def take(self) -> Page: ...

    def give_back(self, page: Page) -> None: ...


class Visitor:
    """Somebody with a browser that has not been here, and what it complains of, beyond a server that was killed."""

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
        """Gives the first page to the next visitor, and closes the others."""
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
