"""An app in Chromium with a stopwatch in the page: from the changed control to the painted figure."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Locator, Page, sync_playwright
from playwright.sync_api import TimeoutError as TooLong

# Runs before the page's own scripts. A step ends in the frame in which `ready` is seen, after that frame was painted.
STOPWATCH = """(() => {
  const bench = window.bench = { received: 0, sent: 0, arrived: [] };
  const size = (data) => data.byteLength ?? data.size ?? data.length;
  window.WebSocket = class extends WebSocket {
    constructor(...given) { super(...given); this.addEventListener("message", ({ data }) => { bench.received += size(data); bench.arrived.push([performance.now(), bench.received]); }); }
    send(data) { bench.sent += size(data); super.send(data); }
  };
  const frame = () => new Promise(requestAnimationFrame);
  const task = () => new Promise((go) => { const { port1, port2 } = new MessageChannel(); port1.onmessage = go; port2.postMessage(0); });
  bench.until = async (ready) => { do await frame(); while (!ready()); await task(); return performance.now(); };
  // What people see first: the large map of a first screen, also of the packed one; on a page without one, every map.
  bench.largeMap = () => document.querySelector(".screen .plot .xy .heatmaplayer image");
  bench.images = () => document.querySelector(".screen > *") ? [bench.largeMap()] : [...document.querySelectorAll(".figures .js-plotly-plot, .stPlotlyChart .js-plotly-plot")].map((plot) => plot.querySelector(".heatmaplayer image"));
  bench.newImages = () => {
    const old = new Map(bench.images().map((image) => [image, image?.getAttribute("href")]));
    return () => { const now = bench.images(); return now.length >= old.size && now.every((image) => image && old.get(image) !== image.getAttribute("href")); };
  };
  bench.newFigures = () => {
    if (bench.largeMap()) return bench.newImages();
    const all = () => [...document.querySelectorAll(".figures")].map((root) => root.figureState);
    const old = all()[0].figures;
    return () => all().length && all()[0]?.figures !== old && all().every((figureState) => figureState?.painted && figureState.painted === figureState.figures);
  };
  bench.arm = (ready) => {
    let began;
    window.addEventListener("keydown", () => { began = performance.now(); }, { capture: true, once: true });
    // What the picture took: all that came until it was seen, but for what the page asked for as soon as it was painted.
    const asked = () => [...document.querySelectorAll(".figures")].map(({ figureState }) => figureState.restRequestedAt).filter((time) => time > began);
    bench.step = bench.until(() => began && ready()).then((ended) => {
      bench.seen = bench.arrived.findLast(([time]) => time <= Math.min(ended, ...asked()))[1];
      return ended - began;
    });
  };
  // How often the large map was repainted since this was called.
  bench.countRepaints = () => {
    bench.repaints = 0;
    const isPicture = ({ attributeName }) => attributeName === "href"; // of another namespace, which no `attributeFilter` finds
    new MutationObserver((changes) => { bench.repaints += changes.filter(isPicture).length; }).observe(bench.largeMap(), { attributes: true });
  };
  bench.drag = async (name, share) => {
    const control = document.querySelector(`.controls [name=${name}]`), isNew = bench.newImages();
    const began = performance.now(), [least, most] = [Number(control.min), Number(control.max)];
    control.value = least + share * (most - least);
    control.dispatchEvent(new Event("input", { bubbles: true }));
    return await bench.until(isNew) - began;
  };
})()"""
_IDLE = """() => document.querySelector('[data-testid=stApp][data-test-script-state=notRunning]')
  && !document.querySelector('[data-stale=true]')"""


@contextmanager
def chromium() -> Iterator[Browser]:
    """The installed Chromium."""
    with sync_playwright() as playwright:
        options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
        opened = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=options)
        yield opened
        opened.close()


class Tab:
    """One app in a browser with an empty cache, used with `with`."""

    ready = "bench.newImages()"  # the condition that ends a step that goes through the server

    def __init__(self, browser: Browser, address: str, settled: bool = True) -> None:
        self.context = browser.new_context(viewport={"width": 1440, "height": 1000}, bypass_csp=True)
        self.context.set_default_timeout(300_000)
        self.context.add_init_script(STOPWATCH)
        # Every knob of our pages is in sight. A page without an origin has no storage.
        self.context.add_init_script("try { localStorage.setItem('lab-all-knobs', 'true'); } catch { }")
        self.page: Page = self.context.new_page()
        self.page.goto(address)
        try:
            self.page.wait_for_function("() => bench.images().length && bench.images().every(Boolean)", timeout=120_000)
        except TooLong as error:
            messages = self.page.get_by_test_id("stAlert").all_inner_texts()
            raise RuntimeError(f"{address[:80]} drew no picture in two minutes; it says {messages}") from error
        if settled:
            self.settle()

    def __enter__(self) -> Tab:
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def settle(self) -> None:
        """Waits until the script has ended and no element of the page is stale."""
        self.page.wait_for_function(_IDLE)

    def wire(self) -> int:
        """The bytes sent over the websocket so far, in both directions."""
        return int(self.page.evaluate("bench.received + bench.sent"))

    def received(self, until_painted: bool = False) -> int:
        """The bytes that came from the server so far, or until the last step was painted."""
        return int(self.page.evaluate("bench.seen" if until_painted else "bench.received"))

    def _to_front(self) -> None:
        """Brings the tab to the front, so that it is painted."""
        self.page.bring_to_front()
        self.page.wait_for_timeout(700)

    def press(self, key: str) -> float:
        """Milliseconds from a key pressed on the control that has the focus to the painted picture."""
        self._to_front()
        self.page.evaluate(f"() => {{ bench.arm({self.ready}); }}")
        self.page.keyboard.press(key)
        took = float(self.page.evaluate("() => bench.step"))
        self.settle()
        return took


class Naive(Tab):
    """The notebook author's app: sliders in the sidebar."""

    def step(self, slider: str, key: str = "ArrowRight") -> float:
        """One step of a slider."""
        self.page.get_by_role("slider", name=slider).focus()
        return self.press(key)


