"""The one thread in which all models here learn: a piece of one after a piece of another."""

from __future__ import annotations

import atexit
import time
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from threading import Condition, Thread
from typing import Generic, Protocol, TypeVar

import torch

from attention.errors import ConfigError
from attention.training.watching import current

T = TypeVar("T")

_LONGEST = 0.5  # seconds that a process which ends waits for the piece under way


class Job(Protocol):
    """Work that is done piece by piece."""

    @property
    def group(self) -> Hashable:
        """Groups share the thread's time equally."""
        ...

    def step(self) -> bool:
        """Does the next piece, and says whether there is more; raises nothing."""
        ...

    def fail(self, error: Exception) -> None:
        """It will not be finished, for this reason."""
        ...


class _Worker:
    """A thread that does a piece of a job of the group that has had the least of its time; the jobs of a group take turns.

    It is a daemon, so that a process which ends waits for the piece under way and for no other.
    """

    def __init__(self) -> None:
        self._changed, self._closed = Condition(), False
        self._jobs: dict[Hashable, deque[Job]] = {}
        self._used: dict[Hashable, float] = {}  # seconds, of the groups that have jobs
        self._thread: Thread | None = None

    def add(self, job: Job) -> None:
        """Does the pieces of a job from now on, one after those of others."""
        with self._changed:
            if not self._closed:
                self._put(job)
                if self._thread is None:
                    atexit.register(self.close)
                    self._thread = Thread(target=self._run, name="training", daemon=True)
                    self._thread.start()
                return
        job.fail(_closed())

    def close(self) -> None:
        """Ends it, and waits a moment for the piece under way: a thread that is still in torch when Python ends aborts it."""
        with self._changed:
            self._closed = True
            left = [job for jobs in self._jobs.values() for job in jobs]
            self._jobs.clear()
            self._changed.notify_all()
        for job in left:
            job.fail(_closed())
        if self._thread is not None:
            self._thread.join(_LONGEST)

    def _put(self, job: Job) -> None:
        """Puts a job behind those of its group; a new group begins as if it had used as much as the least used one."""
        group = job.group
        self._used.setdefault(group, min(self._used.values(), default=0.0))
        self._jobs.setdefault(group, deque()).append(job)
        self._changed.notify_all()

    def _run(self) -> None:
        _use_one_thread()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._closed or bool(self._jobs))
                if self._closed:
                    return
                group = min(self._jobs, key=self._used.__getitem__)
                job = self._jobs[group].popleft()
                if not self._jobs[group]:
                    del self._jobs[group]
            began = time.monotonic()
            more = job.step()
            with self._changed:
                self._used[group] += time.monotonic() - began
                more, closed = more and not self._closed, more and self._closed
                if more:
                    self._put(job)
                if group not in self._jobs:
                    self._used.pop(group, None)
            if closed:
                job.fail(_closed())
            del job  # what it holds may go while this waits


class _Once(Generic[T]):
    """A job of one piece, whose result somebody waits for."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work, self.future, self.group = work, Future[T](), current().group

    def step(self) -> bool:
        try:
            self.future.set_result(self.work())
        except BaseException as error:  # raised again where the result is waited for
            self.future.set_exception(error)
        return False

    def fail(self, error: Exception) -> None:
        self.future.set_exception(error)


def _closed() -> ConfigError:
    return ConfigError("This process ends and trains no model any more: try again in a moment.")


def _use_one_thread() -> None:
    """`torch.set_num_threads` is of the thread that calls it, and of every thread that begins later; a thread of its own takes the second back."""
    others = torch.get_num_threads()
    torch.set_num_threads(1)
    back = Thread(target=torch.set_num_threads, args=(others,))
    back.start()
    back.join()


WORKER = _Worker()


def in_turn(work: Callable[[], T]) -> T:
    """What `work` gives, done with one thread of torch when those who came before have theirs.

    Several threads collapse where a machine is busy, and add up in another order; what others do has as many as before.
    """
    job = _Once(work)
    WORKER.add(job)
    return job.future.result()
