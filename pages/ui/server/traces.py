"""The one place where traces live: shared by everybody, bounded by what they weigh.

A trace is never written to, so one object serves all sessions. Pages and their callbacks keep the
source and come back here: whoever kept a trace would keep it as long as a browser tab is open.

Who asks for what somebody else is having made waits for that; what differs is made one after the other.
"""

from __future__ import annotations

import gc
import marshal
import sys
from collections.abc import Callable, Hashable
from contextlib import ExitStack
from dataclasses import fields, is_dataclass
from hashlib import blake2b
from threading import Condition, Lock
from typing import TYPE_CHECKING, Any, TypeVar

from cachetools import LRUCache, cached

from attention import Source, Trace, TypedText
from attention.sources import Turnable
from pages.ui.server import turns
from pages.ui.server.limits import CACHE_MB

if TYPE_CHECKING:
    from attention.lessons.softmax import Scaling

S = TypeVar("S")
Made = TypeVar("Made")

_LARGE = 16 * 2**20  # bytes
_LAST_ONLY = 2**20  # bytes; of larger traces with the same scores the last is kept, the others are soon made again
_ENTRY = 20_000  # bytes of the smallest trace: its tensors as objects of Python, its place in the cache


def _weight(found: Trace | Scaling) -> int:
    return _ENTRY + found.nbytes + sum(map(sys.getsizeof, {*found.tokens, *found.key_tokens}))


def _key(source: Source, what: str = "trace") -> bytes:
    """A source in a few bytes: texts and matrices as keys would weigh more than what they lead to, and nobody counts them."""
    return blake2b(marshal.dumps((what, _plain(source)), 2), digest_size=16).digest()


def _plain(value: Any) -> Any:
    if not is_dataclass(value):
        return value
    return type(value).__name__, *(_plain(getattr(value, one.name)) for one in fields(value))


_KEPT: LRUCache[Hashable, Any] = LRUCache(CACHE_MB * 2**20, getsizeof=_weight)
_CHANGED = Condition()  # something was kept, or could not be made
_MAKING = Lock()


def trace_of(source: Source) -> Trace:
    """The trace of a source, made once as long as it is kept; from its scores, if only a later knob was turned.

    Whoever gets a large one is alone with it until the run ends.

    Raises:
        AttentionError: the source gives none.
    """
    key, needs = _key(source), source.needs if isinstance(source, Turnable) else 0
    with ExitStack() as stack:
        if needs > _LARGE:
            stack.enter_context(turns.alone())
        mine = turns.mine()
        if key not in mine:
            found = _found(key, _trace_of, source)
            mine.clear()
            mine[key] = found  # others may take it out of the cache meanwhile, or it does not fit in
        kept: Trace = mine[key]
    return kept


def scaling_of(source: TypedText) -> Scaling:
    """What the Softmax page shows of a source, made once as long as it is kept.

    Raises:
        AttentionError: the source gives no trace.
    """
    return _found(_key(source, "scaling"), _scaling_of, source)


def _found(key: bytes, make: Callable[[S], Made], source: S) -> Made:
    kept: Made | None = _kept(key)
    if kept is not None:
        return kept
    with turns.aside():
        return make(source)


def _kept(key: bytes) -> Any:
    with _CHANGED:
        return _KEPT.get(key)


@cached(_KEPT, key=_key, condition=_CHANGED)
def _trace_of(source: Source) -> Trace:
    with _MAKING:
        if not isinstance(source, Turnable):
            return source.trace()
        if source.needs > _LARGE:
            gc.collect()  # finished runs are cycles, and may hold large figures; Streamlit's own collection is off
        scores = _scores_of(source.unturned)
        if source.needs > _LAST_ONLY:
            _forget_turns_of(scores)
        _make_room(source.needs)
        return source.trace(scores)


@cached(_KEPT, key=lambda source: _key(source, "scores"), condition=_CHANGED)
def _scores_of(unturned: Turnable) -> Trace:
    _make_room(unturned.needs)
    return unturned.scores()


def _forget_turns_of(scores: Trace) -> None:
    """Takes out what was made of these scores: who drags a temperature along would fill the cache with it."""
    with _CHANGED:
        for key, kept in list(_KEPT.items()):
            layers = getattr(kept, "layers", ())
            if kept is not scores and layers and layers[0].scores is scores.layers[0].scores:
                del _KEPT[key]


def _make_room(needs: int) -> None:
    """Takes out what was asked for longest ago, before what needs so many bytes is made and not after."""
    with _CHANGED:
        while _KEPT and _KEPT.currsize + needs > _KEPT.maxsize:
            _KEPT.popitem()


@cached(_KEPT, key=lambda source: _key(source, "scaling"), condition=_CHANGED)
def _scaling_of(source: TypedText) -> Scaling:
    from attention.lessons.softmax import scaling  # with pandas, half a second, which the other pages need not wait for

    with _MAKING:
        return scaling(source)
