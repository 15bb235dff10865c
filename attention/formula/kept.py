"""The one place where what was worked out is kept: bounded by its bytes, and made once for all who ask at the same time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from threading import Condition
from typing import Any, TypeVar, cast

from cachetools import LRUCache, cached

T = TypeVar("T")

ENTRY = 20_000  # bytes of the smallest thing: a tensor as an object of Python, its place here
LARGE = (
    2**18
)  # bytes (256 × 256 numbers); of a larger matrix the last is kept, others with the same numbers before it are soon made again


def weight(found: Any) -> int:
    """What one thing counts for, in bytes."""
    return ENTRY + int(getattr(found, "nbytes", 0))


class _Kept:
    """What is kept, by its key; what was asked for longest ago makes room."""

    def __init__(self, most: int) -> None:
        self.changed = Condition()  # something was kept, or could not be made
        self.hold(most)

    def hold(self, most: int) -> None:
        """Keeps nothing any more, and from now on so many bytes at most."""
        self.cache: LRUCache[Hashable, Any] = LRUCache(most, getsizeof=weight)
        self._once = cached(self.cache, key=lambda key, _: key, condition=self.changed)(lambda _, make: make())

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What `make` gives, made once as long as it is kept."""
        return cast(T, self._once(key, make))

    def get(self, key: Hashable) -> Any:
        """What is kept under a key, or None."""
        with self.changed:
            return self.cache.get(key)

    def forget(self, those: Callable[[Hashable], bool]) -> None:
        """Takes out what has a key of `those`."""
        with self.changed:
            for key in [one for one in self.cache if those(one)]:
                self.cache.pop(key, None)

    def let_go(self, those: Callable[[Any], bool]) -> None:
        """Takes out those of what is kept that hold on to something which shall go."""
        with self.changed:
            for key in [key for key, one in self.cache.items() if those(one)]:
                self.cache.pop(key, None)

    def make_room(self, needs: int) -> None:
        """Takes out what was asked for longest ago, before what needs so many bytes is made and not after."""
        with self.changed:
            while self.cache and self.cache.currsize + needs > self.cache.maxsize:
                self.cache.popitem()

    def shrink(self, nbytes: int) -> None:
        """Takes out what was asked for longest ago, until so many bytes are out or nothing is left."""
        with self.changed:
            target = self.cache.currsize - nbytes
            while self.cache and self.cache.currsize > target:
                self.cache.popitem()


KEPT = _Kept(2**28)
_gone: deque[int] = deque()  # numbers of what nobody holds any more; a finalizer must not touch what may be in use


def matrix(number: int, place: Hashable, knobs: Hashable, make: Callable[[], T]) -> T:
    """A matrix made of the recorded tensors with that `number`; of a large one at one `place` only the last `knobs` are kept."""
    _forget_gone()
    key = (number, place, knobs)

    def made() -> T:
        found = make()
        if weight(found) > LARGE:
            KEPT.forget(lambda other: isinstance(other, tuple) and other[:2] == key[:2])
        return found

    return KEPT.once(key, made)


def gone(number: int) -> None:
    """Nobody holds the recorded tensors with that number any more."""
    _gone.append(number)


def _forget_gone() -> None:
    numbers = set()
    while _gone:
        numbers.add(_gone.popleft())
    if numbers:
        KEPT.forget(lambda key: isinstance(key, tuple) and key[0] in numbers)
