"""How far the loading of a model has come, for whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

_STEPS = 20  # reports of one loading, about

_TELL: ContextVar[Callable[[float], None] | None] = ContextVar("tell", default=None)


@contextmanager
def told(tell: Callable[[float], None]) -> Iterator[None]:
    """While it lasts, `tell` hears of every loading in this thread: the share that is done, from 0 to 1."""
    token = _TELL.set(tell)
    try:
        yield
    finally:
        _TELL.reset(token)


def follow() -> None:
    """Makes transformers report to whoever is `told`, and draw nothing into a terminal; more than once does no harm."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # of transformers
    logging.set_tqdm_hook(_bar)


class _Reported:
    """What transformers goes through while it loads, each step told."""

    def __init__(self, steps: Iterable[Any], tell: Callable[[float], None]) -> None:
        self.steps, self.tell = steps, tell

    def __iter__(self) -> Iterator[Any]:
        count = len(self.steps) if isinstance(self.steps, Sized) else 0
        for at, one in enumerate(self.steps):
            if count and at % max(1, count // _STEPS) == 0:
                self.tell(at / count)
            yield one


def _bar(make: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Any:
    tell = _TELL.get()
    return _Reported(args[0], tell) if tell and args and more.get("desc") == "Loading weights" else make(*args, **more)
