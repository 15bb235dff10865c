"""Computes traces once for all sessions, caches them together with the matrices derived from them, and frees memory before a large allocation.

Traces are read-only, so one object serves all sessions. Pages and their callbacks store the
source and call this module: a stored trace would stay in memory as long as a browser tab is open.

Concurrent requests for the same trace wait for one computation. Different traces of one kind of source are computed one after the other.

The cache, uploads, messages and models have their own limits; `make_room` keeps their sum below the memory of the process.
"""

from __future__ import annotations

import gc
import marshal
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import fields, is_dataclass, replace
from hashlib import blake2b
from threading import Lock
from typing import Any, TypeVar

from attention.base import jobs
from attention.base.cache import CACHE
from attention.base.errors import BusyError, SizeError
from attention.base.progress import watching
from attention.formula.names import HEAD_OUTPUT
from attention.models.library import LIBRARY, PARTS, Settings
from attention.sources import Intervenable, Source
from attention.sources.model import Model
from attention.trace.layer import Layer
from attention.trace.trace import Trace
from pages.ui.server import limits, scheduler
from pages.ui.server.limits import resident_bytes, trim
from pages.ui.server.scheduler import watcher

_Result = TypeVar("_Result")

_RESERVE = 96 * 2**20
"""Bytes for uncounted memory: copies of a trace for drawing, and concurrent allocations of other sessions."""

_MAX_PAIR_MB = limits.MAX_TRACE_MB * 3 // 2  # of two compared states together; each may have up to limits.MAX_TRACE_MB
_LARGE = 16 * 2**20  # bytes
_LOCKS: dict[str, Lock] = {}  # one computation at a time for each kind of source: a slow model delays only models


FORKER_BYTES = 2**28
"""The bytes of the process that forks jobs, with the modules of pages and files, where it shares none with this one."""
_beside = [0]  # bytes that it had beside those of this process when no job shared them
_LIMIT, _ = limits.process_memory(limits.MEMORY_MB)
"""The memory limit of this process in bytes; None if unknown."""
IS_SMALL = _LIMIT is not None and _LIMIT <= 2**32
"""Whether that is little: the imports of this process and of jobs are then in memory once, for a later start."""


def room() -> int:
    """The bytes that are free for jobs beside this process and the one that forks them; many without a limit."""
    if (forker := jobs.forker()) is None:
        _beside[0] = 0
    elif not jobs.is_running():
        _beside[0] = limits.own_bytes(forker) or resident_bytes(process=forker) or 0
    held = resident_bytes()
    return 2**40 if _LIMIT is None or held is None else _LIMIT - held - _beside[0] - _RESERVE


def make_room(needs: int) -> int:
    """Frees memory if another `needs` bytes would not fit: garbage, what is cached, and then models that nobody has used for a while.

    Returns:
        The bytes that are still missing; 0 if they fit.
    """

    def shortage() -> int:
        return max(0, needs - room())

    if shortage():
        gc.collect()  # finished runs are reference cycles that may contain large figures
        trim()
    if nbytes := shortage():
        if nbytes <= int(CACHE.cache.currsize):  # otherwise even an empty cache would not be enough
            CACHE.shrink(nbytes)
            trim()
        while shortage() and LIBRARY.drop_idle():
            trim()
    return shortage()


def make_room_for(needs: int, words: str = "These steps need") -> None:
    """The same, for the steps of a trace.

    Raises:
        BusyError: they do not fit.
    """
    if shortage := make_room(needs):
        raise BusyError(
            f"{words} {_mb(needs)} MB of memory, and this server has {_mb(max(0, needs - shortage))} MB left: choose fewer heads, "
            "a smaller d_model or a shorter text, try again in a minute, or give the server more memory (LAB_MEMORY_MB, or the limit of its container)."
        )


def _mb(nbytes: int) -> str:
    return f"{nbytes / 2**20:,.0f}"


CACHE.reset(limits.TRACE_CACHE_MB * 2**20)
LIBRARY.hold(
    Settings(
        limits.MODELS,
        limits.ALLOW_LOCAL_MODELS,
        limits.HF_ALLOW,
        limits.MAX_MODEL_MB,
        limits.MODEL_CACHE_MB,
        make_room,
        shared=True,
    )
)


def _key(source: Source, what: str = "trace") -> bytes:
    """A short digest of a source. Texts and matrices as cache keys would use uncounted memory."""
    return blake2b(marshal.dumps((what, _plain(source)), 2), digest_size=16).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple) and value and (is_dataclass(value[0]) or hasattr(value[0], "_fields")):
        return tuple(tuple(item) if hasattr(item, "_fields") else _plain(item) for item in value)
    if not is_dataclass(value):
        return value
    return type(value).__name__, *(_plain(getattr(value, field.name)) for field in fields(value) if field.compare)


