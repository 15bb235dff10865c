"""A lock that serves threads in the order in which they arrive."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, get_ident


class FairLock:
    """A reentrant lock: one thread at a time, first come, first served.

    Long work calls `pause` between two pieces; threads that arrived in the meantime then run first.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._owner: int | None = None
        self._queue: deque[tuple[int, Event]] = deque()

    @property
    def waiting(self) -> int:
        """The number of waiting threads."""
        return len(self._queue)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """A context that waits for the lock and holds it until the end of the block."""
        if self._owner == get_ident():
            yield
            return
        self._acquire()
        try:
            yield
        finally:
            self._release()

    def pause(self) -> None:
        """Let all threads that wait now run before this one, which holds the lock."""
        if self._queue:
            self._release()
            self._acquire()

    def _acquire(self) -> None:
        thread_id, granted = get_ident(), Event()
        with self._guard:
            if self._owner is None:
                self._owner = thread_id
                return
            self._queue.append((thread_id, granted))
        try:
            granted.wait()
        except BaseException:  # such as Ctrl-C: no thread may be left waiting for this one
            with self._guard:
                still_queued = (thread_id, granted) in self._queue
                if still_queued:
                    self._queue.remove((thread_id, granted))
            if not still_queued:
                self._release()
            raise

    def _release(self) -> None:
        with self._guard:  # hand the lock over directly, so that no new thread overtakes
            self._owner, granted = self._queue.popleft() if self._queue else (None, None)
        if granted is not None:
            granted.set()
