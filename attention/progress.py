"""How far what somebody waits for has come: who waits says whom to tell, who works tells."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

Tell = Callable[[str, float], None]
"""Hears what is done, in words, and the share that is done, from 0 to 1."""

_TELL: ContextVar[Tell | None] = ContextVar("tell", default=None)


@contextmanager
def told(tell: Tell) -> Iterator[None]:
    """While it lasts, `tell` hears of whatever takes long in this thread, or is waited for in it."""
    token = _TELL.set(tell)
    try:
        yield
    finally:
        _TELL.reset(token)


def telling() -> Tell | None:
    """Whom to tell in this thread; None where nobody wants to hear."""
    return _TELL.get()
