"""What the tests of the pages share: a running server, a browser, and what a figure message holds."""

from __future__ import annotations

import json
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import hypothesis
import numpy as np
import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, Request, expect, sync_playwright
from replicas import Replicas, Visitor, running_proxy

# As the server does: with more threads BLAS sums in another order, and the last bit differs.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# No test asks how fast the machine is: whatever waits does so for a minute, and what comes at once costs nothing.
PATIENCE = 60_000  # milliseconds
expect.set_options(timeout=PATIENCE)
# The same examples in every run, so that a red test means a change; `--hypothesis-profile=default` looks for others.
hypothesis.settings.register_profile(
    "lab", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("lab")

ROOT = Path(__file__).parents[1]
# Before it finds its base path, Streamlit's page asks for these below the page's own path.
STREAMLITS_OWN_404 = ("/_stcore/health", "/_stcore/host-config")


def unpack(message: bytes) -> list[dict[str, Any]]:
    """The figures of one message to the figure component, arrays as numpy: what the page will paint."""
    (size,) = struct.unpack_from("<I", message)
    start = 4 + size

    def revive(value: dict[str, Any]) -> Any:
        if "array" not in value:
            return value
        place = value["array"]
        count = int(np.prod(place["shape"]))
        return np.frombuffer(message, place["dtype"], count, start + place["at"]).reshape(place["shape"])

    return json.loads(message[4:start], object_hook=revive)["figures"]


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@contextmanager
def running_process(**environment: str) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A Streamlit server of our app on a free port: its address and its process."""
    port = free_port()
    command = [sys.executable, "-m", "streamlit", "run", "app.py", f"--server.port={port}"]
    options = ["--server.address=127.0.0.1", "--server.headless=true", "--server.fileWatcherType=none"]
    env = {**os.environ, **environment}
    process = subprocess.Popen(
        [*command, *options], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            try:
                if urlopen(f"{address}/_stcore/health", timeout=1).read() == b"ok":
                    break
            except OSError:
                assert process.poll() is None, process.stderr and process.stderr.read().decode()
            time.sleep(0.1)
        else:
            pytest.fail("the server did not become healthy in 30 seconds")
        yield address, process
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=15)
    assert b"Traceback" not in errors, errors.decode()


@contextmanager
def running_server() -> Iterator[str]:
    """A Streamlit server of our app on a free port; its address."""
    with running_process() as (address, _):
        yield address


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with running_server() as address:
        yield address


@contextmanager
def running_replicas(folder: Path) -> Iterator[Replicas]:
    """Three servers behind nginx, which writes into `folder`; each has run the page once, as in compose.yaml."""
    checked = {"STREAMLIT_SERVER_SCRIPT_HEALTH_CHECK_ENABLED": "true"}
    with ExitStack() as stack:
        processes = [stack.enter_context(running_process(**checked)) for _ in range(3)]
        for address, _ in processes:
            assert urlopen(f"{address}/_stcore/script-health-check", timeout=60).read() == b"ok"
        servers = {address.removeprefix("http://"): process for address, process in processes}
        home, log = stack.enter_context(running_proxy(folder, free_port(), list(servers)))
        yield Replicas(home, log, servers)


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    """Servers behind nginx that a test may kill."""
    with running_replicas(tmp_path) as running:
        yield running


@pytest.fixture
def visit(browser: Browser, replicas: Replicas) -> Iterator[Callable[..., Visitor]]:
    """A new visitor of the replicas; with `strict` the proxy's content policy holds for the tests too."""
    visitors: list[Visitor] = []

    def visit(strict: bool = False) -> Visitor:
        visitors.append(Visitor(browser, replicas.home, strict))
        return visitors[-1]

    yield visit
    for visitor in visitors:
        visitor.context.close()
        assert not visitor.complaints


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    if chromium is None:
        pytest.fail("these tests need Chromium: `make test` installs it, or set CHROMIUM to its path")
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        opened = playwright.chromium.launch(executable_path=chromium, args=options)
        yield opened
        opened.close()


@pytest.fixture(scope="session")
def contexts(browser: Browser) -> Iterator[dict[str, BrowserContext]]:
    """The browser contexts so far, by their options: a shared one has Plotly's script in its cache."""
    opened: dict[str, BrowserContext] = {}
    yield opened
    for context in opened.values():
        context.close()


@pytest.fixture
def open_page(browser: Browser, contexts: dict[str, BrowserContext]) -> Iterator[Callable[..., Page]]:
    """Opens a page; at the end nothing was fetched from outside and no error was logged.

    With `fresh` the browser has seen nothing before; other options are those of a browser context.
    """
    complaints: list[str] = []
    pages: list[Page] = []

    def open_page(address: str, fresh: bool = False, **options: Any) -> Page:
        name = f"fresh {time.monotonic_ns()}" if fresh else repr(options)
        if name not in contexts:
            contexts[name] = browser.new_context(**{"viewport": {"width": 1440, "height": 1000}, **options})
        page = contexts[name].new_page()
        pages.append(page)
        home = "/".join(address.split("/")[:3])

        def on_console(message: ConsoleMessage) -> None:
            if message.type == "error" and not message.location.get("url", "").endswith(STREAMLITS_OWN_404):
                complaints.append(f"console: {message.text} {message.location}")

        def on_request(request: Request) -> None:
            if not request.url.startswith((home, home.replace("http", "ws", 1), "blob:", "data:")):
                complaints.append(f"fetched from outside: {request.url}")

        page.on("console", on_console)
        page.on("pageerror", lambda error: complaints.append(f"page error: {error}"))
        page.on("request", on_request)
        page.goto(address)
        settled(page)
        return page

    yield open_page
    for page in pages:
        page.close()
    assert not complaints


def settled(page: Page) -> None:
    """Waits until the script has ended and every figure of the page is painted with its latest numbers."""
    page.wait_for_selector("[data-testid=stApp][data-test-script-state=notRunning]", timeout=60_000)
    page.wait_for_function(
        """() => { const all = [...document.querySelectorAll('.figures')];
            return all.length && all.every((root) => root.painted && root.painted === root.figures
                && !root.owes && performance.now() - (root.asked ?? -1000) > 150)
              && !document.querySelector('[data-stale=true]'); }""",
        timeout=60_000,
    )


def acted(page: Page, act: Callable[[], Any]) -> None:
    """Does something that sends the page to the server, and waits for the answer to be painted."""
    watch_runs(page)
    act()
    wait_for_run(page)
    settled(page)


def watch_runs(page: Page) -> None:
    """From now on a run of the script is noticed.

    A quick one, on a busy machine, starts and ends between two looks at the page: then its state never says
    "running", but every figure has got a new message.
    """
    page.evaluate(
        """() => { const app = document.querySelector('[data-testid=stApp]');
            const figures = () => [...document.querySelectorAll('.figures')].map((root) => root.figures);
            const before = figures();
            window.watching?.disconnect();
            window.running = false;
            window.watching = new MutationObserver(() => { window.running ||= app.dataset.testScriptState === 'running'; });
            window.watching.observe(app, {attributes: true, attributeFilter: ['data-test-script-state']});
            window.ran = () => window.running || figures().some((figure, i) => figure !== before[i]); }"""
    )


def wait_for_run(page: Page, timeout: float = 15_000) -> None:
    """Waits until the script has begun to run since `watch_runs`."""
    page.wait_for_function("window.ran()", timeout=timeout)


def painted(page: Page, index: int) -> np.ndarray:
    """The numbers of a figure as Plotly holds them in the page, gaps as NaN."""
    rows = page.evaluate(
        """(i) => document.querySelectorAll('.js-plotly-plot')[i].data[0].z.map((row) =>
            Array.from(row, (z) => Number.isFinite(z) ? z : null))""",
        index,
    )
    return np.array([[np.nan if z is None else z for z in row] for row in rows], dtype=np.float32)


def click_cell(page: Page, index: int, row: int, column: int) -> None:
    """Clicks the middle of a cell of a figure, as the person sees it now."""
    place = page.evaluate(
        """([i, row, column]) => { const plot = document.querySelectorAll('.js-plotly-plot')[i];
            plot.scrollIntoView({block: 'center'});
            const box = plot.getBoundingClientRect(), {xaxis, yaxis} = plot._fullLayout;
            return [box.x + xaxis._offset + xaxis.l2p(column), box.y + yaxis._offset + yaxis.l2p(row)]; }""",
        [index, row, column],
    )
    page.mouse.click(*place)