def trace_of(source: Source) -> Trace:
    """The trace of a source. The part that does not depend on the knobs after the scores is cached.

    A run with a large trace has exclusive use of large memory until it ends.

    Raises:
        AttentionError: the source has no trace.
    """
    key, run_traces = _key(source), scheduler.run_cache()
    if isinstance(source, Intervenable) and key not in run_traces and CACHE.get(_key(source.base)) is None:
        with scheduler.without_turn(), watching(watcher()):  # before the lock, so that no other large run waits for it
            source.prepare()
    needs = source.memory_bytes()
    with ExitStack() as stack:
        if needs > _LARGE:
            stack.enter_context(scheduler.exclusive())
        if key not in run_traces:
            if needs > _LARGE:
                make_room_for(needs)
            computed = _trace_of(source, needs)
            while len(run_traces) > 1:  # keeps both traces of a comparison
                del run_traces[next(iter(run_traces))]
            run_traces[key] = computed  # the cache may evict it during the run, or it may not fit
        trace: Trace = run_traces[key]
    return trace


def traces_of_both(first: Source, other: Source) -> tuple[Trace, Trace]:
    """The traces of two compared states.

    Raises:
        AttentionError: one of them has no trace, or both need more than `_MAX_PAIR_MB` together.
    """
    bases = {_key(source.base): source.memory_bytes() for source in (first, other)}
    if sum(bases.values()) > _MAX_PAIR_MB * 2**20:
        raise SizeError(
            f"Two states together may need at most {_MAX_PAIR_MB:,} MB here; got {sum(bases.values()) / 2**20:,.0f} MB: "
            "choose a shorter text in one of them, or raise the limit (LAB_MAX_TRACE_MB)."
        )
    return trace_of(first), trace_of(other)


def unchanged_predictions(source: Source) -> Trace | None:
    """The predictions of the model without interventions, as a trace without layers; None if it has no interventions.

    Raises:
        AttentionError: as for `trace_of`.
    """
    if not (isinstance(source, Intervenable) and source.interventions):
        return None
    unchanged = source.without_interventions
    key = _key(unchanged, "said")
    cached: Trace | None = CACHE.get(key)
    if cached is not None:
        return cached
    trace = _trace_of(unchanged, unchanged.memory_bytes())
    return CACHE.get_or_compute(key, lambda: replace(trace, layers=()))


def compute_head(layer: Layer, head: int) -> None:
    """Computes all matrices of one head outside of the run's turn, before the page reads them one by one."""
    ready = (layer.uid, "ready", (layer.formula, head))
    if layer.formula is None or CACHE.get(ready):
        return

    def everything() -> bool:
        if not layer.keeps_maps:
            layer.matrix(
                HEAD_OUTPUT if layer.has(HEAD_OUTPUT) else layer.steps[-1].name, head
            )  # and all that is drawn of its maps
            return True
        for step in layer.steps:
            layer.matrix(step.name, head)
            layer.stats(step.name)
        return True

    with scheduler.without_turn(), _lock("maps"):
        CACHE.get_or_compute(ready, everything)


def derived_of(source: Source, what: str, make: Callable[[], _Result]) -> _Result:
    """What `make` derives of a source, cached like its trace; `what` names it, and one is made at a time.

    Raises:
        AttentionError: as for `make`.
    """
    return _cached(_key(source, what), make, what)


def _trace_of(source: Source, needs: int) -> Trace:
    base = source.base

    def make() -> Trace:
        if needs > _LARGE:
            limits.release()
        CACHE.make_room(needs)
        return base.trace()

    if isinstance(source, Model) and room() > 2 * FORKER_BYTES:  # its own bytes, and those of a job
        jobs.begin(PARTS)  # its visitor will ask for a sweep, or for a file
    kind = "" if isinstance(source, Intervenable) else type(source).__name__
    return _cached(_key(base), make, kind).with_config(source.config)


def _lock(kind: str) -> Lock:
    return _LOCKS.setdefault(kind, Lock())


def _cached(key: bytes, make: Callable[[], _Result], kind: str) -> _Result:
    cached: _Result | None = CACHE.get(key)
    if cached is not None:
        return cached

    def make_with_lock() -> _Result:
        with _lock(kind) if kind else nullcontext():
            return make()

    with scheduler.without_turn(), watching(watcher()):
        return CACHE.get_or_compute(key, make_with_lock)
