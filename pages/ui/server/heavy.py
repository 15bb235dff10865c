"""Heavy work of visitors, in processes of their own (`attention.base.jobs`): two at a time, of one address one and a long one, and the others in line.

The server draws pages and runs models meanwhile. A visitor sees how many are before them. Work that nobody waits for any more ends, also while it is in line.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from time import monotonic
from typing import Any, TypeVar

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from attention.base import jobs
from attention.base.errors import BusyError
from attention.base.progress import Watcher, watching
from attention.models.library import LIBRARY, PARTS, in_job, missing_bytes
from pages.ui.server import limits, scheduler, traces

_Result = TypeVar("_Result")

_LIGHT_SECONDS = 0.5  # work that takes less is done here, since a process is not worth it
_LONG_SECONDS = 3.0  # after which a job keeps nobody waiting: the next one begins beside it
_HALF_LIFE, _FORGOTTEN_SECONDS = 60.0, 600.0  # of the time that somebody has had
_MODULES = ("torch", "pandas", "matplotlib", "pages.ui.exports.catalog")
"""What jobs import, besides `PARTS` for models: it is not counted as the visitor's memory."""
_LEAST_BYTES, _GOOD_BYTES = 96 * 2**20, 384 * 2**20  # of memory for a job, and for one beside another
_ADVICE = "Choose a shorter text or fewer heads"
_SHUTTING_DOWN = "This server is shutting down, and another one replaces it: try again in a moment."


def share_imports() -> None:
    """Where memory is little, imports what jobs need and forks their process from this one, before it does anything else."""
    if traces.IS_SMALL:
        jobs.share([*_MODULES, *(PARTS if LIBRARY.offers else ())])


class QueueFullError(BusyError):
    """A visitor has too many waiting jobs."""


