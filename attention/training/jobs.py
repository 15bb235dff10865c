"""Shared trainings: equal plans train once, a training stops when nobody watches it, and finished ones are cached in `attention.base.cache`."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from contextlib import closing
from operator import call
from threading import Condition
from typing import TYPE_CHECKING, NamedTuple

from attention.base.cache import CACHE
from attention.base.errors import BusyError, ConfigError
from attention.base.progress import Watcher, current_callback, current_watcher

if TYPE_CHECKING:
    from collections.abc import Hashable

    from attention.training.learning import Snapshot
    from attention.training.tasks import Plan

_BEAT = 1.0  # seconds after which a waiting thread renews its watch
_PATIENCE = 10.0  # seconds without a watcher, after which a training stops
_MAX_TRAININGS = 40  # running trainings with a watcher; they take turns
_MAX_PER_GROUP = 30  # of these for one group; a class has one address
_MAX_PER_USER = 3  # of these for one user: a model, a control, and another seed


class _FilmKey(NamedTuple):
    """A plan and its snapshots: those of a film and at the step `also`, or only the first and the last."""

    plan: Plan
    also: int = 0
    film: bool = True


class _Film:
    """A running training and its snapshots so far; it runs while somebody watches."""

    def __init__(self, wanted: _FilmKey) -> None:
        from attention.training.learning import snapshots

        self.wanted, self.snapshots = wanted, list["Snapshot"]()
        self._watchers: dict[Hashable, tuple[Watcher, float]] = {}
        self._changed, self._ended = Condition(), False
        self._evicted = False
        self._error: Exception | None = None
        plan, also, is_film = wanted
        self._training = snapshots(plan, 0 if is_film else plan.steps, (also,), run=call)

    @property
    def watchers(self) -> list[Watcher]:
        """The watchers that are connected and have looked within `_PATIENCE`; none after an eviction."""
        if self._evicted:
            return []
        since = time.monotonic() - _PATIENCE
        return [watcher for watcher, looked in [*self._watchers.values()] if looked >= since and watcher.is_connected()]

    def last_look(self, watcher: Watcher) -> float | None:
        """The time at which this watcher looked last; None if they do not watch this training."""
        return self._watchers[watcher.key][1] if watcher.key in self._watchers else None

    def leave(self, watcher: Watcher) -> None:
        """Remove a watcher."""
        self._watchers.pop(watcher.key, None)

    def evict(self) -> None:
        """End the training before its next piece, so that another group can train. The caller holds `_CHANGE`."""
        self._evicted = True
        self._forget()

    def _forget(self) -> None:
        """Remove the training from the registry, so that the next request starts a new one. The caller holds `_CHANGE`."""
        if _RUNNING.get(self.wanted) is self:
            del _RUNNING[self.wanted]

    @property
    def nbytes(self) -> int:
        """The size of its snapshots in bytes."""
        return sum(snapshot.row.nbytes for snapshot in self.snapshots)

    @property
    def finished(self) -> bool:
        """Whether the last step is done."""
        return bool(self.snapshots) and self.snapshots[-1].step == self.wanted.plan.steps

    @property
    def fraction_done(self) -> float:
        """The fraction of its steps that is done, from 0 to 1."""
        return self.snapshots[-1].step / self.wanted.plan.steps if self.snapshots else 0.0

    def watch(self) -> None:
        """Note that the watcher of this thread looks now."""
        if not self._ended:
            self._watchers[current_watcher().key] = current_watcher(), time.monotonic()

    def snapshots_so_far(self) -> tuple[Snapshot, ...]:
        """The snapshots so far; waits for the first.

        Raises:
            ConfigError: the training was not finished.
        """
        self.watch()
        with self._changed:
            while not (self._ended or self.snapshots):
                self._changed.wait(_BEAT)
                self.watch()
        if self._ended and not self.finished:
            if self._error is not None:
                raise self._error
            raise ConfigError(
                f"The training took too long here and stopped at step {self.snapshots[-1].step if self.snapshots else 0}: train fewer steps, or try again."
            )
        return tuple(self.snapshots)

    def wait(self) -> tuple[Snapshot, ...]:
        """All snapshots; waits for the last.

        Raises:
            ConfigError: the training was not finished.
        """
        report = current_callback()
        while not self._ended:
            with self._changed:
                self._changed.wait(timeout=0 if self._ended else _BEAT)
            self.snapshots_so_far()
            if report is not None:
                report("Training the model …", self.fraction_done)
        return self.snapshots_so_far()

    @property
    def group(self) -> Hashable:
        """The group of the first watcher; groups share the time of the training thread."""
        return next((watcher.group for watcher in self.watchers), None)

    def step(self) -> bool:
        """Train up to the next snapshot; returns whether there is more to train, false if nobody watches any more."""
        with _CHANGE:
            abandoned = not self.watchers
            if abandoned:
                self._forget()
        if abandoned:
            step = self.snapshots[-1].step if self.snapshots else 0
            reason = (
                "Many models are being trained here, most of them for one address, so one of these was stopped for another; it"
                if self._evicted
                else "A training runs while somebody watches; this one"
            )
            self.fail(ConfigError(f"{reason} stopped at step {step}: try again in a moment."))
            return False
        try:
            snapshot = next(self._training, None)
        except Exception as error:  # raised again in the waiting threads
            self.fail(error)
            return False
        if snapshot is not None:
            with self._changed:
                self.snapshots.append(snapshot)
                self._changed.notify_all()
        if snapshot is None or self.finished:
            self._end()
        return not self._ended

    def fail(self, error: Exception) -> None:
        """End the training; waiting threads raise the error."""
        self._error = error
        self._end()

    def _end(self) -> None:
        self._training.close()
        with self._changed:
            with _CHANGE:
                self._forget()
                if self.finished:
                    CACHE.get_or_compute(self.wanted, lambda: self)
            self._ended = True
            self._watchers.clear()
            self._changed.notify_all()


_CHANGE = Condition()
_RUNNING: dict[_FilmKey, _Film] = {}


def get_film(plan: Plan, also: int = 0, film: bool = True) -> _Film:
    """The training of a plan: cached, running, or new. The watcher of this thread watches it.

    A user who starts one training too many leaves the one that they looked at longest ago.

    Args:
        also: a step between two frames that has a snapshot too.
        film: whether all frames have snapshots; otherwise only the first and the last step.

    Raises:
        ConfigError: too many trainings are running.
    """
    from attention.training.learning import TRAINING_WORKER

    wanted = _FilmKey(plan, also if film and also % plan.every and also != plan.steps else 0, film)
    watcher = current_watcher()
    with _CHANGE:
        training: _Film | None = CACHE.get(wanted) or _RUNNING.get(wanted)
        if training is None:
            _make_room(watcher)
            training = _RUNNING[wanted] = _Film(wanted)
            training.watch()
            TRAINING_WORKER.add(training)
        training.watch()
        return training


def _make_room(watcher: Watcher) -> None:
    """Make room for one more training of a watcher; if all places are taken, the largest group gives one to a smaller group."""
    if watcher.key is not None:
        watched = [(looked, film) for film in _RUNNING.values() if (looked := film.last_look(watcher)) is not None]
        for _, film in sorted(watched, key=lambda pair: pair[0])[: max(0, len(watched) + 1 - _MAX_PER_USER)]:
            film.leave(watcher)
    groups = {film: {watcher.group for watcher in film.watchers} for film in _RUNNING.values()}
    counts = Counter(itertools.chain.from_iterable(groups.values()))
    own_count = counts[watcher.group]
    if watcher.group is not None and own_count >= _MAX_PER_GROUP:
        raise BusyError(
            f"At most {_MAX_PER_GROUP} models are trained at once for one address; {own_count} are running: try again in a moment."
        )
    if sum(map(bool, groups.values())) < _MAX_TRAININGS:
        return
    largest_group, largest_count = next(iter(counts.most_common(1)), (None, 0))
    candidates = [film for film, watching in groups.items() if watching == {largest_group}]
    if not candidates or largest_count <= own_count + 1:
        raise BusyError(f"{_MAX_TRAININGS} models are being trained here, which is the limit: try again in a moment.")
    min(candidates, key=lambda film: film.fraction_done).evict()


def untrained(plan: Plan) -> Snapshot:
    """The model of a plan before its first step."""
    from attention.training.learning import snapshots

    def make() -> Snapshot:
        with closing(snapshots(plan)) as training:
            return next(training)

    snapshot: Snapshot = CACHE.get_or_compute(("untrained", plan), make)
    return snapshot
