"""A state with which the server died twice is not run again automatically: the page reports it, and offers the default."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import parse_qs, urlsplit

import pytest
from conftest import (
    free_port,
    instrument,
    running_process,
    state_of_address,
    wait_for_run,
    wait_until_settled,
    watch_runs,
)
from playwright.sync_api import Browser, expect
from test_pages import PAGES, drawn, opened, said

LINK = {"heads": "8", "text": "too much for anybody"}


@pytest.mark.parametrize("page", PAGES)
def test_crash_guard_address_runs_nothing(page: str) -> None:
    app = opened(page, **LINK, paused="1")
    assert not app.exception
    assert not drawn(app)
    assert "The server stopped twice in a row" in said(app)
    assert [button.label for button in app.button] == ["Try again", "Open with default settings"]
    assert not app.selectbox, "a paused page reads no knob"


def test_crash_guard_page_can_be_retried_or_left() -> None:
    app = opened("app.py", **LINK, lock="1", paused="1")
    app.button(key="paused_again").click().run()
    assert drawn(app)
    assert state_of_address(app).get("paused") is None
    assert state_of_address(app)["heads"] == "8"
    app = opened("app.py", **LINK, lock="1", paused="1")
    app.button(key="paused_default").click().run()
    assert drawn(app)
    assert dict(state_of_address(app)) == {"lock": "1"}


@pytest.mark.browser
def test_page_stops_asking_a_server_that_died_twice(browser: Browser) -> None:
    context, port = instrument(browser.new_context(bypass_csp=True)), free_port()
    page = context.new_page()

    def dies_after(event: Callable[[], object]) -> None:
        """Starts a server, and kills it after the event."""
        with running_process(port) as (_, process):
            event()
            process.kill()
            process.wait()

    # A new server imports torch before its first picture, which leaves time to kill it.
    is_running = "['asked', 'runs'].includes(window.script?.state)"
    first = f"http://127.0.0.1:{port}/?heads=8&text=too+much"
    # Watched from the start: a page may finish loading after its first run ends.
    dies_after(lambda: (page.goto(first, wait_until="commit"), page.wait_for_function(is_running)))
    assert "paused" not in page.url
    page.wait_for_function("document.querySelector('[data-testid=stApp]').dataset.testConnectionState !== 'CONNECTED'")
    watch_runs(page)  # before a server runs, which the page may find before the test does
    dies_after(lambda: wait_for_run(page))
    with running_process(port):
        expect(page.get_by_text("The server stopped twice in a row")).to_be_visible()
        assert parse_qs(urlsplit(page.url).query) == {"heads": ["8"], "text": ["too much"], "paused": ["1"]}
        page.get_by_role("button", name="Open with default settings").click()
        page.wait_for_url(f"http://127.0.0.1:{port}/")
        wait_until_settled(page)
    # Servers that stop without a run in progress, as in a deployment, pause nothing.
    for _ in range(2):
        watch_runs(page)
        with running_process(port):
            wait_for_run(page)
            wait_until_settled(page)
    assert "paused" not in page.url
    context.close()
