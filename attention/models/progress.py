"""How far the loading of a model has come, told to whoever waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

from attention.progress import Tell, telling

_STEPS = 20  # reports of one loading, about


def follow() -> None:
    """Makes transformers report to whoever is told, and draw nothing into a terminal; more than once does no harm."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # of transformers
    logging.set_tqdm_hook(_bar)


class _Reported:
    """What transformers goes through while it loads, each step told."""

    def __init__(self, steps: Iterable[Any], tell: Tell) -> None:
        self.steps, self.tell = steps, tell

    def __iter__(self) -> Iterator[Any]:
        count = len(self.steps) if isinstance(self.steps, Sized) else 0
        for at, one in enumerate(self.steps):
            if count and at % max(1, count // _STEPS) == 0:
                self.tell("Loading the model …", at / count)
            yield one


def _bar(make: Callable[..., Any], args: tuple[Any, ...], more: dict[str, Any]) -> Any:
    tell = telling()
    return _Reported(args[0], tell) if tell and args and more.get("desc") == "Loading weights" else make(*args, **more)
