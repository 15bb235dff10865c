"""Progress of loading a model, forwarded to the current callback."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any

from attention.progress import ProgressCallback, current_callback

_REPORTS = 20  # about as many for each model


def report_loading() -> None:
    """Forward the loading progress of transformers to the current callback, and disable its progress bars; idempotent."""
    from transformers.utils import logging

    logging.disable_progress_bar()  # type: ignore[no-untyped-call]  # transformers has no annotation
    logging.set_tqdm_hook(_replace_bar)


class _ReportingIterable:
    """The steps of a loading model; iterating reports progress."""

    def __init__(self, steps: Iterable[Any], report: ProgressCallback) -> None:
        self.steps, self.report = steps, report

    def __iter__(self) -> Iterator[Any]:
        count = len(self.steps) if isinstance(self.steps, Sized) else 0
        for i, step in enumerate(self.steps):
            if count and i % max(1, count // _REPORTS) == 0:
                self.report("Loading the model …", i / count)
            yield step


def _replace_bar(make_bar: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    report = current_callback()
    if report and args and kwargs.get("desc") == "Loading weights":
        return _ReportingIterable(args[0], report)
    return make_bar(*args, **kwargs)
