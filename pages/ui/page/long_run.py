"""A long computation on a page: in a process of its own, with a progress bar, a place in the line and a stop button."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from pages.ui.server import heavy, scheduler
from pages.ui.state.session import session


class _Progress(Protocol):
    """One report of a computation: the finished runs, all runs, the estimated remaining time, and in the last report the result."""

    @property
    def done(self) -> int: ...
    @property
    def total(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def result(self) -> object | None: ...


_Report = TypeVar("_Report", bound=_Progress)


@dataclass
class _Requests:
    by_name: dict[str, object] = field(default_factory=dict)


def is_requested(place: DeltaGenerator, name: str, request: object, words: str) -> bool:
    """Whether the user has requested exactly this computation. Otherwise draws the button that does, with these words."""
    if session().of(_Requests).by_name.get(name) == request:
        return True
    place.container().button(words, key=f"{name}_ask", on_click=_ask, args=(name, request))
    return False


def _ask(name: str, request: object) -> None:
    session().of(_Requests).by_name[name] = request


def _forget(name: str) -> None:
    session().of(_Requests).by_name.pop(name, None)


def finish(
    place: DeltaGenerator,
    label: Callable[[_Report], str],
    name: str,
    key: str,
    function: Callable[..., Iterator[_Report]],
    *args: Any,
) -> _Report | None:
    """Runs a computation to its end, and returns its last report; None if it ended without a result.

    Args:
        place: where the bar stands until the end.
        label: what is done so far, in words that “about 3 s left” follows.
        name: the name of the request, which Stop forgets.
        key: the key of the stop button.
        function: yields the reports. The first one comes at once; if the result is cached, it has it.
    """
    with scheduler.without_turn():
        first = next(function(*args))
    if first.result is not None:
        return first
    with place.container():
        bar = st.progress(0.0, f"{label(first)}, about {first.seconds:.0f} s left.")
        st.button("Stop", key=key, on_click=_forget, args=(name,))
    scheduler.release_exclusive()  # the computation does not need the trace
    with closing(heavy.stream(function, *args, words=label(first), tell=lambda text: bar.progress(0.0, text))) as steps:
        for report in steps:
            if report.result is not None:
                place.empty()
                return report
            text = f"{label(report)}, about {report.seconds:.0f} s left."
            bar.progress(min(1.0, report.done / max(1, report.total)), text)
    place.empty()
    return None
