"""Makes script runs take turns, and lets a session handle the events of a run before the next one begins.

Replaces: `ScriptRunner._run_script`, which it wraps in a turn (`pages/ui/server/scheduler.py`).
Why: Streamlit runs the scripts of all sessions concurrently, each in its own thread. Python executes one thread at a time
    anyway, so of twenty concurrent scripts all end late.
    A run also hands what it draws to the session through the event loop. A request that the loop handles after the run has ended, but before
    its events, starts another runner, and the session then ignores all events of the first: what it has drawn is lost. A film that
    was stopped kept its button "Stop". So the runner ends only after the loop has handled its events; until then it accepts requests itself.
Canary: `tests/pages/server/test_turns.py`, test_streamlit_runs_its_scripts_in_turns and test_runner_ends_after_its_events_are_handled.
Public replacement: a function that `st.App` calls around each script run, or an option for the number of concurrent runs; a session that
    handles the events of a runner that has ended.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop
from contextlib import suppress
from functools import wraps
from threading import Event
from typing import Any

from streamlit import runtime
from streamlit.runtime.scriptrunner.script_runner import ScriptRunner

from pages.ui.server.scheduler import turn

_MAX_SECONDS = 2  # for a loop that no longer answers


def apply() -> None:
    """Makes every script run wait for its turn, and for its events."""
    run = ScriptRunner._run_script

    @wraps(run)
    def run_in_turn(self: ScriptRunner, *arguments: Any) -> None:
        with turn():
            run(self, *arguments)
        _wait_for_events()

    ScriptRunner._run_script = run_in_turn  # type: ignore[assignment, method-assign]  # the patch


def _wait_for_events() -> None:
    """Waits until the event loop of the sessions has handled what this thread has sent to it."""
    loop = runtime.get_instance()._get_async_objs().eventloop if runtime.exists() else None
    if isinstance(loop, AbstractEventLoop) and loop.is_running():  # AppTest has none
        handled = Event()
        with suppress(RuntimeError):  # the loop is closed: the process ends
            loop.call_soon_threadsafe(handled.set)
            handled.wait(_MAX_SECONDS)
