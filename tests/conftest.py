"""Fixtures and helpers of the page tests: a running server, a browser, the content of figure messages."""

from __future__ import annotations

import gc
import os

# As the server does, and before torch is imported: with more threads BLAS sums in another order, and the last bit differs.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import json
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

import hypothesis
import margins
import numpy as np
import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    ConsoleMessage,
    Error,
    Frame,
    FrameLocator,
    Locator,
    Page,
    expect,
    sync_playwright,
)
from playwright.sync_api import TimeoutError as TooLong
from replicas import Replicas, Visitor
from streamlit.components.v2 import manifest_scanner
from streamlit.testing.v1 import AppTest
from xdist.scheduler import LoadScopeScheduling

from attention.base.knobs import to_text
from attention.features import NAMES
from attention.sources.state import Set, apply
from benchmarks.proxy import running_proxy
from pages.ui.server import assets

if TYPE_CHECKING:
    from browsers import Tab
    from tiny_models import TinyModels
    from tiny_pictures import TinyPictureModels
    from tiny_videos import TinyVideoModels
    from xdist.workermanage import WorkerController

pytest_plugins = ["markers"]  # quick, sample

# Tests of one room use helpers of another's, also where only one file is run.
sys.path += [str(folder) for folder in Path(__file__).parent.glob("**/") if "__pycache__" not in folder.parts]

# Each AppTest scans the metadata of every installed package, which takes five times as long as a page: once is enough.
manifest_scanner.scan_component_manifests = cache(manifest_scanner.scan_component_manifests)

