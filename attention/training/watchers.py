"""The watchers of trainings. Keys and groups are opaque here; for the app, they are a session and its address."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


def _always_present() -> bool:
    return True


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
    is_connected: Callable[[], bool] = _always_present


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
