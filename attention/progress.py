"""Progress reports of long computations: callers set a callback for their thread, workers call it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

ProgressCallback = Callable[[str, float], None]
"""A callback: receives a description of the work, and the fraction that is done, from 0 to 1."""

_CALLBACK: ContextVar[ProgressCallback | None] = ContextVar("progress_callback", default=None)


@contextmanager
def report_progress_to(callback: ProgressCallback) -> Iterator[None]:
    """A context in which `callback` receives the progress of this thread, and of work that this thread waits for."""
    token = _CALLBACK.set(callback)
    try:
        yield
    finally:
        _CALLBACK.reset(token)


def current_callback() -> ProgressCallback | None:
    """The progress callback of this thread, or None."""
    return _CALLBACK.get()
