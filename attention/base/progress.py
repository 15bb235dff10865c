"""What a long computation reports to the thread that asked for it, and for whom a training runs.

Keys and groups of watchers are opaque here; for the app, they are a session and its address.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Watcher:
    """A user who watches trainings.

    Attributes:
        key: identifies the user; None: anonymous, without a bound on their trainings.
        group: shared by several users; groups take turns.
        is_connected: returns whether the user is still connected.
    """

    key: Hashable = None
    group: Hashable = None
    is_connected: Callable[[], bool] = lambda: True


_WATCHER: ContextVar[Watcher] = ContextVar("watcher", default=Watcher())  # noqa: B039  # it is immutable


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """A context in which this is the watcher of the thread."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def current_watcher() -> Watcher:
    """The watcher of this thread."""
    return _WATCHER.get()
