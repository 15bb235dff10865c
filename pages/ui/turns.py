"""One script at a time, in the order in which they were asked for.

Python runs one thread at a time anyway. Twenty scripts that share it end late, all of them, and lose a
third of the processor by taking it from each other; one after the other, most are done at once. What works
without Python, torch on a large trace, steps aside meanwhile. Streamlit 1.67 has no setting for this, so
its runner is wrapped here; `tests/test_turns.py` fails where a newer one has another.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any

from streamlit.runtime.scriptrunner.script_runner import ScriptRunner

_door, _turn = threading.Lock(), threading.Lock()
_mine = threading.local()  # .turn: whether this thread has the turn


@contextmanager
def turn() -> Iterator[None]:
    """Waits until it is this thread's turn, and keeps it."""
    with _door:  # whoever comes back from aside does not queue up here, and waits for one other at most
        _turn.acquire()
    _mine.turn = True
    try:
        yield
    finally:
        _mine.turn = False
        _turn.release()


@contextmanager
def aside() -> Iterator[None]:
    """Lets others have the turn meanwhile; without a turn it does nothing."""
    if not getattr(_mine, "turn", False):
        yield
        return
    _turn.release()
    try:
        yield
    finally:
        _turn.acquire()


def take_turns() -> None:
    """From now on every run of a script waits for its turn."""
    run = ScriptRunner._run_script

    @wraps(run)
    def in_turn(self: ScriptRunner, *given: Any) -> None:
        with turn():
            run(self, *given)

    ScriptRunner._run_script = in_turn  # type: ignore[assignment, method-assign]
