"""Trainings for everybody: made once for all who want the same at the same time, stopped when nobody watches, kept in `attention.formula.kept`."""

from __future__ import annotations

import time
from contextlib import closing
from threading import Condition, Thread
from typing import TYPE_CHECKING, NamedTuple

from attention.errors import ConfigError
from attention.formula.kept import KEPT
from attention.progress import telling

if TYPE_CHECKING:
    from attention.training.learning import Snapshot
    from attention.training.plan import Plan

PATIENCE = 10.0  # seconds without anybody who looks, after which a training stops
MOST_AT_ONCE = 40  # trainings under way, of everybody; they take turns


class Wanted(NamedTuple):
    """What is trained, and which snapshots are kept: those of a film, or `also` another one, or the first and the last alone."""

    plan: Plan
    also: int = 0
    film: bool = True


class Film:
    """A training and the snapshots that there are by now; whoever looks keeps it going."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted, self.snapshots = wanted, list["Snapshot"]()
        self.looked = time.monotonic()
        self._changed, self._ended = Condition(), False
        self._failed: BaseException | None = None

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

    def look(self) -> tuple[Snapshot, ...]:
        """The snapshots that there are by now; waits for the first.

        Raises:
            ConfigError: it could not be finished.
        """
        self.looked = time.monotonic()
        with self._changed:
            self._changed.wait_for(lambda: self._ended or bool(self.snapshots))
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
                self._changed.wait(timeout=0 if self._ended else 1)
            self.look()
            if tell is not None:
                tell("Training the model …", self.share)
        return self.look()

    def run(self) -> None:
        """Trains, until it is finished or nobody looks."""
        from attention.training.learning import snapshots

        plan, also, film = self.wanted
        try:
            with closing(snapshots(plan, 0 if film else plan.steps, (also,))) as training:
                for snapshot in training:
                    with self._changed:
                        self.snapshots.append(snapshot)
                        self._changed.notify_all()
                    if time.monotonic() - self.looked > PATIENCE:
                        break
        except BaseException as error:  # whoever waits is told
            self._failed = error
        with self._changed:
            with _CHANGE:
                _RUNNING.pop(self.wanted, None)
                if self.finished:
                    KEPT.once(self.wanted, lambda: self)
            self._ended = True
            self._changed.notify_all()


_CHANGE = Condition()
_RUNNING: dict[Wanted, Film] = {}


def film_of(plan: Plan, also: int = 0, film: bool = True) -> Film:
    """The training of a plan: the one that is kept or under way, or a new one.

    Args:
        plan: what is trained.
        also: a step between two pictures of the film that has a snapshot too.
        film: whether there is a picture for each part of the way; otherwise the first and the last alone.

    Raises:
        ConfigError: too many are under way.
    """
    wanted = Wanted(plan, also if film and also % plan.every and also != plan.steps else 0, film)
    with _CHANGE:
        found: Film | None = KEPT.get(wanted) or _RUNNING.get(wanted)
        if found is not None:
            found.looked = time.monotonic()
            return found
        if len(_RUNNING) >= MOST_AT_ONCE:
            raise ConfigError(
                f"{MOST_AT_ONCE} models are being trained here, and no more at once: try again in a moment."
            )
        found = _RUNNING[wanted] = Film(wanted)
    Thread(target=found.run, name=f"training {plan.name}", daemon=True).start()
    return found


def untrained(plan: Plan) -> Snapshot:
    """The model of a plan before its first step."""
    from attention.training.learning import snapshots

    def make() -> Snapshot:
        with closing(snapshots(plan)) as training:
            return next(training)

    found: Snapshot = KEPT.once(("untrained", plan), make)
    return found
