"""Tabs of Firefox and of WebKitGTK, with that part of Playwright's pages which the helpers of conftest.py use.

Playwright 1.65 cannot drive Debian's Firefox 153, since it sends a command that this one does not know; Selenium drives it
through geckodriver, which Debian does not have. So both are asked by the W3C's protocols: Firefox itself serves WebDriver
BiDi, WebKitGTK's driver the older WebDriver, and the actions of mouse and keyboard are the same in both.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from conftest import PATIENCE, free_port
from playwright.sync_api import TimeoutError as TooLong
from websockets.sync.client import ClientConnection, connect

SECONDS = PATIENCE // 1000
# The first script of a page: what goes wrong while it loads and later. Playwright has events for that; WebDriver has none.
WATCH = """window.complaints = [];
{ const complain = (kind, what) => window.complaints.push(`${kind}: ${what}`);
  addEventListener('error', ({ error }) => error && complain('exception', `${error} ${error.stack}`)); // a ResizeObserver without peace has no error
  addEventListener('unhandledrejection', ({ reason }) => complain('rejection', `${reason} ${reason?.stack ?? ''}`));
  addEventListener('securitypolicyviolation', (event) => complain('policy', `${event.effectiveDirective} ${event.blockedURI} ${event.sourceFile}`));
  const { error } = console;
  console.error = (...all) => { complain('console', all.map((each) => each?.stack ?? each).join(' ')); error.apply(console, all); };
  window.outside = (url) => complain('fetched from outside', url); }"""
# Streamlit's reader of messages asks for WebAssembly, to multiply 64-bit integers, and multiplies them itself where it
# may not have it. Our policy allows no code made at run time, and Firefox reports that it was asked for.
EXPECTED = re.compile(r"policy: script-src wasm-eval \S+/static/js/protobuf\.[\w-]+\.js")
DOWN = {"type": "pointerDown", "button": 0}
UP = {"type": "pointerUp", "button": 0}
CONTROL = "\ue009"
Action = dict[str, Any]


def to(x: float, y: float) -> Action:
    return {"type": "pointerMove", "x": round(x), "y": round(y)}


class Mouse:
    """The mouse of a tab."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab

    def _do(self, *actions: Action) -> None:
        self._tab.perform({"type": "pointer", "id": "mouse", "actions": actions})

    def move(self, x: float, y: float) -> None:
        self._do(to(x, y))

    def down(self) -> None:
        self._do(DOWN)

    def up(self) -> None:
        self._do(UP)

    def click(self, x: float, y: float) -> None:
        self._do(to(x, y), DOWN, UP)


class Keyboard:
    """The keyboard of a tab."""

    def __init__(self, tab: Tab) -> None:
        self._tab = tab

    def _do(self, *actions: tuple[str, str]) -> None:
        keys = [{"type": kind, "value": key} for kind, key in actions]
        self._tab.perform({"type": "key", "id": "keyboard", "actions": keys})

    def select_all(self) -> None:
        """Control+a."""
        self._do(("keyDown", CONTROL), ("keyDown", "a"), ("keyUp", "a"), ("keyUp", CONTROL))

    def type(self, text: str) -> None:
        for letter in text:
            self._do(("keyDown", letter), ("keyUp", letter))


class Element:
    """The first element of a selector, as it is when something is asked of it."""

    def __init__(self, tab: Tab, selector: str) -> None:
        self._tab = tab
        self._found = f"document.querySelector({json.dumps(selector)})"

    def evaluate(self, function: str) -> Any:
        return self._tab.evaluate(f"({function})({self._found})")

    def inner_text(self) -> str:
        return str(self.evaluate("(element) => element.innerText"))

    def box(self) -> tuple[float, float, float, float]:
        """Its left, top, width and height, once it is in the middle of the screen."""
        x, y, width, height = self.evaluate(
            """(element) => { element.scrollIntoView({ block: 'center' });
                const { x, y, width, height } = element.getBoundingClientRect();
                return [x, y, width, height]; }"""
        )
        return x, y, width, height

    def click(self) -> None:
        x, y, width, height = self.box()
        self._tab.mouse.click(x + width / 2, y + height / 2)


