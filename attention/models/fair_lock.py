"""A lock that serves threads in the order in which they come."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Lock, get_ident


class FairLock:
    """One thread at a time, first come, first served. A thread that holds it may enter again.

    Long work calls `pause` between two pieces, and those who came meanwhile go first.
    """

    def __init__(self) -> None:
        self._guard = Lock()
        self._owner: int | None = None
        self._queue: deque[tuple[int, Event]] = deque()

    @property
    def waiting(self) -> int:
        """How many threads wait."""
        return len(self._queue)

    @contextmanager
    def hold(self) -> Iterator[None]:
        """Waits for its turn, and has the lock until the end of the block."""
        if self._owner == get_ident():
            yield
            return
        self._acquire()
        try:
            yield
        finally:
            self._release()

    def pause(self) -> None:
        """Lets all threads that wait now go before this one, which holds the lock."""
        if self._queue:
            self._release()
            self._acquire()

    def _acquire(self) -> None:
        me, called = get_ident(), Event()
        with self._guard:
            if self._owner is None:
                self._owner = me
                return
            self._queue.append((me, called))
        try:
            called.wait()
        except BaseException:  # such as Ctrl-C: nobody may be left waiting for this thread
            with self._guard:
                still_queued = (me, called) in self._queue
                if still_queued:
                    self._queue.remove((me, called))
            if not still_queued:
                self._release()
            raise

    def _release(self) -> None:
        with self._guard:  # handed over, so that no newcomer overtakes
            self._owner, called = self._queue.popleft() if self._queue else (None, None)
        if called is not None:
            called.set()
