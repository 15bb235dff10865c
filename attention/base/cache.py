"""The process-wide cache of computed values: bounded in bytes; concurrent requests for one value compute it once."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Mapping, Set
from itertools import count
from threading import Condition, local
from typing import Any, TypeVar, cast

from cachetools import LRUCache, cached

_T = TypeVar("_T")

_ENTRY_BYTES = 20_000  # of the smallest entry: a tensor as a Python object, and its place in the cache
_SMALL_BYTES = 2**22
_UIDS_OF_JOB = 2**40
_LARGE_BYTES = 2**18  # 256 × 256 numbers; of larger matrices, the cache holds one per place (see `memoize`)


def _entry_bytes(value: Any) -> int:
    return _ENTRY_BYTES + int(getattr(value, "nbytes", 0))


class _Computing(local):
    keys: frozenset[Hashable] = frozenset()  # of one thread: what it is computing


_computing = _Computing()


class _Cache:
    def __init__(self, max_bytes: int) -> None:
        self.changed = Condition()  # notified when a value was stored, or could not be computed
        self.reset(max_bytes)

    def reset(self, max_bytes: int) -> None:
        self.cache: LRUCache[Hashable, Any] = LRUCache(max_bytes, getsizeof=_entry_bytes)
        self._get_or_compute = cached(self.cache, key=lambda key, _: key, condition=self.changed)(
            lambda _, compute: compute()
        )

    def get_or_compute(self, key: Hashable, compute: Callable[[], _T]) -> _T:
        outer = _computing.keys
        if outer and key in outer:  # the thread would wait for itself, also where a job has stored the value by now
            value = self.get(key)
            if value is None:
                raise RecursionError("a matrix is computed from itself")
            return cast(_T, value)

        def compute_inside() -> _T:
            _computing.keys = outer | {key}
            try:
                return compute()
            finally:
                _computing.keys = outer

        return cast(_T, self._get_or_compute(key, compute_inside))

    def get(self, key: Hashable) -> Any:
        with self.changed:
            return self.cache.get(key)

    def discard_keys(self, matches: Callable[[Hashable], bool]) -> None:
        with self.changed:
            for key in [key for key in self.cache if matches(key)]:
                self.cache.pop(key, None)

    def discard_values(self, matches: Callable[[Any], bool]) -> None:
        """Removes the entries whose values match, such as values that reference an object to free."""
        with self.changed:
            for key in [key for key, value in self.cache.items() if matches(value)]:
                self.cache.pop(key, None)

    def make_room(self, nbytes: int) -> None:
        """Removes the least recently used entries until `nbytes` are free; called before a value of that size is made."""
        with self.changed:
            while self.cache and self.cache.currsize + nbytes > self.cache.maxsize:
                self.cache.popitem()

    def shrink(self, nbytes: int) -> None:
        """Removes the least recently used entries until `nbytes` are freed, or the cache is empty."""
        with self.changed:
            target = self.cache.currsize - nbytes
            while self.cache and self.cache.currsize > target:
                self.cache.popitem()

    def small_entries(self, known: Set[Hashable]) -> dict[Hashable, Any]:
        with self.changed:
            return {
                key: value
                for key, value in self.cache.items()
                if key not in known and _entry_bytes(value) < _SMALL_BYTES
            }

    def adopt(self, entries: Mapping[Hashable, Any]) -> None:
        with self.changed:
            for key, value in entries.items():
                if _entry_bytes(value) <= self.cache.maxsize:
                    self.cache[key] = value


CACHE = _Cache(2**28)
_released_uids: deque[int] = deque()  # of collected tensors; a finalizer must not touch the cache, which may be locked


_uids, _jobs = [count()], count(1)


def new_uid() -> int:
    """An id of recorded tensors, of a run or of a model, which no other process has that works for this one."""
    return next(_uids[0])


def first_uid_of_job() -> int:
    """From which a process that works for this one counts its ids."""
    return next(_jobs) * _UIDS_OF_JOB


def start_uids(first: int) -> None:
    """Counts the ids of this process from here on."""
    _uids[0] = count(first)


def memoize(uid: int, place: Hashable, knobs: Hashable, compute: Callable[[], _T]) -> _T:
    """The cached value of (uid, place, knobs), computed if it is missing. Of large values, only those of the last knobs of each place are cached.

    Args:
        uid: the id of the recorded tensors from which the value is computed.
        place: what the value is, such as a step and a head.
        knobs: on which the value depends.
        compute: returns the value.
    """
    _discard_released()
    key = (uid, place, knobs)

    def compute_and_evict() -> _T:
        value = compute()
        if _entry_bytes(value) > _LARGE_BYTES:
            CACHE.discard_keys(lambda other: isinstance(other, tuple) and other[:2] == key[:2])
        return value

    return CACHE.get_or_compute(key, compute_and_evict)


def mark_released(uid: int) -> None:
    """Marks the recorded tensors with this id as garbage collected; their entries are removed on the next call."""
    _released_uids.append(uid)


def _discard_released() -> None:
    uids = set()
    while _released_uids:
        uids.add(_released_uids.popleft())
    if uids:
        CACHE.discard_keys(lambda key: isinstance(key, tuple) and key[0] in uids)