class Tab(ABC):
    """The only tab of a browser."""

    def __init__(self, downloads: Path) -> None:
        self._downloads = downloads
        self.mouse = Mouse(self)
        self.keyboard = Keyboard(self)
        self._complaints: list[str] = []

    def goto(self, address: str) -> None:
        """Opens an address, and waits until its page has loaded."""
        self._complaints += self.evaluate("window.complaints ?? []")
        self.navigate(address)

    def complaints(self) -> list[str]:
        """What went wrong in the pages since this was asked the last time; none is open then."""
        self.goto("about:blank")
        said, self._complaints = self._complaints, []
        return [each for each in said if not EXPECTED.fullmatch(each)]

    @abstractmethod
    def navigate(self, address: str) -> None:
        """As `goto`, whatever the page before it complains about."""

    @abstractmethod
    def perform(self, actions: Action) -> None:
        """Lets the mouse or the keyboard act."""

    @abstractmethod
    def screenshot(self) -> bytes:
        """What is seen, as PNG."""

    @abstractmethod
    def resize(self, width: int, height: int) -> None:
        """Gives the page this size."""

    @abstractmethod
    def _value_of(self, promise: str) -> str | None:
        """The text of a promise in the page."""

    def evaluate(self, expression: str, arg: Any = None) -> Any:
        """The value of an expression, or of a function of `arg`."""
        value = f"typeof given === 'function' ? given({json.dumps(arg)}) : given"
        text = self._value_of(
            f"(async () => {{ const given = ({expression}); return JSON.stringify(await ({value})); }})()"
        )
        return None if text is None else json.loads(text)

    def wait_for_function(self, expression: str, arg: Any = None) -> None:
        """Waits until the value is true, and asks once a frame."""
        ends = time.monotonic() + SECONDS
        condition = f"""async (arg) => {{ await new Promise(requestAnimationFrame);
            const given = ({expression}); return Boolean(typeof given === 'function' ? await given(arg) : given); }}"""
        while not self.evaluate(condition, arg):
            if time.monotonic() > ends:
                raise TooLong(f"not true after {SECONDS} s: {expression}")

    def bring_to_front(self) -> None:  # noqa: B027 - there is one tab, which is in front
        """As in Playwright."""

    def download(self, act: Callable[[], object]) -> bytes:
        """The only file that an action downloads."""
        act()
        ends = time.monotonic() + SECONDS
        while time.monotonic() < ends:
            files = [path for path in self._downloads.iterdir() if path.stat().st_size]
            if len(files) == 1 and files[0].suffix not in (".part", ".wkdownload"):
                content = files[0].read_bytes()
                files[0].unlink()
                return content
            time.sleep(0.1)
        raise TooLong(f"no file after {SECONDS} s")

    def locator(self, selector: str) -> Element:
        return Element(self, selector)


class Firefox(Tab):
    """A tab of Firefox, asked by WebDriver BiDi: https://w3c.github.io/webdriver-bidi."""

    def __init__(self, downloads: Path, socket: ClientConnection) -> None:
        super().__init__(downloads)
        self._socket = socket
        self._asked = 0
        self.ask("session.new", capabilities={})
        self._context = self.ask("browsingContext.getTree")["contexts"][0]["context"]

    def ask(self, method: str, **parameters: Any) -> Any:
        self._asked += 1
        self._socket.send(json.dumps({"id": self._asked, "method": method, "params": parameters}))
        answer = json.loads(self._socket.recv(SECONDS))
        assert (answer["type"], answer["id"]) == ("success", self._asked), answer
        return answer["result"]

    def navigate(self, address: str) -> None:
        self.ask("browsingContext.navigate", context=self._context, url=address, wait="complete")

    def perform(self, actions: Action) -> None:
        self.ask("input.performActions", context=self._context, actions=[actions])

    def screenshot(self) -> bytes:
        return b64decode(self.ask("browsingContext.captureScreenshot", context=self._context)["data"])

    def resize(self, width: int, height: int) -> None:
        viewport = {"width": width, "height": height}
        self.ask("browsingContext.setViewport", context=self._context, viewport=viewport)

    def _value_of(self, promise: str) -> str | None:
        target = {"context": self._context}
        answer = self.ask("script.evaluate", expression=promise, target=target, awaitPromise=True)
        assert answer["type"] == "success", answer["exceptionDetails"]["text"]
        return answer["result"].get("value")


