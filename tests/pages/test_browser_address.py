"""The address has one writer: Back undoes every user action, however late the server's answers come.

With LAB_ADDRESS_SEQUENCES=200 (and LAB_ADDRESS_SEED=7) other random sequences run.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlencode, urlsplit

import pytest
from conftest import PATIENCE, script_address, wait_until_settled
from delaying_proxy import Proxy, delaying
from playwright.sync_api import Browser, Error, Page, expect
from playwright.sync_api import TimeoutError as TooLong
from test_browser_controls import at_once, click

from attention.base.knobs import Integer, Real, to_text
from pages.ui.state.knob_table import INLINE_KEYS, KNOBS

pytestmark = pytest.mark.browser
Open = Callable[..., Page]
SEQUENCES = int(os.environ.get("LAB_ADDRESS_SEQUENCES", "30"))
SEED = int(os.environ.get("LAB_ADDRESS_SEED", "0"))
LINK = urlencode({"text": "the cat sat on the mat", "mask": "causal"})

# The visible state: the address, the controls above the maps and in the sidebar, and the painted numbers.
SEEN = """() => {
    const value = (field) => field.type === 'checkbox' ? field.checked : field.value, address = [...new URLSearchParams(location.search)].sort();
    const controls = Object.fromEntries([...document.querySelectorAll('.controls [name]')].map((field) => [field.name, value(field)]));
    const sidebar = [...document.querySelectorAll('[data-testid=stSidebar] :is(input, textarea)')]
        .filter((field) => field.type !== 'file').map((field) => [field.ariaLabel ?? field.placeholder, value(field)]);
    const round = (z) => z.map((row) => Array.from(row, (number) => Number.isFinite(number) ? Number(number.toPrecision(6)) : null));
    const painted = [...document.querySelectorAll('.figures .js-plotly-plot')].map(({ data }) => data[0].z && round(Array.from(data[0].z)));
    const line = [...document.querySelectorAll('.answer-line :is(b, .number, .arithmetic)')].map((part) => part.innerText);
    const fields = [...document.querySelectorAll('.answer-line input')].map((field) => field.value);
    return { path: location.pathname, address, controls, sidebar, painted, line, fields, title: document.querySelector('h1').innerText }; }"""


@pytest.fixture(scope="module")
def empty_page(browser: Browser, server: str) -> Iterator[Page]:
    page = browser.new_page()
    page.goto(f"{server}/_stcore/health")
    yield page
    page.close()


@pytest.mark.parametrize("prompt", [True, False], ids=["at once", "late, in another order, or never"])
def test_back_restores_every_state_of_a_thousand_simulated_sequences(
    empty_page: Page, server: str, prompt: bool
) -> None:
    model = (Path(__file__).parent / "address_model.js").read_text(encoding="utf-8")
    faults = empty_page.evaluate(
        """async ([path, model, prompt]) => {
            const { Entries } = await import(path), url = URL.createObjectURL(new Blob([model], { type: 'text/javascript' }));
            const { check } = await import(url), faults = [];
            for (let seed = 0; seed < 1000; seed += 1) {
                const fault = check(Entries, seed, prompt);
                if (fault) faults.push(`seed ${seed}: ${fault}`);
            }
            return faults; }""",
        [script_address(server, "entries"), model, prompt],
    )
    assert faults == []


def test_page_writes_numbers_as_python_does(empty_page: Page, server: str) -> None:
    inline = [KNOBS[key] for key in INLINE_KEYS if isinstance(KNOBS[key].range, Real | Integer)]
    defaults = [to_text(knob.default) for knob in inline]
    values = [
        (knob.range.read(text), default)
        for knob, default in zip(inline, defaults, strict=True)
        for text in ("1", default or "2")
    ]
    assert {type(value) for value, _ in values} == {float, int}
    written = empty_page.evaluate(
        "async ([path, values]) => { const { valueText } = await import(path); return values.map((pair) => valueText(...pair)); }",
        [script_address(server, "entries"), values],
    )
    assert written == [to_text(value) for value, _ in values]


def visible_state(page: Page) -> dict[str, Any]:
    state: dict[str, Any] = page.evaluate(SEEN)
    return state


# Each asks for what it uses and uses it in one breath: an earlier Back may take it away between two questions.
TURN = """([name, values]) => { const control = document.querySelector(`.controls [name=${name}]`);
    if (!control?.checkVisibility()) return;
    const offered = control.matches('select') ? [...control.options].map(({ value }) => value) : values;
    control.focus();
    control.value = values.find((value) => offered.includes(value)) ?? control.value;
    for (const type of ['input', 'change']) control.dispatchEvent(new Event(type, { bubbles: true })); }"""
HOLD = """async () => { const knob = document.querySelector('.controls [name=temperature]');
    knob?.focus();
    for (let i = 0; i < 4 && knob?.isConnected; i += 1) {
        knob.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight', repeat: i > 0, bubbles: true }));
        knob.stepUp();
        for (const type of ['input', 'change']) knob.dispatchEvent(new Event(type, { bubbles: true }));
        await new Promise(requestAnimationFrame);
    } }"""
TYPE = """async (text) => { const fields = document.querySelectorAll(':is(.st-key-text, .st-key-second_text) textarea');
    const field = [...fields].find((field) => field.checkVisibility()); // of B where the knobs change B
    if (!field) return;
    field.focus();
    // As a browser sets it: React reads the value from the element.
    Object.getOwnPropertyDescriptor(HTMLTextAreaElement.prototype, 'value').set.call(field, text);
    field.dispatchEvent(new Event('input', { bubbles: true }));
    await new Promise(requestAnimationFrame); // React draws
    field.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', code: 'Enter', keyCode: 13, ctrlKey: true, bubbles: true })); }"""
SWITCH = "(name) => document.querySelector(`.controls button[value=${name}]`)?.click()"
OPEN = """(name) => { const link = [...document.querySelectorAll('.st-key-menu a')].find(({ innerText }) => innerText.trim() === name);
    link?.dispatchEvent(new PointerEvent('pointerdown', { bubbles: true }));
    link?.click(); }"""


class Person:
    """A simulated user who acts without waiting for answers."""

    def __init__(self, page: Page, proxy: Proxy, dice: random.Random) -> None:
        self.page, self.proxy, self.dice = page, proxy, dice

    def shuffled(self, *values: str) -> list[str]:
        return self.dice.sample(values, len(values))

    def knob(self) -> None:
        name, values = self.dice.choice([("mask", ["none", "causal", "window"]), ("head", ["0", "1", "2"])])
        self.page.evaluate(TURN, [name, self.shuffled(*values)])

    def seed(self) -> None:
        self.page.evaluate(TURN, ["seed", self.shuffled(*map(str, range(5)))])

    def held_key(self) -> None:
        self.page.evaluate(HOLD)

    def click(self) -> None:
        at_once(self.page, 1, click((self.dice.randrange(3), self.dice.randrange(4))))

    def sidebar(self) -> None:
        self.page.evaluate(TYPE, self.shuffled("one two three four five", "a b c d e f", "the cat sat on the mat")[0])

    def switch(self) -> None:
        """Chooses which of two states the knobs change."""
        self.page.evaluate(SWITCH, self.dice.choice(["A", "B", "both"]))

    def other_page(self) -> None:
        self.page.evaluate(OPEN, self.dice.choice(["Explore", "Heads", "Reference"]))

    def back(self) -> None:
        self.page.evaluate("history.length > 2 && history.back()")

    def forward(self) -> None:
        self.page.evaluate("history.forward()")

    def reload(self) -> None:
        self.proxy.release()
        self.page.reload()
        wait_until_settled(self.page)

    def second_tab(self) -> None:
        self.proxy.release()
        other = self.page.context.new_page()
        other.goto(self.page.url)
        wait_until_settled(other)
        other.locator(".controls [name=seed]").fill("4")
        other.keyboard.press("Enter")
        wait_until_settled(other)
        other.close()
        self.page.bring_to_front()

    def wait_for_page(self) -> None:
        """Waits for the heading of the page: going back to another page reloads it, which needs answers."""
        try:
            self.page.wait_for_selector(".stMain h1", state="attached", timeout=PATIENCE / 1000)
        except TooLong:
            self.proxy.release()
            self.page.wait_for_selector(".stMain h1", state="attached")

    def act(self) -> str:
        """Performs one random action and returns its name."""
        weights = {
            self.knob: 4, self.seed: 3, self.held_key: 3, self.click: 4, self.sidebar: 3, self.back: 6, self.forward: 2,
            self.switch: 1, self.other_page: 1, self.reload: 0.4, self.second_tab: 0.2,
        }  # fmt: skip
        done = self.dice.choices([*weights], [*weights.values()])[0]
        try:
            done()
        except Error as error:  # an earlier Back has just begun to load another page
            if "context was destroyed" not in str(error):
                raise
        return done.__name__


@pytest.mark.long  # random histories
def test_thirty_random_sequences_with_late_answers_match_a_fresh_browser(open_page: Open, server: str) -> None:
    fresh = open_page(f"{server}/?{LINK}", fresh=True)
    with delaying(server) as proxy:
        page = open_page(f"{proxy.address}/?{LINK}")
        for number in range(SEED, SEED + SEQUENCES):
            dice, done = random.Random(number), []
            person = Person(page, proxy, dice)
            for _ in range(dice.randint(2, 6)):
                dice.choice([proxy.hold, proxy.release])()
                done.append(person.act())
                print(number, done[-1])  # printed when the test fails
                if dice.random() < 0.3:
                    page.wait_for_timeout(dice.randrange(300))
                person.wait_for_page()
            proxy.release()
            wait_until_settled(page)
            page.wait_for_function("window.script.state === 'ended'")
            wait_until_settled(page)
            # The run of a change that was sent at the end of another run may begin only now.
            for _ in range(20):
                state = visible_state(page)
                fresh.goto(page.url.replace(proxy.address, server))
                wait_until_settled(fresh)
                if state == visible_state(fresh):
                    break
                wait_until_settled(page)
            assert state == visible_state(fresh), f"sequence {number}: {', '.join(done)}"
        page.goto(f"{proxy.address}/_stcore/health")


def test_back_undoes_every_action_even_with_late_answers(open_page: Open, server: str) -> None:
    with delaying(server) as proxy:
        page = open_page(f"{proxy.address}/?{LINK}")
        here = "location.href"  # page.url follows a moment later
        states = [page.evaluate(here)]
        first = visible_state(page)
        proxy.hold()
        page.locator(".controls [name=seed]").fill("3")
        page.keyboard.press("Enter")
        states.append(page.evaluate(here))
        page.locator(".controls [name=mask]").select_option("none")
        states.append(page.evaluate(here))
        page.locator(".controls [name=temperature]").focus()
        page.keyboard.press("ArrowRight")
        states.append(page.evaluate(here))
        assert len(set(states)) == 4
        assert {"seed": "3", "text": "the cat sat on the mat"}.items() <= dict(
            parse_qsl(urlsplit(page.url).query)
        ).items()
        for url in reversed(states[:-1]):
            page.go_back()
            page.wait_for_url(url)
        proxy.release()
        wait_until_settled(page)
        assert visible_state(page) == first
        for url in states[1:]:
            page.go_forward()
            page.wait_for_url(url)
        wait_until_settled(page)
        assert page.url == states[-1]
        expect(page.locator(".controls [name=seed]")).to_have_value("3")
        page.goto(f"{proxy.address}/_stcore/health")