def _job_bytes(granted: int) -> int:
    """The memory of the next job: half of what is free, or all but the memory of two small ones; 0 if it must wait until another ends."""
    begins = 0 if jobs.forker() else traces.FORKER_BYTES
    if not granted:
        traces.make_room(begins + _GOOD_BYTES)  # old traces leave, which can be computed again
    free = traces.room() - begins - granted
    if free < _LEAST_BYTES:
        if granted:
            return 0
        traces.make_room_for(begins + _LEAST_BYTES, "This needs")
    return min(limits.JOB_MB * 2**20, max(_LEAST_BYTES, free // 2, free - 2 * _LEAST_BYTES))


@dataclass(eq=False)
class _Place:
    """What a visitor has of a line: what is granted, 0 while they prepare, and since when."""

    visitor: Watcher
    began: float
    granted: int = 0

    def is_long(self, now: float) -> bool:
        """Whether it keeps nobody waiting any more."""
        return now >= self.began + _LONG_SECONDS


class _Line:
    """Visitors who wait for the same thing: a few have it at a time, and the last place is for another address.

    Who has had it for the least time is next: first the address, of it the session, and then who came first. So a visitor with one short job passes
    one who has had many, and each of two schools has half of the time. A job that takes long gives its place away.
    """

    def __init__(
        self, places: int, grant: Callable[[int], int], spare: int = 0, clock: Callable[[], float] = monotonic
    ) -> None:
        self._places, self._grant, self._clock = places, grant, clock
        self._spare = spare
        """What is left for another address where one has a place beside a long job of its own."""
        self._change = threading.Condition()
        self._waiting: list[Watcher] = []
        self._running: list[_Place] = []
        self._used: dict[Hashable, tuple[float, float]] = {}
        """The seconds that each address and each session has had, and when that was counted."""
        self._closed = False

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()

    @contextmanager
    def turn(
        self, visitor: Watcher, tell: Callable[[str], object] = str, prepare: Callable[[], object] = int
    ) -> Iterator[int]:
        """Waits for the visitor's turn, tells them meanwhile how many are before them, and gives what is granted, such as the bytes of a job.

        What `prepare` loads into memory, when it is the visitor's turn, can no longer be granted.
        """
        with self._change:
            self._join(visitor)
        try:
            while (mine := self._begin(visitor)) is None:
                with self._change:
                    before = self._order().index(visitor) + len(self._running)
                self._wait(visitor, tell, before)
        finally:
            with self._change:
                self._waiting = [other for other in self._waiting if other is not visitor]
                self._change.notify_all()
        try:
            prepare()
            while not self._get_granted(mine):
                self._wait(visitor, tell, sum(bool(other.granted) for other in self._running))
            yield mine.granted
        finally:
            self._end(mine)

    def _wait(self, visitor: Watcher, tell: Callable[[str], object], before: int) -> None:
        tell(f"In line: {before} before yours.")
        with self._change:
            # With a limit: a visitor who closes the tab notifies nobody.
            self._change.wait(jobs.POLL_SECONDS)

    def _get_granted(self, mine: _Place) -> int:
        _check_wanted(mine.visitor)
        with self._change:
            held = sum(place.granted for place in self._running)
            is_second = any(place is not mine for place in self._of(mine.visitor.group))
            mine.granted = self._grant(held + self._spare * is_second)
            mine.began = self._clock()
            return mine.granted

    def _join(self, visitor: Watcher) -> None:
        if self._closed:
            raise BusyError(_SHUTTING_DOWN)
        of_visitor = sum(other.key == visitor.key for other in self._waiting)
        of_address = sum(other.group == visitor.group for other in self._waiting)
        if of_visitor >= limits.JOBS_WAITING or of_address >= limits.JOBS_WAITING_OF_ADDRESS:
            raise QueueFullError(
                f"At most {limits.JOBS_WAITING} of your files may wait, and {limits.JOBS_WAITING_OF_ADDRESS} of your network, since they are made one after the other; "
                "got one more: try again in a moment."
            )
        self._waiting.append(visitor)

    def _begin(self, visitor: Watcher) -> _Place | None:
        """The visitor's place, if it is their turn."""
        _check_wanted(visitor)
        with self._change:
            if self._closed:
                raise BusyError(_SHUTTING_DOWN)
            now = self._clock()
            # A long job gives its place away, but processes share the memory: twice the places is the end.
            n_short = sum(not place.is_long(now) for place in self._running)
            if n_short >= self._places or len(self._running) >= 2 * self._places:
                return None
            if visitor is not next(filter(self._may_begin, self._order()), None):
                return None
            mine = _Place(visitor, now)
            self._running.append(mine)
            return mine

    def _end(self, mine: _Place) -> None:
        """Takes the place back, and counts for how long the visitor had it."""
        with self._change:
            now = self._clock()
            self._running = [other for other in self._running if other is not mine]
            for whose in {mine.visitor.group, mine.visitor.key}:
                self._used[whose] = self._seconds(whose, now) + now - mine.began, now
            self._used = {whose: used for whose, used in self._used.items() if now < used[1] + _FORGOTTEN_SECONDS}
            self._change.notify_all()

    def _seconds(self, whose: Hashable, now: float) -> float:
        """The seconds that an address or a session has had with places that it has no more; after a minute they count half."""
        seconds, counted = self._used.get(whose, (0.0, now))
        return float(seconds * 0.5 ** ((now - counted) / _HALF_LIFE))

    def _order(self) -> list[Watcher]:
        """Those who wait, the next one first."""
        now = self._clock()
        waiting = {whose for visitor in self._waiting for whose in (visitor.group, visitor.key)}
        seconds = {whose: self._seconds(whose, now) for whose in waiting}
        for place in self._running:
            for whose in {place.visitor.group, place.visitor.key} & waiting:
                seconds[whose] += now - place.began
        return sorted(self._waiting, key=lambda visitor: (seconds[visitor.group], seconds[visitor.key]))

    def _may_begin(self, visitor: Watcher) -> bool:
        """Whether the visitor's address may have another place, beside a long job of it. This machine's own person has all."""
        now, of_address = self._clock(), self._of(visitor.group)
        n_short = sum(not place.is_long(now) for place in of_address)
        most = max(1, self._places - 1)
        return not visitor.group or (n_short < most and len(of_address) < 2 * most)

    def _of(self, address: Hashable) -> list[_Place]:
        """The places of an address; of this machine's own person none is counted."""
        return [place for place in self._running if address and place.visitor.group == address]

    @property
    def is_wanted(self) -> bool:
        """Whether anybody waits."""
        return bool(self._waiting)


def _check_wanted(visitor: Watcher) -> None:
    if not visitor.is_connected():
        raise jobs.JobError("is not wanted any more")


LINE = _Line(limits.JOBS_AT_ONCE, _job_bytes, _LEAST_BYTES)
FILES = _Line(limits.FILES_AT_ONCE, lambda _: 1)
"""Files that are made here, since they are small. A model may be trained for one first, so there are several places."""


def run(function: Callable[..., _Result], *args: Any, seconds: float, words: str) -> _Result:
    """What a function returns, here if it takes less than half a second, and else in a process. What it adds to the cache is kept here.

    Args:
        function: at the top of a module that does not import Streamlit.
        args: what pickle can copy, such as traces and sources.
        seconds: that it is estimated to take.
        words: what happens, for the visitor, such as "Computing the metrics".

    Raises:
        AttentionError: the function raised it, it took too much, or the server is busy.
    """
    if seconds < _LIGHT_SECONDS or _is_trained_here(args):
        with scheduler.without_turn():
            return function(*args)
    return in_process(function, *args, words=words)


def in_process(function: Callable[..., _Result], *args: Any, words: str, advice: str = _ADVICE) -> _Result:
    """What a function returns in a process.

    Args:
        function, args, words: as for `run`.
        advice: what to do if it takes too much.

    Raises:
        AttentionError: as for `run`.
    """
    place = st.empty()
    try:
        (result,) = stream(_once, function, *args, words=words, tell=place.caption, advice=advice)
    finally:
        place.empty()
    return result  # type: ignore[no-any-return]  # of a process


def stream(
    function: Callable[..., Iterator[_Result]],
    *args: Any,
    words: str,
    tell: Callable[[str], object] = str,
    visitor: Watcher | None = None,
    prepare: Callable[[], object] = int,
    keep: bool = True,
    advice: str = _ADVICE,
) -> Generator[_Result]:
    """What a function yields in a process.

    Args:
        function, args, words, advice: as for `in_process`.
        tell: shows the visitor their place in the line.
        visitor: who waits, unless it is the visitor of this script run.
        prepare: called here when it is the visitor's turn, before the job's memory is granted, such as to load a model.
        keep: whether what it adds to the cache is kept here.

    Raises:
        AttentionError: as for `run`.
    """
    if _is_trained_here(args):
        with scheduler.without_turn():
            yield from function(*args)
        return
    visitor = visitor or _script()
    modules = [function.__module__, *_MODULES]

    def prepare_all() -> None:
        with watching(visitor):
            tell(f"{words} …")
            prepare()
            modules.extend(() if missing_bytes() else PARTS)
            _import_for_jobs(modules)

    with scheduler.without_turn(), LINE.turn(visitor, tell, prepare_all) as n_bytes, watching(visitor):
        # `_alive`: the job reads the weights in memory that these models own.
        models, _alive = LIBRARY.for_jobs()
        call = LIBRARY.settings.for_jobs(), models, function, *args
        try:
            yield from jobs.stream(
                in_job,
                *call,
                n_bytes=n_bytes,
                seconds=limits.JOB_SECONDS,
                keep=keep,
                modules=modules,
            )
        except jobs.JobError as error:
            raise BusyError(f"{words}: this {error}, so it was ended. {advice}, or try again in a minute.") from None


def _import_for_jobs(modules: Sequence[str]) -> None:
    if not jobs.forker():
        traces.make_room_for(traces.FORKER_BYTES, "This needs")
    try:
        jobs.import_for_jobs(modules)
    except jobs.JobError as error:
        raise BusyError(f"The process that makes files here {error}: try again in a moment.") from None


def _is_trained_here(args: Sequence[Any]) -> bool:
    """Whether a tiny model is among the arguments: it is trained in this process, and its runs are short."""
    return any(getattr(getattr(arg, "model_run", arg), "is_tiny", False) for arg in args)


@contextmanager
def turn(words: str) -> Iterator[int]:
    """Waits for the turn of the visitor of this script run, and gives the bytes that their process may take; called in `scheduler.without_turn`.

    Raises:
        BusyError: too many wait, the server ends, or it has no memory.
    """
    place, visitor = st.empty(), _script()
    try:
        with LINE.turn(visitor, place.caption) as n_bytes, watching(visitor):
            place.caption(f"{words} …")
            yield n_bytes
    finally:
        place.empty()


def _once(function: Callable[..., _Result], *args: Any) -> Iterator[_Result]:
    yield function(*args)


def _script() -> Watcher:
    """The visitor of this script run, who is gone when the script is to run anew."""
    visitor = scheduler.watcher()
    if get_script_run_ctx() is None:
        return visitor

    def is_connected() -> bool:
        _ = "heavy" in st.session_state  # where Streamlit ends a run that is not wanted any more
        return visitor.is_connected()

    return replace(visitor, is_connected=is_connected)