class WebKit(Tab):
    """A tab of WebKitGTK, asked by WebDriver: https://www.w3.org/TR/webdriver2."""

    def __init__(self, downloads: Path, driver: str) -> None:
        super().__init__(downloads)
        self._session = f"{driver}/session"
        self._session += f"/{self.ask('', capabilities={})['sessionId']}"
        self.ask("/timeouts", script=PATIENCE)

    def ask(self, command: str, **parameters: Any) -> Any:
        return self._answer(Request(self._session + command, json.dumps(parameters).encode()))

    def _answer(self, request: Request) -> Any:
        try:
            with urlopen(request, timeout=SECONDS) as answer:
                return json.load(answer)["value"]
        except HTTPError as error:
            pytest.fail(f"{request.full_url}: {error.read().decode()}")

    def navigate(self, address: str) -> None:
        self.ask("/url", url=address)

    def perform(self, actions: Action) -> None:
        self.ask("/actions", actions=[actions])

    def screenshot(self) -> bytes:
        return b64decode(self._answer(Request(f"{self._session}/screenshot")))

    def resize(self, width: int, height: int) -> None:
        inner = self.evaluate("[innerWidth, innerHeight]")
        outer = self._answer(Request(f"{self._session}/window/rect"))
        more = outer["width"] - inner[0], outer["height"] - inner[1]
        self.ask("/window/rect", width=width + more[0], height=height + more[1])
        self.wait_for_function("(size) => innerWidth === size[0] && innerHeight === size[1]", [width, height])

    def close(self) -> None:
        """Ends the browser, which the driver has started."""
        self._answer(Request(self._session, method="DELETE"))

    def _value_of(self, promise: str) -> str | None:
        return self.ask("/execute/sync", script=f"return {promise}", args=[])


@contextmanager
def serving(port: int, *command: str, **environment: str) -> Iterator[None]:
    """A process that listens on a port of this machine."""
    process = subprocess.Popen(command, env={**os.environ, **environment}, stderr=subprocess.DEVNULL)
    try:
        for _ in range(SECONDS * 10):
            assert process.poll() is None, f"{command[0]} has ended"
            try:
                socket.create_connection(("127.0.0.1", port)).close()
                break
            except OSError:
                time.sleep(0.1)
        yield
    finally:
        process.terminate()
        process.wait(SECONDS)


def program(name: str) -> str:
    """The path of a program."""
    path = shutil.which(name)
    if path is None:
        pytest.fail(f"these tests need {name}: `make browsers` installs it")
    return path


@contextmanager
def firefox(profile: Path, downloads: Path, port: int) -> Iterator[Tab]:
    settings = {"browser.download.folderList": 2, "browser.download.dir": str(downloads)}
    lines = [f"user_pref({json.dumps(name)}, {json.dumps(value)});" for name, value in settings.items()]
    (profile / "user.js").write_text("\n".join(lines))
    command = program(os.environ.get("FIREFOX", "firefox-esr"))
    options = ["--headless", f"--remote-debugging-port={port}", "--profile", str(profile)]
    with serving(port, command, *options), connect(f"ws://127.0.0.1:{port}/session", max_size=None) as socket:
        yield Firefox(downloads, socket)


@contextmanager
def webkit(profile: Path, downloads: Path, port: int) -> Iterator[Tab]:
    (profile / "user-dirs.dirs").write_text(f'XDG_DOWNLOAD_DIR="{downloads}"\n')
    with serving(port, program("WebKitWebDriver"), f"--port={port}", XDG_CONFIG_HOME=str(profile)):
        tab = WebKit(downloads, f"http://127.0.0.1:{port}")
        try:
            yield tab
        finally:
            tab.close()


@contextmanager
def running(engine: str, folder: Path) -> Iterator[Tab]:
    """A tab of Firefox or of WebKit, whose settings and downloads lie in the folder."""
    profile, downloads = folder / "profile", folder / "downloads"
    profile.mkdir()
    downloads.mkdir()
    with {"Firefox": firefox, "WebKit": webkit}[engine](profile, downloads, free_port()) as tab:
        tab.resize(1440, 1000)
        yield tab
