"""One script runs at a time; work outside Python lets another script run."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest
from conftest import ROOT
from streamlit import runtime
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner
from streamlit.testing.v1 import AppTest
from test_pages import opened

from attention import FileError
from pages.ui import process
from pages.ui.patches import script_runner
from pages.ui.server import scheduler


@pytest.fixture(autouse=True)
def nobody_loses_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may run no Python for 0.3 s; only tests of losing the turn set a short limit."""
    monkeypatch.setattr(scheduler, "_LONGEST", 600.0)


def in_threads(*works: Callable[[], None]) -> None:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


def pass_by() -> None:
    with scheduler.turn():
        pass


def test_runner_ends_after_its_events_are_handled(monkeypatch: pytest.MonkeyPatch) -> None:
    loop, handled = asyncio.new_event_loop(), list[str]()
    session = SimpleNamespace(_get_async_objs=lambda: SimpleNamespace(eventloop=loop))
    monkeypatch.setattr(runtime, "exists", lambda: True)
    monkeypatch.setattr(runtime, "get_instance", lambda: session)

    def draw(_: object) -> None:  # as AppSession takes the events of a run
        loop.call_soon_threadsafe(threading.Event().wait, 0.1)  # the loop is busy
        loop.call_soon_threadsafe(handled.append, "drawn")

    monkeypatch.setattr(ScriptRunner, "_run_script", draw)
    script_runner.apply()
    run: Callable[[object], None] = ScriptRunner._run_script
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    run(None)
    assert handled == ["drawn"]
    loop.call_soon_threadsafe(loop.stop)
    thread.join(60)
    loop.close()


@pytest.mark.quick
def test_script_runs_do_not_interleave() -> None:
    inside, maximum = [0], [0]

    def run() -> None:
        for _ in range(20):
            with scheduler.turn():
                inside[0] += 1
                maximum[0] = max(maximum[0], inside[0])
                threading.Event().wait(0.001)
                inside[0] -= 1

    in_threads(*[run] * 8)
    assert maximum == [1]


@pytest.mark.quick
def test_script_that_steps_aside_yields_and_regains_its_turn() -> None:
    messages, stepped, done = [], threading.Event(), threading.Event()

    def long_work() -> None:
        with scheduler.turn():
            messages.append("begins")
            with scheduler.without_turn():
                stepped.set()
                assert done.wait(60)
            messages.append("goes on")

    def short_work() -> None:
        assert stepped.wait(60)
        with scheduler.turn():
            messages.append("another")
        done.set()

    in_threads(long_work, short_work)
    assert messages == ["begins", "another", "goes on"]


@pytest.mark.quick
def test_turn_ends_with_its_error_even_from_aside() -> None:
    with pytest.raises(KeyError, match="text2"), scheduler.turn(), scheduler.without_turn():
        raise KeyError("text2")
    in_threads(pass_by)


@pytest.mark.quick
def test_overlong_script_blocks_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "_LONGEST", 0.05)
    entered, done, messages = threading.Event(), threading.Event(), []

    def endless() -> None:
        with scheduler.turn():
            entered.set()
            assert done.wait(60)
            with scheduler.without_turn():
                messages.append("its turn is another's, and stays so")

    def short_work() -> None:
        assert entered.wait(60)
        with scheduler.turn():
            done.set()
            threading.Event().wait(0.01)
            messages.append("short work")

    in_threads(endless, short_work, short_work)
    assert messages.count("short work") == 2
    in_threads(pass_by)
    assert not scheduler._active


@pytest.mark.quick
def test_stepping_aside_outside_a_turn_does_nothing() -> None:
    with scheduler.without_turn(), scheduler.turn():
        pass


def test_first_page_restores_the_garbage_collectors_threshold() -> None:
    usual = process._DEFAULT_THRESHOLD
    for address in ({}, {"mask": "window", "d_model": "7", "heads": "2"}, {"text": "?"}):
        process.freeze_imports.cache_clear()
        gc.set_threshold(0)
        app = AppTest.from_file(str(ROOT / "app.py"), default_timeout=60)
        app.query_params.update(address)
        assert not app.run().exception
        assert gc.get_threshold() == usual


def in_a_script() -> None:
    import threading

    import streamlit as st

    from pages.ui.server import scheduler  # what the first run of a server imports

    def another() -> None:
        with scheduler.turn():
            arrived.set()

    arrived = threading.Event()
    threading.Thread(target=another).start()
    st.text(f"another came in: {arrived.wait(0.3)}")


def test_streamlit_runs_its_scripts_in_turns() -> None:
    app = AppTest.from_function(in_a_script, default_timeout=60)
    assert app.run().run().text[0].value == "another came in: False"
    in_threads(pass_by)  # nobody has it when the script has ended


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("query", "key", "file", "reads"),
    [
        ({"source": "matrices"}, "matrices_file_x", "x.csv", "pages.ui.state.matrices.read_file"),
        ({"source": "file"}, "file_upload", "x.json", "pages.ui.state.sidebar.parsed_file"),
        ({}, "open_state_0", "x.json", "pages.ui.page.share._read_state"),
    ],
)
def test_small_uploads_are_read_in_their_turn_one_at_a_time(
    query: dict[str, str], key: str, file: str, reads: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading: list[bool] = []

    def read(*_: object) -> None:
        reading.append(bool(scheduler._active))
        raise FileError("nothing")

    page = opened("app.py", **query)
    monkeypatch.setattr(reads, read)
    page.file_uploader(key=key).upload(file, b"1,0").run()
    assert not page.exception
    assert reading == [True]
