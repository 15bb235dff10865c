"""Traces for everybody: made once for all who ask, kept where `attention.formula.kept` keeps what was made of them.

A trace is never written to, so one object serves all sessions. Pages and their callbacks keep the
source and come back here: whoever kept a trace would keep it as long as a browser tab is open.

Who asks for what somebody else is having made waits for that; what differs is made one after the other, of each kind of source.
"""

from __future__ import annotations

import marshal
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import fields, is_dataclass, replace
from hashlib import blake2b
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar

from attention import Layer, Source, Trace, TypedText
from attention.errors import SizeError
from attention.formula.kept import KEPT
from attention.models.library import LIBRARY, Settings
from attention.sources import Changeable, Preparable, Turnable
from attention.sources.link import source_of
from attention.training.watching import watching
from pages.ui.knobs.table import LIMITS
from pages.ui.server import memory, turns
from pages.ui.server.limits import (
    ALLOW_LOCAL_MODELS,
    HF_ALLOW,
    MAX_MODEL_MB,
    MAX_TRACE_MB,
    MODEL_CACHE_MB,
    MODELS,
    TRACE_CACHE_MB,
)
from pages.ui.server.room import make_room, make_room_for_trace
from pages.ui.server.visitor import watcher

if TYPE_CHECKING:
    from attention.lessons.answers import Seen
    from attention.lessons.lesson import Lesson
    from attention.lessons.scaling import Scaling

Made = TypeVar("Made")

_LARGE = 16 * 2**20  # bytes
_MAKING: dict[str, Lock] = {}  # for each kind of thing one is made at a time: a slow model keeps only models waiting
MAX_BOTH_MB = MAX_TRACE_MB * 3 // 2  # of two states that are compared, of which each alone may have as much as any

KEPT.hold(TRACE_CACHE_MB * 2**20)
LIBRARY.hold(Settings(MODELS, ALLOW_LOCAL_MODELS, HF_ALLOW, MAX_MODEL_MB, MODEL_CACHE_MB, make_room))


def _key(source: Source, what: str = "trace") -> bytes:
    """A source in a few bytes: texts and matrices as keys would weigh more than what they lead to, and nobody counts them."""
    return blake2b(marshal.dumps((what, _plain(source)), 2), digest_size=16).digest()


def _plain(value: Any) -> Any:
    if isinstance(value, tuple) and value and (is_dataclass(value[0]) or hasattr(value[0], "_fields")):
        return tuple(tuple(one) if hasattr(one, "_fields") else _plain(one) for one in value)
    if not is_dataclass(value):
        return value
    return type(value).__name__, *(_plain(getattr(value, one.name)) for one in fields(value) if one.compare)


def trace_of(source: Source) -> Trace:
    """The trace of a source; what does not depend on the knobs after the scores is made once as long as it is kept.

    Whoever gets a large one is alone with it until the run ends.

    Raises:
        AttentionError: the source gives none.
    """
    key, needs = _key(source), source.needs if isinstance(source, Turnable) else 0
    mine = turns.mine()
    if isinstance(source, Preparable) and key not in mine and KEPT.get(_key(source.base)) is None:
        with turns.aside(), watching(watcher()):  # nobody else with something large waits for this
            source.prepare()
    with ExitStack() as stack:
        if needs > _LARGE:
            stack.enter_context(turns.alone())
        if key not in mine:
            if needs > _LARGE:
                make_room_for_trace(needs)
            found = _trace_of(source, needs)
            while len(mine) > 1:  # of two states that are compared both
                del mine[next(iter(mine))]
            mine[key] = found  # others may take it out of the cache meanwhile, or it does not fit in
        kept: Trace = mine[key]
    return kept


def is_cached(source: Source) -> bool:
    """Whether the trace of a source is kept, so that it takes no time."""
    return KEPT.get(_key(source.base if isinstance(source, Turnable) else source)) is not None


def both_of(one: Source, other: Source) -> tuple[Trace, Trace]:
    """The traces of two states that are compared, which together take no more than one may.

    Raises:
        AttentionError: one of them gives none, or they are too much together.
    """
    bases = {_key(source.base): source.needs for source in (one, other) if isinstance(source, Turnable)}
    if sum(bases.values()) > MAX_BOTH_MB * 2**20:
        raise SizeError(
            f"Two states need at most {MAX_BOTH_MB:,} MB here; got {sum(bases.values()) / 2**20:,.0f} MB: "
            "choose a shorter text in one of them, or allow more (LAB_MAX_TRACE_MB)."
        )
    return trace_of(one), trace_of(other)


def said_unchanged(source: Source) -> Trace | None:
    """What a model says with nothing changed in it, as a trace without its layers; None where nothing is changed.

    Raises:
        AttentionError: as for `trace_of`.
    """
    if not (isinstance(source, Changeable) and source.interventions):
        return None
    unchanged = source.unchanged
    key = _key(unchanged, "said")
    kept: Trace | None = KEPT.get(key)
    if kept is not None:
        return kept
    whole = _trace_of(unchanged, unchanged.needs if isinstance(unchanged, Turnable) else 0)  # aside
    return KEPT.once(key, lambda: replace(whole, layers=()))


def work_out(layer: Layer, head: int) -> None:
    """Makes what a page shows of one head, aside, before it is asked for piece by piece."""
    ready = (layer.number, "ready", (layer.formula, head))
    if layer.formula is None or KEPT.get(ready):
        return

    def everything() -> bool:
        for step in layer.steps:
            layer.matrix(step.name, head)
            layer.facts(step.name)
        return True

    with turns.aside(), _making("maps"):
        KEPT.once(ready, everything)


def scaling_of(source: TypedText) -> Scaling:
    """What the Softmax page shows of a source, made once as long as it is kept.

    Raises:
        AttentionError: the source gives no trace.
    """

    def make() -> Scaling:
        from attention.lessons.scaling import (
            measured,  # with pandas, half a second, which the other pages need not wait for
        )

        return measured(source)

    return _found(_key(source, "scaling"), make, "scaling")


def seen_of(lesson: Lesson) -> Seen:
    """What a lesson is about, before and after its one knob is turned.

    Raises:
        AttentionError: its state, or what it asks for, is not to be had here.
    """
    from attention.lessons.answers import Seen

    before, _ = source_of(lesson.link, LIMITS)
    after, _ = source_of(lesson.link_turned, LIMITS) if lesson.turn else (before, ())
    first, second = both_of(before, after) if after != before else (trace_of(before),) * 2
    return Seen(first, second, *lesson.place)


def _trace_of(source: Source, needs: int) -> Trace:
    if not isinstance(source, Turnable):
        return _found(_key(source), source.trace, type(source).__name__)
    base = source.base

    def make() -> Trace:
        if needs > _LARGE:
            memory.release()
        KEPT.make_room(needs)
        return base.trace()

    kind = "" if isinstance(source, Preparable) else type(source).__name__
    return _found(_key(base), make, kind).turned(source.config)


def _making(kind: str) -> Lock:
    return _MAKING.setdefault(kind, Lock())


def _found(key: bytes, make: Callable[[], Made], kind: str) -> Made:
    kept: Made | None = KEPT.get(key)
    if kept is not None:
        return kept

    def alone() -> Made:
        with _making(kind) if kind else nullcontext():
            return make()

    with turns.aside(), watching(watcher()):
        return KEPT.once(key, alone)
