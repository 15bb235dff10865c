"""Trainings for everybody: made once for all who want the same at the same time, stopped when nobody watches, kept in `attention.formula.kept`."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from contextlib import closing
from threading import Condition
from typing import TYPE_CHECKING, Any, NamedTuple

from attention.errors import BusyError, ConfigError
from attention.formula.kept import KEPT
from attention.progress import telling
from attention.training.watching import Watcher, current

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from attention.training.learning import Snapshot
    from attention.training.plan import Plan

_BEAT = 1.0  # seconds after which whoever waits says that they still do
PATIENCE = 10.0  # seconds without anybody who looks, after which a training stops
MOST_AT_ONCE = 40  # trainings under way that somebody looks at; they take turns
MOST_OF_A_GROUP = 30  # of these; a class has one address
MOST_OF_ONE = 3  # of these: a model, a control beside it, and another seed


class Wanted(NamedTuple):
    """What is trained, and which snapshots are kept: those of a film, or `also` another one, or the first and the last alone."""

    plan: Plan
    also: int = 0
    film: bool = True


def _now(work: Callable[[], Any]) -> Any:
    return work()


class Film:
    """A training and the snapshots that there are by now; whoever looks keeps it going."""

    def __init__(self, wanted: Wanted) -> None:
        from attention.training.learning import snapshots

        self.wanted, self.snapshots = wanted, list["Snapshot"]()
        self._watchers: dict[Hashable, tuple[Watcher, float]] = {}
        self._changed, self._ended = Condition(), False
        self._gives_way = False
        self._failed: Exception | None = None
        plan, also, film = wanted
        self._training = snapshots(plan, 0 if film else plan.steps, (also,), run=_now)

    @property
    def watchers(self) -> list[Watcher]:
        """Those who are present and have looked within `PATIENCE`; nobody counts once it gives way."""
        if self._gives_way:
            return []
        since = time.monotonic() - PATIENCE
        return [one for one, looked in [*self._watchers.values()] if looked >= since and one.present()]

    def looked(self, watcher: Watcher) -> float | None:
        """When this watcher has looked last; None where they do not watch it."""
        return self._watchers[watcher.key][1] if watcher.key in self._watchers else None

    def leave(self, watcher: Watcher) -> None:
        """This watcher does not look any more."""
        self._watchers.pop(watcher.key, None)

    def give_way(self) -> None:
        """It ends before its next piece, so that another group can train. With `_CHANGE` held."""
        self._gives_way = True
        self._forget()

    def _forget(self) -> None:
        """Whoever wants the same from now on has it trained anew, unless somebody does already. With `_CHANGE` held."""
        if _RUNNING.get(self.wanted) is self:
            del _RUNNING[self.wanted]

    @property
    def nbytes(self) -> int:
        """The memory of its snapshots, in bytes."""
        return sum(one.row.nbytes for one in self.snapshots)

    @property
    def finished(self) -> bool:
        """Whether the last step is there."""
        return bool(self.snapshots) and self.snapshots[-1].step == self.wanted.plan.steps

    @property
    def share(self) -> float:
        """How much of it is done, from 0 to 1."""
        return self.snapshots[-1].step / self.wanted.plan.steps if self.snapshots else 0.0

    def watch(self) -> None:
        """The watcher of this thread looks now."""
        if not self._ended:
            self._watchers[current().key] = current(), time.monotonic()

    def look(self) -> tuple[Snapshot, ...]:
        """The snapshots that there are by now; waits for the first.

        Raises:
            ConfigError: it could not be finished.
        """
        self.watch()
        with self._changed:
            while not (self._ended or self.snapshots):
                self._changed.wait(_BEAT)
                self.watch()
        if self._ended and not self.finished:
            if self._failed is not None:
                raise self._failed
            raise ConfigError(
                f"The training took too long here and stopped at step {self.snapshots[-1].step if self.snapshots else 0}: train fewer steps, or try again."
            )
        return tuple(self.snapshots)

    def wait(self) -> tuple[Snapshot, ...]:
        """All snapshots, when the last is there.

        Raises:
            ConfigError: it could not be finished.
        """
        tell = telling()
        while not self._ended:
            with self._changed:
                self._changed.wait(timeout=0 if self._ended else _BEAT)
            self.look()
            if tell is not None:
                tell("Training the model …", self.share)
        return self.look()

    @property
    def group(self) -> Hashable:
        """The group of the first who looks; it shares the time with others."""
        return next((one.group for one in self.watchers), None)

    def step(self) -> bool:
        """Trains up to the next snapshot; whether there is more to train, which is not so where nobody looks any more."""
        with _CHANGE:
            left = not self.watchers
            if left:
                self._forget()
        if left:
            at = self.snapshots[-1].step if self.snapshots else 0
            why = (
                "Many models are trained here, most of them for one address, so one of these gives way to another's; it"
                if self._gives_way
                else "A training goes on while somebody looks; this one"
            )
            self.fail(ConfigError(f"{why} stopped at step {at}: try again in a moment."))
            return False
        try:
            snapshot = next(self._training, None)
        except Exception as error:  # whoever waits is told
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
        """Ends it; whoever waits is told why."""
        self._failed = error
        self._end()

    def _end(self) -> None:
        self._training.close()
        with self._changed:
            with _CHANGE:
                self._forget()
                if self.finished:
                    KEPT.once(self.wanted, lambda: self)
            self._ended = True
            self._watchers.clear()
            self._changed.notify_all()


_CHANGE = Condition()
_RUNNING: dict[Wanted, Film] = {}


def film_of(plan: Plan, also: int = 0, film: bool = True) -> Film:
    """The training of a plan: the one that is kept or under way, or a new one, which the watcher of this thread looks at.

    A person who begins one too many leaves that which they looked at longest ago.

    Args:
        plan: what is trained.
        also: a step between two pictures of the film that has a snapshot too.
        film: whether there is a picture for each part of the way; otherwise the first and the last alone.

    Raises:
        ConfigError: too many are under way.
    """
    from attention.training.threads import WORKER

    wanted, watcher = Wanted(plan, also if film and also % plan.every and also != plan.steps else 0, film), current()
    with _CHANGE:
        found: Film | None = KEPT.get(wanted) or _RUNNING.get(wanted)
        if found is None:
            _make_room(watcher)
            found = _RUNNING[wanted] = Film(wanted)
            found.watch()
            WORKER.add(found)
        found.watch()
        return found


def _make_room(watcher: Watcher) -> None:
    """Lets a watcher begin one more training; where all places are taken, the group that has most of them gives one to a group with fewer.

    Raises:
        BusyError: too many are under way.
    """
    if watcher.key is not None:
        mine = [(looked, film) for film in _RUNNING.values() if (looked := film.looked(watcher)) is not None]
        for _, film in sorted(mine, key=lambda one: one[0])[: max(0, len(mine) + 1 - MOST_OF_ONE)]:
            film.leave(watcher)
    groups = {film: {one.group for one in film.watchers} for film in _RUNNING.values()}
    counts = Counter(itertools.chain.from_iterable(groups.values()))
    ours = counts[watcher.group]
    if watcher.group is not None and ours >= MOST_OF_A_GROUP:
        raise BusyError(
            f"At most {MOST_OF_A_GROUP} models are trained at once for one address; {ours} are: try again in a moment."
        )
    if sum(map(bool, groups.values())) < MOST_AT_ONCE:
        return
    largest, most = next(iter(counts.most_common(1)), (None, 0))
    theirs = [film for film, one in groups.items() if one == {largest}]
    if not theirs or most <= ours + 1:
        raise BusyError(f"{MOST_AT_ONCE} models are being trained here, and no more at once: try again in a moment.")
    min(theirs, key=lambda film: film.share).give_way()


def untrained(plan: Plan) -> Snapshot:
    """The model of a plan before its first step."""
    from attention.training.learning import snapshots

    def make() -> Snapshot:
        with closing(snapshots(plan)) as training:
            return next(training)

    found: Snapshot = KEPT.once(("untrained", plan), make)
    return found
