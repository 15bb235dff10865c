"""The thread in which all models are trained, piece by piece in turn."""

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
from attention.training.watchers import current_watcher

T = TypeVar("T")

_JOIN_SECONDS = 0.5  # how long a process that ends waits for the running piece


class Job(Protocol):
    """Work that is done piece by piece."""

    @property
    def group(self) -> Hashable:
        """The group of the job; groups share the time of the thread equally."""
        ...

    def step(self) -> bool:
        """Do the next piece; returns whether there is more, and raises nothing."""
        ...

    def fail(self, error: Exception) -> None:
        """End the job with this error."""
        ...


class _Worker:
    """A thread that always serves the group with the least used time; the jobs of a group take turns.

    It is a daemon, so that a process that ends waits only for the running piece.
    """

    def __init__(self) -> None:
        self._changed, self._closed = Condition(), False
        self._jobs: dict[Hashable, deque[Job]] = {}
        self._used: dict[Hashable, float] = {}  # seconds, for groups with jobs
        self._thread: Thread | None = None

    def add(self, job: Job) -> None:
        """Queue a job."""
        with self._changed:
            if not self._closed:
                self._enqueue(job)
                if self._thread is None:
                    atexit.register(self.close)
                    self._thread = Thread(target=self._run, name="training", daemon=True)
                    self._thread.start()
                return
        job.fail(_closed_error())

    def close(self) -> None:
        """Stop the thread, and wait briefly for the running piece: a thread inside torch would abort the exit of Python."""
        with self._changed:
            self._closed = True
            remaining = [job for jobs in self._jobs.values() for job in jobs]
            self._jobs.clear()
            self._changed.notify_all()
        for job in remaining:
            job.fail(_closed_error())
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)

    def _enqueue(self, job: Job) -> None:
        """Add a job at the end of its group; a new group starts with the smallest used time of all groups."""
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
            start = time.monotonic()
            has_more = job.step()
            with self._changed:
                self._used[group] += time.monotonic() - start
                requeue, closed = has_more and not self._closed, has_more and self._closed
                if requeue:
                    self._enqueue(job)
                if group not in self._jobs:
                    self._used.pop(group, None)
            if closed:
                job.fail(_closed_error())
            del job  # free its memory while the thread waits


class _SinglePiece(Generic[T]):
    """A job of one piece, with a future for its result."""

    def __init__(self, work: Callable[[], T]) -> None:
        self.work, self.future, self.group = work, Future[T](), current_watcher().group

    def step(self) -> bool:
        try:
            self.future.set_result(self.work())
        except BaseException as error:  # raised again by `future.result`
            self.future.set_exception(error)
        return False

    def fail(self, error: Exception) -> None:
        self.future.set_exception(error)


def _closed_error() -> ConfigError:
    return ConfigError("This server is shutting down and trains no more models: try again in a moment.")


def _use_one_thread() -> None:
    """Give this thread one thread of torch.

    `torch.set_num_threads` applies to the calling thread and to all later threads; a helper thread restores it for the latter.
    """
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    restore = Thread(target=torch.set_num_threads, args=(n_threads,))
    restore.start()
    restore.join()


TRAINING_WORKER = _Worker()


def run_in_turn(work: Callable[[], T]) -> T:
    """The result of `work`, run in the training thread with one thread of torch, after the jobs that came before.

    Several threads of torch are slow on a busy machine and sum in another order. Other threads keep their number.
    """
    job = _SinglePiece(work)
    TRAINING_WORKER.add(job)
    return job.future.result()
