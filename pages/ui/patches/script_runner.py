"""A run of a script waits for its turn.

Replaces: `ScriptRunner._run_script`, around which it takes a turn (`pages/ui/server/turns.py`).
Why: Streamlit runs the scripts of all sessions at the same time, each in a thread of its own. Python runs one thread at a time
    anyway, so twenty scripts that share it all end late.
Canary: `tests/test_turns.py`, test_streamlit_runs_its_scripts_in_turns.
Public replacement: a function that `st.App` calls around each run of a script, or an option for how many run at a time.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from streamlit.runtime.scriptrunner.script_runner import ScriptRunner

from pages.ui.server.turns import turn


def apply() -> None:
    """From now on every run of a script waits for its turn."""
    run = ScriptRunner._run_script

    @wraps(run)
    def run_in_turn(self: ScriptRunner, *arguments: Any) -> None:
        with turn():
            run(self, *arguments)

    ScriptRunner._run_script = run_in_turn  # type: ignore[assignment, method-assign]