class Ours(Tab):
    """The Lab, or another page of ours."""

    ready = "bench.newFigures()"

    def settle(self) -> None:
        """Waits until every figure is painted, too."""
        super().settle()
        self.page.wait_for_function(
            "() => [...document.querySelectorAll('.figures')].every(({ figureState }) => figureState?.painted && figureState.painted === figureState.figures && !figureState.restPending)"
        )

    def step(self, key: str, value: Any) -> float:
        """A new number entered above the maps."""
        field = self._on(key)
        if field.is_hidden():  # the field offers some values and takes any typed one
            self.page.locator(f".controls [data-name={key}] select").select_option("other …")
        field.fill(str(value))
        field.focus()
        return self.press("Enter")

    def drag(self, name: str, share: float) -> float:
        """Moves a slider of the figure to that share of its range, as dragging does."""
        self._to_front()
        return float(self.page.evaluate("([name, share]) => bench.drag(name, share)", [name, share]))

    def release(self, name: str) -> None:
        """Releases the slider, which informs the server."""
        self._on(name).dispatch_event("change")
        self.page.wait_for_timeout(500)
        self.settle()

    def frames_a_second(self, name: str, seconds: float = 2) -> float:
        """The frames a second while the mouse drags a slider of the figure back and forth."""
        self.page.bring_to_front()
        slider = self._on(name)
        slider.scroll_into_view_if_needed()
        box = slider.bounding_box()
        assert box, f"{name} cannot be seen"
        middle, left, width = box["y"] + box["height"] / 2, box["x"] + 10, box["width"] - 20
        self.page.mouse.move(left, middle)
        self.page.mouse.down()
        self.page.evaluate("bench.countRepaints()")
        began = time.perf_counter()
        while (elapsed := time.perf_counter() - began) < seconds:
            self.page.mouse.move(left + width * abs((elapsed + 1) % 2 - 1), middle)
        painted, took = self.page.evaluate("bench.repaints"), time.perf_counter() - began
        self.page.mouse.up()
        self.page.wait_for_timeout(500)
        self.settle()
        return float(painted / took)

    def _on(self, name: str) -> Locator:
        return self.page.locator(f".controls [name={name}]").first
