"""Makes script runs take turns.

Replaces: `ScriptRunner._run_script`, which it wraps in a turn (`pages/ui/server/scheduler.py`).
Why: Streamlit runs the scripts of all sessions concurrently, each in its own thread. Python executes one thread at a time
    anyway, so of twenty concurrent scripts all end late.
Canary: `tests/test_turns.py`, test_streamlit_runs_its_scripts_in_turns.
Public replacement: a function that `st.App` calls around each script run, or an option for the number of concurrent runs.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from streamlit.runtime.scriptrunner.script_runner import ScriptRunner

from pages.ui.server.scheduler import turn


def apply() -> None:
    """Makes every script run wait for its turn."""
    run = ScriptRunner._run_script

    @wraps(run)
    def run_in_turn(self: ScriptRunner, *arguments: Any) -> None:
        with turn():
            run(self, *arguments)

    ScriptRunner._run_script = run_in_turn  # type: ignore[assignment, method-assign]
