"""Who looks at trainings. What a key or a group stands for, such as a session and its address, is known to the caller alone."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


def _always() -> bool:
    return True


@dataclass(frozen=True)
class Watcher:
    """Somebody who looks at trainings.

    Attributes:
        key: equal for the same person; None: nobody in particular, for whom there is no bound.
        group: what several people share; groups take turns.
        present: whether they can still be shown anything.
    """

    key: Hashable = None
    group: Hashable = None
    present: Callable[[], bool] = _always


_WATCHER: ContextVar[Watcher] = ContextVar("watcher", default=Watcher())  # noqa: B039  # it is frozen


@contextmanager
def watching(watcher: Watcher) -> Iterator[None]:
    """While it lasts, this watcher is the one who looks at trainings in this thread."""
    token = _WATCHER.set(watcher)
    try:
        yield
    finally:
        _WATCHER.reset(token)


def current() -> Watcher:
    """The watcher of this thread."""
    return _WATCHER.get()
