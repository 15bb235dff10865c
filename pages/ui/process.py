"""What a server process does once, on the import of this module."""

from __future__ import annotations

import atexit
import threading
import time

_PATIENCE = 5.0  # seconds; a run of ours takes less


def _let_runs_end() -> None:
    """Waits for scripts in progress before Python goes.

    Streamlit runs them in daemon threads. One that comes back from torch or pyarrow while Python
    finalizes makes the whole process abort, and SIGTERM would end with an error.
    """
    until = time.monotonic() + _PATIENCE
    for thread in threading.enumerate():
        if thread.name == "ScriptRunner.scriptThread":
            thread.join(max(0.0, until - time.monotonic()))


atexit.register(_let_runs_end)