# No test depends on the speed of the machine: every wait lasts up to three minutes and ends as soon as its condition holds.
PATIENCE = 180_000  # milliseconds: a page may train a model first, beside other tests
expect.set_options(timeout=PATIENCE)
# The same examples in every run, so that a red test means a change; `--hypothesis-profile=default` looks for others.
hypothesis.settings.register_profile(
    "lab", deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("lab")

ROOT = Path(__file__).parents[1]
# Addresses that Streamlit's page polls until its server, which a test has stopped, runs again.
STREAMLITS_PROBES = ("/_stcore/health", "/_stcore/host-config")

# A site that may frame the tests' server. Streamlit would obey such a page by default.
FRAMED_BY = "https://course.streamlit.app"
HUB = "https://huggingface.co"


class ByWhatTheyShare(LoadScopeScheduling):
    """Distributes the tests over the workers: a file stays on one worker and makes its figures once; browser tests are separate;
    tests that need replicas share one set; tests of a real model share the server that has loaded it. The largest groups
    start first, so that all workers end at about the same time.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        if file.endswith(("test_browser_proxy.py", "test_browser_replicas.py")):
            return "test_browser, replicas"
        if file.endswith(("test_browser_heads.py", "test_browser_model.py")):
            return "test_browser, a real model"
        shared = file.endswith(("test_browser_kernel.py", "test_browser_png.py"))  # one empty page for all of it
        return nodeid if "test_browser" in file and not shared else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        """Every other worker begins with the browser's tests, the others end with them.

        A browser's test waits more than half of its time: for frames, and for what the page does not do at once. A processor
        would be idle meanwhile if all workers came to them at the end. A worker that begins elsewhere also opens its browser
        and its server, a gigabyte, later.
        """
        begins_in_browser = self.nodes.index(node) % 2 == 0
        preferred = (scope for scope in self.workqueue if ("test_browser" in scope) == begins_in_browser)
        if (scope := next(preferred, None)) is not None:
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--margins", type=Path, help="a folder for how much each comparison used of its tolerance")


def pytest_configure() -> None:
    if os.environ.get("LAB_TEST_ONEDNN") == "off":  # which no variable of torch's does
        from torch.backends import mkldnn

        mkldnn.set_flags(False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.option.margins:
        margins.write(session.config.option.margins)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByWhatTheyShare:
    return ByWhatTheyShare(config, log)  # the mark `xdist_group` is lost on pytest 9


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if "engines" not in config.option.markexpr:  # they need browsers that only `make browsers` installs
        items[:] = [item for item in items if not item.get_closest_marker("engines")]


@cache
def needs_what_is_gone(file: Path) -> bool:
    """Whether a test file imports a feature that was taken away, itself or through another test file."""
    gone = "|".join(name for name in NAMES if not (ROOT / "attention" / name).is_dir())
    text = file.read_text(encoding="utf-8")
    if not gone or re.search(rf"\b(?:attention|pages\.ui)\.(?:{gone})\b|from attention import .*\b(?:{gone})\b", text):
        return bool(gone)
    others = (
        next(Path(__file__).parent.rglob(f"{name}.py"), None) for name in re.findall(r"from (test_\w+) import", text)
    )
    return any(other is None or needs_what_is_gone(other) for other in others)


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Tests of a feature may use another feature as an example, and go where that is gone; tests of the trunk may not."""
    if collection_path.suffix != ".py":
        return None
    of_feature = collection_path.relative_to(ROOT / "tests").parts[0] in NAMES
    return (of_feature and needs_what_is_gone(collection_path)) or None


def pytest_collection_finish() -> None:
    gc.freeze()  # imported modules stay: scanning them in every collection takes a tenth of the tests' time


def examples_of(feature: str) -> dict[str, Any]:
    """The sources of a feature that other tests also try, by name, from the module named after it, such as tutorials_examples.py.

    Empty where the feature was taken away.
    """
    module = f"{feature}_examples"
    return import_module(module).SOURCES if find_spec(module) else {}


def unpack_figures(message: bytes) -> list[dict[str, Any]]:
    """The figures of one message to the figure component, with arrays as numpy: the numbers that the page will paint."""
    content = unpack_message(message)
    figures: list[dict[str, Any]] = content["figures"]
    for figure in figures:
        for image in figure["layout"].get("images", ()):
            image["source"] = content["sources"][image["source"]]
        first = figure["data"][0]
        if isinstance(first.get("z"), dict):  # the second minus the first, which the page computes
            maps = [drawn for drawn in figures if drawn["layout"]["meta"]["panels"]]
            minuend, other = (drawn["data"][0]["z"] for drawn in maps[:2])
            gaps = np.unpackbits(first["z"]["gaps"], count=minuend.size, bitorder="little").reshape(minuend.shape)
            first["z"] = np.where(gaps == 1, np.float32(np.nan), other - minuend)
    return figures


def unpack_message(message: bytes) -> dict[str, Any]:
    """One message to the figure component: its figures, and the strip, controls and line around them."""
    (size,) = struct.unpack_from("<I", message)
    start = 4 + size

    def revive(value: dict[str, Any]) -> Any:
        if "array" not in value:
            return value
        place = value["array"]
        count = int(np.prod(place["shape"]))
        return np.frombuffer(message, place["dtype"], count, start + place["at"]).reshape(place["shape"])

    content: dict[str, Any] = json.loads(message[4:start], object_hook=revive)
    return content


def component_message(app: AppTest, last: bool = False) -> dict[str, Any]:
    """The message to the component of the maps, or to the `last` one with controls, with the controls and the steps of the strip by name."""
    messages = [each.proto.bytes for each in app.get("bidi_component") if b'"controls":[{' in each.proto.bytes]
    message = unpack_message(messages[-1 if last else 0])
    by_name = {part: {entry["name"]: entry for entry in message[part] or ()} for part in ("controls", "strip")}
    return {**message, **by_name}


def redirected(address: str) -> str:
    """The address that the server answers with; the same one, unless it is that of a former page."""
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    from pages.ui.server.moved import former_pages

    client = TestClient(partial(former_pages, Starlette()), follow_redirects=False)
    answer = client.get(address)
    return urljoin(address, answer.headers["Location"]) if answer.status_code == 307 else address


def state_of_address(app: AppTest) -> dict[str, str]:
    """The state that the page writes into its address, by key."""
    answers = [
        component.proto.json
        for component in app.get("bidi_component")
        if component.proto.component_name == "attention_address"
    ]
    last: dict[str, Any] = max(map(json.loads, answers), key=lambda answer: answer["serial"])
    state: dict[str, str] = last["state"]
    return state


def texts_of(app: AppTest) -> Mapping[str, str]:
    """The knobs of a page that differ from their defaults, as texts by key."""
    texts: Mapping[str, str] = app.session_state["session"].state.texts
    return texts


def set_knobs(app: AppTest, **knobs: Any) -> AppTest:
    """Sets knobs as the component does, which AppTest cannot click."""
    session = app.session_state["session"]
    session.state = apply(session.state, Set({key: to_text(value) for key, value in knobs.items()}))
    return app.run()


def page_has_seen(app: AppTest) -> None:
    """Tells the server, as address.js does, that the page has drawn its last answer: no message on its way has older values."""
    session = app.session_state["session"]
    app.session_state["address"] = {"acts": {"session": session.name, "seen": session.answers_sent, "acts": []}}
    app.run()


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def script_address(server: str, name: str) -> str:
    """The address of one of our scripts on a server."""
    return f"{server}/{assets._script(name).removeprefix('./')}"


@contextmanager
def running_process(
    port: int = 0, main_file: str = "app.py", **environment: str
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A Streamlit server of our app, on a free port by default: its address and its process."""
    port = port or free_port()
    command = [sys.executable, "-m", "streamlit", "run", main_file, f"--server.port={port}"]
    options = ["--server.address=127.0.0.1", "--server.headless=true", "--server.fileWatcherType=none"]
    env = {**os.environ, **environment}
    process = subprocess.Popen(
        [*command, *options], cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(PATIENCE // 100):
            try:
                if urlopen(f"{address}/_stcore/health", timeout=60).read() == b"ok":
                    break
            except OSError:
                assert process.poll() is None, process.stderr and process.stderr.read().decode()
            time.sleep(0.1)
        else:
            pytest.fail("the server did not become healthy in three minutes")
        yield address, process
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=60)
    assert b"Traceback" not in errors, errors.decode()
    assert process.returncode in (0, -signal.SIGKILL)  # the second when a test kills it


@contextmanager
def running_server() -> Iterator[str]:
    """A Streamlit server of our app on a free port: its address."""
    with running_process(LAB_FRAME_ANCESTORS=f"{FRAMED_BY} {HUB}") as (address, _):
        yield address


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> TinyModels:
    """Returns the folder of a tiny model of any family: tiny("GPT-2")."""
    from tiny_models import (
        TinyModels,
    )  # imports torch, which the distributing process does not need

    return TinyModels(tmp_path_factory.mktemp("models"))


@pytest.fixture(scope="session")
def tokenizer() -> Any:
    """A byte-level tokenizer, for models in memory."""
    from tiny_models import SENTENCES, byte_level

    return byte_level(SENTENCES)


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A browser that asks for exports; both lines are new, so that no other test's files wait in them."""
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    from pages.ui.exports import route
    from pages.ui.server import heavy

    for name, places in (("LINE", 2), ("FILES", 1)):
        monkeypatch.setattr(heavy, name, heavy._Line(places, lambda _: 2**30))
    with TestClient(Starlette(routes=route.routes()), headers={"Accept-Encoding": "gzip, br"}) as test_client:
        yield test_client


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    with running_server() as address:
        yield address


@pytest.fixture(scope="session")
def all_replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Three servers behind nginx; each has run the page once, as compose.yaml requires."""

    def replica(port: int) -> subprocess.Popen[bytes]:
        environment = {
            "STREAMLIT_SERVER_SCRIPT_HEALTH_CHECK_ENABLED": "true",
            "LAB_FRAME_ANCESTORS": "http://localhost:*",
        }
        environment["LAB_REPLICA"] = f"lab-{ports.index(port) + 1}"
        address, process = stack.enter_context(running_process(port, **environment))
        assert urlopen(f"{address}/_stcore/script-health-check", timeout=60).read() == b"ok"
        return process

    with ExitStack() as stack:
        ports = [free_port() for _ in range(3)]
        proxy = partial(running_proxy, tmp_path_factory.mktemp("proxy"), free_port())
        yield stack.enter_context(Replicas({f"127.0.0.1:{port}": replica(port) for port in ports}, replica, proxy))


@pytest.fixture
def replicas(all_replicas: Replicas) -> Replicas:
    """Servers behind nginx that a test may kill: the next test finds all of them running, and an empty log."""
    all_replicas.restart()
    return all_replicas


@pytest.fixture
def visit(browser: Browser, contexts: dict[str, Tabs], replicas: Replicas) -> Iterator[Callable[..., Visitor]]:
    """A new visitor of the replicas; with `strict` the proxy's content policy holds for the tests too."""
    visitors: list[Visitor] = []

    def visit(strict: bool = False) -> Visitor:
        # Playwright waits with `eval`, which the policy forbids; `strict` leaves the policy in force for tests about it.
        place = f"visitor {len(visitors)}, strict: {strict}"  # all first visitors of tests share one context
        if place not in contexts:
            options: Any = {"viewport": {"width": 1440, "height": 1000}, "bypass_csp": not strict}
            contexts[place] = Tabs(instrument(browser.new_context(**options)), fresh=True, cold=True)
        visitors.append(Visitor(contexts[place], replicas.home))
        return visitors[-1]

    yield visit
    for visitor in visitors:
        visitor.leave()
        assert not visitor.complaints


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which(os.environ.get("CHROMIUM", "chromium"))
    if chromium is None:
        pytest.fail("these tests need Chromium: `make test` installs it, or set CHROMIUM to its path")
    with sync_playwright() as playwright:
        # Chromium keeps a hidden page ready behind every window, for its address bar: half of the tests' processor time.
        # Only the last such list counts, so it repeats the features that Playwright disables.
        unused = (
            "WebUIOmniboxPopup,WebUIOmniboxFullPopup,WebUIOmniboxAimPopup,PaintHolding,OptimizationHints,LensOverlay"
        )
        unused += ",MediaRouter,HttpsUpgrades,ThirdPartyStoragePartitioning,AvoidUnnecessaryBeforeUnloadCheckSync"
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        options.append("--process-per-site")  # the second tab reuses the scripts that the first has compiled
        options.append("--in-process-gpu")  # a GPU process of its own would only be idle
        options.append(f"--disable-features={unused}")
        opened = playwright.chromium.launch(executable_path=chromium, args=options)
        yield opened
        opened.close()


# Streamlit's protocol reports when a rerun is requested, begins and ends; its page may skip some of these states.
LISTEN = """{ const RERUN = 11, NEW_SESSION = 4, SCRIPT_FINISHED = 6; // fields of BackMsg and ForwardMsg
    const kind = (bytes) => { // the field of a message after its hash (1) and metadata (2)
        for (let at = 0, length, shift; at < bytes.length; at += length) {
            const field = bytes[at++] >> 3;
            if (field > 2) return field;
            for (length = shift = 0; ; shift += 7) { const byte = bytes[at++]; length |= (byte & 127) << shift; if (byte < 128) break; }
        } };
    window.script = { state: 'none', runs: 0 };
    window.sent = (numbers, shape) => { // for `received`
        const bytes = new Uint8Array(numbers.buffer);
        let text = '';
        for (let at = 0; at < bytes.length; at += 32768) text += String.fromCharCode(...bytes.subarray(at, at + 32768));
        return [btoa(text), shape]; };
    window.shifted = 0; // the sum of the layout shifts so far
    new PerformanceObserver((list) => { for (const { value } of list.getEntries()) window.shifted += value; }).observe({ type: 'layout-shift', buffered: true });
    // Playwright would report each of the 230 requests of a page, for a fourteenth of the page's processor time.
    const report = (url) => { if (!/^(blob|data):/.test(url) && new URL(url).host !== location.host) window.outside?.(url); };
    new PerformanceObserver((list) => { for (const { name } of list.getEntries()) report(name); }).observe({ type: 'resource', buffered: true });
    window.WebSocket = class extends WebSocket {
        constructor(...all) {
            super(...all);
            report(this.url);
            window.script.state = 'none';
            this.addEventListener('message', ({ data }) => {
                const type = kind(new Uint8Array(data));
                if (type === NEW_SESSION) Object.assign(window.script, { state: 'runs', runs: window.script.runs + 1 });
                if (type === SCRIPT_FINISHED && window.script.state === 'runs') window.script.state = 'ended';
            });
        }
        send(data) {
            if (kind(new Uint8Array(data)) === RERUN) window.script.state = 'asked';
            super.send(data);
        } }; }"""


def instrument(context: BrowserContext) -> BrowserContext:
    """The same context, whose pages wait up to three minutes and record the state of their scripts, for `wait_until_settled` and `act_and_settle`."""
    context.set_default_timeout(PATIENCE)
    context.add_init_script(LISTEN)
    return context


@dataclass
class Tabs:
    """A browser context that tests with equal options share, and its idle tabs.

    A tab that has shown a Streamlit page opens the next in half the time: its scripts are compiled. A `fresh` one has no
    cookies, and a `cold` one gets every file from the server.
    """

    context: BrowserContext
    fresh: bool = False
    cold: bool = False
    idle: list[Page] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)  # requests of its pages to other servers than their own

    def __post_init__(self) -> None:
        self.context.expose_binding("outside", lambda _, url: self.outside.append(url))

    def take(self) -> Page:
        if self.fresh:
            self.context.clear_cookies()
        if not self.idle:
            page = self.context.new_page()
            if self.cold:
                session = self.context.new_cdp_session(page)
                session.send("Network.enable")
                session.send("Network.setCacheDisabled", {"cacheDisabled": True})
            return page
        return self.idle.pop()

    def give_back(self, page: Page) -> None:
        if page.is_closed():
            return
        page.evaluate("sessionStorage.clear(); localStorage.clear()")  # for example, whether the sidebar is open
        page.goto("about:blank")
        self.idle.append(page)


@pytest.fixture(scope="session")
def contexts(browser: Browser) -> Iterator[dict[str, Tabs]]:
    """The browser contexts that have been opened, by their options: a shared one has Plotly's script in its cache."""
    opened: dict[str, Tabs] = {}
    yield opened
    for tabs in opened.values():
        tabs.context.close()


@cache
def is_streamlit(health: str) -> bool:
    """Whether a server is one of ours; a demo and an output of a notebook have another one, or none."""
    try:
        answer: bytes = urlopen(health, timeout=60).read()
    except OSError:
        return False
    return answer == b"ok"


OPENED = count(1)


def unfold(page: Page, sidebar: bool) -> None:
    """Makes the next page one of a visitor who has opened the sidebar and all knobs, or of a newcomer."""
    kept = {"lab-all-knobs": "true"} | (
        {"stSidebarCollapsed-": "false"} if (page.viewport_size or {})["width"] > 768 else {}
    )
    # Once for each opened page, whose test may fold them; a tab that is used again has the scripts of former tests, too.
    page.add_init_script(
        f"""try {{ const number = {next(OPENED)};
            if (Number(sessionStorage.getItem('opened')) < number) {{ sessionStorage.setItem('opened', number); localStorage.clear();
                for (const [key, value] of Object.entries({json.dumps(kept if sidebar else {})})) localStorage.setItem(key, value); }}
        }} catch {{ }}"""
    )


def default_text(address: str) -> str:
    """The address of the default text for the bare address of our server, which opens on an example; any other as it is."""
    parts = urlsplit(address)
    is_bare = not (parts.path.strip("/") or parts.query)
    ours = is_bare and is_streamlit(f"{parts.scheme}://{parts.netloc}/_stcore/health")
    return f"{address.rstrip('/')}/?source=typed+text" if ours else address


@pytest.fixture
def open_page(browser: Browser, contexts: dict[str, Tabs]) -> Iterator[Callable[..., Page]]:
    """Opens a page; at the end, asserts that nothing was fetched from other servers and no error was logged.

    A `fresh` page belongs to another browser, which shares nothing with the other pages; a `cold` one has also no cached
    files. `figure=False` opens a page without figures, `sidebar=False` as a newcomer, whose sidebar is folded. Other options are those of a browser context.
    """
    complaints: list[str] = []
    leave: list[Callable[[], object]] = []
    strangers: list[bool] = []

    def open_page(
        address: str, fresh: bool = False, cold: bool = False, figure: bool = True, sidebar: bool = True, **options: Any
    ) -> Page:
        viewport = options.pop("viewport", {"width": 1440, "height": 1000})
        scheme = options.pop("color_scheme", "light")
        permissions, touch = options.pop("permissions", ()), options.pop("has_touch", False)
        options = {"bypass_csp": True, **options}  # as in `visit`
        fresh |= cold
        strangers.extend([fresh] * fresh)
        place = repr((len(strangers) * fresh, cold, options))  # each fresh page of a test has a context of its own
        if (tabs := contexts.get(place)) is None:
            tabs = contexts[place] = Tabs(instrument(browser.new_context(**options)), fresh, cold)
        page = tabs.take()
        leave.append(partial(tabs.give_back, page))
        # A context of its own could have these options from the start, but would have to compile every script again.
        if permissions:
            tabs.context.grant_permissions([*permissions])
            leave.append(tabs.context.clear_permissions)
        if touch:
            session = tabs.context.new_cdp_session(page)
            session.send("Emulation.setTouchEmulationEnabled", {"enabled": True})
            leave.insert(0, session.detach)
        page.set_viewport_size(viewport)
        page.emulate_media(color_scheme=scheme)
        home = "/".join(address.split("/")[:3])

        def on_console(message: ConsoleMessage) -> None:
            expected = "ERR_" in message.text and message.location.get("url", "").endswith(STREAMLITS_PROBES)
            if message.type == "error" and not expected:
                complaints.append(f"console: {message.text} {message.location}")

        def on_page_error(error: Error) -> None:
            complaints.append(f"page error: {error}")

        def on_navigated(frame: Frame) -> None:
            # A sandboxed frame of srcdoc has no address.
            if frame.url and not frame.url.startswith((home, "blob:", "data:", "about:")):
                complaints.append(f"went outside: {frame.url}")

        def at_home() -> None:
            for url in tabs.outside:
                if not url.startswith((home, home.replace("http", "ws", 1))):
                    complaints.append(f"fetched from outside: {url}")
            tabs.outside.clear()

        for event, listener in (
            ("console", on_console),
            ("pageerror", on_page_error),
            ("framenavigated", on_navigated),
        ):
            page.on(event, listener)
            leave.insert(0, partial(page.remove_listener, event, listener))
        leave.append(at_home)
        unfold(page, sidebar)
        page.goto(default_text(address) if sidebar else address)
        if figure:
            wait_until_settled(page)
        return page

    yield open_page
    for undo in leave:
        undo()
    assert not complaints


@pytest.fixture
def framing_page(browser: Browser, server: str) -> Iterator[Callable[..., Page]]:
    """A page of another site with the Lab in a frame; the site answers every request, and nothing leaves this machine.

    The page stores every message that it receives in `heard`. With `strict` the content policy holds, as in `visit`.
    """
    opened: list[BrowserContext] = []

    def open_framing_page(site: str, address: str = "?source=matrices&embed=true", strict: bool = True) -> Page:
        opened.append(context := instrument(browser.new_context(bypass_csp=not strict)))
        context.grant_permissions(["local-network-access"])
        hear = "window.heard = []; onmessage = ({ data }) => heard.push(data);"
        frame = f"<iframe src='{server}/{address}' width=1200 height=900>"
        html = f"<link rel=icon href=data:,><script>{hear}</script>{frame}"
        free = {f"access-control-allow-{part}": "*" for part in ("origin", "headers", "methods")}
        context.route(f"{site}/**", lambda route: route.fulfill(body=html, content_type="text/html", headers=free))
        page = context.new_page()
        page.goto(site)
        return page

    yield open_framing_page
    for context in opened:
        context.close()


# The reasons why a page is not settled yet, as text; empty when it is settled.
UNREST = """(figures = true) => { const app = document.querySelector('[data-testid=stApp]'), all = [...document.querySelectorAll('.figures, .lesson')];
    return [window.script.state !== 'ended' && `the script is ${window.script.state}`,
        !app?.hasAttribute('data-painted') && 'what stands under the first picture is hidden',
        app?.dataset.testScriptState !== 'notRunning' && `the page says that it is ${app?.dataset.testScriptState}`,
        figures && !all.length && 'there is no figure',
        all.some(({ figureState }) => !figureState?.painted || figureState.painted !== figureState.figures) && 'a figure is not painted',
        document.querySelector('.screen > *') && !document.querySelector('#root .screen .over > *') && 'the first screen is not painted',
        all.some(({ figureState }) => figureState?.restPending) && 'a figure has not asked for the rest of the page yet',
        document.querySelector('[data-stale=true]') && 'a part of the page is stale',
        window.seen !== (window.seen = location.href) && 'the address changes'].filter(Boolean).join(', '); }"""


def tab_of(page: Page | Frame) -> Page:
    """The tab that shows a page, or a frame in it."""
    return page.page if isinstance(page, Frame) else page


def wait_until_settled(page: Page | Frame, figures: bool = True) -> None:
    """Waits until the script has ended, every figure is painted with its latest numbers, and nothing changes any more.

    A page must have `figures`, unless it is said that it may have none. Changes that follow a run without a signal, like the address, appear some frames later: frames and not milliseconds,
    so that a busy machine has more time for it.
    """
    tab_of(page).bring_to_front()  # a hidden tab draws one frame a second
    try:
        page.wait_for_function(
            f"""(figures) => {{ window.calm = ({UNREST})(figures) || window.calm > 8 ? 0 : (window.calm ?? 0) + 1;
                return window.calm > 8; }}""",
            arg=figures,
        )
    except TooLong as error:
        pytest.fail(f"not settled after {PATIENCE / 1000:g} s: {page.evaluate(UNREST, figures)} ({error})")


# The parts of a page that are not in a theme yet: the colours of the app, and elements that still fade into them.
UNTHEMED = """(scheme) => { const seen = getComputedStyle(document.querySelector('[data-testid=stApp]')).colorScheme;
    // Elements in a closed expander are not drawn: their transitions have ended and are still listed.
    const fading = document.getAnimations().filter((animation) => animation instanceof CSSTransition && animation.playState === 'running');
    return [...seen === scheme ? [] : [`the page is ${seen}, and the browser ${matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'}`],
        ...fading.map((animation) => `${animation.transitionProperty} of ${animation.effect.target.outerHTML.slice(0, 100)}`)]; }"""


def set_theme(page: Page, scheme: str) -> None:
    """Switches the page to the light or dark theme of the browser, and waits until it is drawn so."""
    page.emulate_media(color_scheme=scheme)
    try:
        page.wait_for_function(f"(scheme) => !({UNTHEMED})(scheme).length", arg=scheme)
    except TooLong as error:
        pytest.fail(f"not {scheme} after {PATIENCE / 1000:g} s: {page.evaluate(UNTHEMED, scheme)} ({error})")
    wait_until_settled(page, figures=False)


def act_and_settle(page: Page | Frame, act: Callable[[], Any]) -> None:
    """Performs an action that reruns the script on the server, and waits until the answer is painted."""
    tab_of(
        page
    ).bring_to_front()  # as in `wait_until_settled`: Playwright clicks an element only after it has been still for two frames
    watch_runs(page)
    act()
    wait_for_run(page)
    wait_until_settled(page)


def watch_runs(page: Page | Frame) -> None:
    """Remembers how often the script has run, for `wait_for_run`."""
    page.evaluate("() => { window.before = window.script.runs; }")


def wait_for_run(page: Page | Frame) -> None:
    """Waits until the script has begun to run since `watch_runs`."""
    page.wait_for_function("window.script.runs !== window.before")


def decode_numbers(sent: tuple[str, list[int]], kind: type[np.number[Any]]) -> np.ndarray:
    """The numbers that `window.sent` sends as text, which is ten times as fast as a list."""
    text, shape = sent
    return np.frombuffer(b64decode(text), kind).reshape(shape).copy()


def painted_numbers(page: Page | Frame, index: int) -> np.ndarray:
    """The numbers of a figure in Plotly's data in the page, with gaps as NaN."""
    sent = page.evaluate(
        """(i) => { const { z } = document.querySelectorAll('.figures .js-plotly-plot')[i].data[0];
            const numbers = z.flatMap((row) => Array.from(row, (z) => Number.isFinite(z) ? z : NaN));
            return sent(Float32Array.from(numbers), [z.length, z[0].length]); }""",
        index,
    )
    return decode_numbers(sent, np.float32)


def chosen_cell_line(page: Page | Frame | FrameLocator) -> str:
    """The line under the maps about the chosen cell: "weights · query 4 the → key 2 sat = 0.4508"."""
    line: str = page.locator(".answer-line").evaluate(
        """(answer) => { const side = (name) => { const one = answer.querySelector(`.side.${name}`);
              return [one.querySelector('.nowrap').firstChild.textContent, one.querySelector('input').value, one.querySelector('code').textContent].join(' ').trim(); };
            return `${answer.querySelector('b').textContent} · ${side('q')} → ${side('k')} = ${answer.querySelector('.number').textContent}`; }"""
    )
    return line


def set_control(page: Page | Frame, knob: str, value: str) -> None:
    """Sets a control above the maps, and waits until the page has followed."""
    act_and_settle(page, lambda: turn(page, knob, value))


def turn(page: Page | Frame, knob: str, value: str) -> None:
    """Sets a control above the maps, as soon as it is in sight."""
    control = page.locator(f".controls [data-name={knob}]")
    part = control.locator(f":is(.choices [value='{value}'], select, input):visible").first
    field = control.locator("input")

    def type_in() -> None:
        field.fill(value)
        field.press("Enter")

    def type_another() -> None:
        part.select_option("other …")
        type_in()

    acts: dict[str, Callable[[], object]] = {
        "button": part.click,
        "select": lambda: part.select_option(value),
        "input": type_in,
        "list": type_another,  # d_model: a menu of some values, and a field for any other
    }
    # What an element is does not change.
    acts[part.evaluate("(part) => (part.matches('select:not([name])') ? 'list' : part.localName)")]()


def apply_text(page: Page | Frame, field: Locator, text: str) -> None:
    """Writes a text into a field of the sidebar, which applies it after a pause of typing or at once with these keys."""

    def write() -> None:
        field.fill(text)
        field.press("Control+Enter")

    act_and_settle(page, write)


def copied(page: Page | Frame, button: Locator) -> str:
    """The text that a button copies, which is in the clipboard a moment after the click."""
    tab = tab_of(page)
    tab.evaluate("navigator.clipboard.writeText('')")
    button.click()
    return str(tab.wait_for_function("async () => await navigator.clipboard.readText()").json_value())


def click_cell(page: Page | Frame, index: int, row: float, column: float) -> None:
    """Clicks the middle of a cell of a figure, at its current place on the screen."""
    tab_of(page).mouse.click(*place_of_cell(page, index, row, column))


MAPS = ".figures .js-plotly-plot"
# Whether the same was seen in the three frames before.
STILL = """(seen) => { const frames = window.still?.seen === seen ? window.still.frames + 1 : 0;
    window.still = frames < 3 ? { seen, frames } : null;
    return frames >= 3; }"""
PLACE = f"""([maps, i, row, column]) => {{ const plot = document.querySelectorAll(maps)[i];
    if (!plot?._fullLayout) return null;
    plot.scrollIntoView({{block: 'center'}});
    const box = plot.getBoundingClientRect(), {{xaxis, yaxis}} = plot._fullLayout;
    // A browser truncates fractions of a pixel, which may be more than a cell of a long text.
    const place = [box.x + xaxis._offset + xaxis.l2p(column), box.y + yaxis._offset + yaxis.l2p(row)].map(Math.round);
    return ({STILL})([maps, i, row, column, ...place].join()) && place; }}"""
BOX = f"""(element) => {{ const {{ x, y, width, height }} = element.getBoundingClientRect();
    return ({STILL})([x, y, width, height].join()) && {{ x, y, width, height }}; }}"""


def place_of_cell(page: Page | Frame, index: int, row: float, column: float, maps: str = MAPS) -> tuple[float, float]:
    """The middle of a cell of a figure on the screen, once the figure no longer moves."""
    x, y = page.wait_for_function(PLACE, arg=[maps, index, row, column]).json_value()
    return x, y


def still_box(element: Locator) -> dict[str, float]:
    """The box of an element on the screen, once it no longer moves."""
    element.scroll_into_view_if_needed()
    box: dict[str, float] = element.page.wait_for_function(BOX, arg=element.element_handle()).json_value()
    return box


def boxes_of(elements: Locator) -> list[dict[str, float]]:
    """The boxes of all these elements, seen at one moment."""
    boxes: list[dict[str, float]] = elements.evaluate_all(
        """(all) => all.map((element) => { const { x, y, width, height } = element.getBoundingClientRect();
            return { x, y, width, height }; })"""
    )
    return boxes


def repeat_until(done: Callable[[], bool], act: Callable[[], object]) -> None:
    """Repeats an act whose effect may be lost or take several, until `done`, which then stays true."""
    for _ in range(PATIENCE // 100):
        act()
        if done():
            return
    pytest.fail(f"not done after {PATIENCE // 100} times")


@pytest.fixture(scope="session")
def picture_models(tmp_path_factory: pytest.TempPathFactory) -> TinyPictureModels:
    """Tiny models that read pictures, each made once for all tests; a test that changes a folder copies it."""
    pytest.importorskip("attention.vision", reason="no feature reads pictures")
    from tiny_pictures import TinyPictureModels  # imports torch, which the distributing process does not need

    return TinyPictureModels(tmp_path_factory.mktemp("picture models"))


@pytest.fixture(scope="session")
def video_models(tmp_path_factory: pytest.TempPathFactory) -> TinyVideoModels:
    """Tiny models that read videos, each made once for all tests."""
    from tiny_videos import TinyVideoModels  # beside the tests of videos

    return TinyVideoModels(tmp_path_factory.mktemp("video models"))


@pytest.fixture(scope="session", params=["Firefox", "WebKit"])
def running_tab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tab]:
    from browsers import running  # beside the tests of engines

    with running(request.param, tmp_path_factory.mktemp(request.param)) as tab:
        yield tab


@pytest.fixture
def tab(running_tab: Tab) -> Iterator[Tab]:
    """The tab of Firefox, then of WebKitGTK; at the end, asserts that nothing went wrong in its pages."""
    yield running_tab
    assert not running_tab.complaints()
