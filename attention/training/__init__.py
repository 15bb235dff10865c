"""Tiny models that learn while one watches."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from attention.training.plan import Plan
from attention.training.tasks import TASKS

if TYPE_CHECKING:
    from attention.training.learning import Snapshot

__all__ = ["TASKS", "Plan", "train"]


def train(
    task: str,
    seed: int = 0,
    steps: int = 0,
    control: str = "",
    *,
    every: int = 0,
    seconds: float | None = None,
    **turned: int,
) -> Generator[Snapshot]:
    """Trains a tiny model and gives a snapshot of it again and again: step, seconds, loss, accuracy, score, parameters. Closed, it stops.

    It uses one thread of torch, and only random generators of its own: two at once get the very digits of one alone.

    Args:
        task: one of `TASKS`.
        seed: of the initial parameters and of all batches.
        steps: at most; 0: as many as the task says.
        control: one of the task's controls; empty: the model that can learn it.
        every: how many steps lie between two snapshots; 0: a twentieth of all. The first and the last step always have one.
        seconds: of work by the wall clock after which it stops; None: 60.
        turned: the task's sliders, such as `length`.

    Raises:
        ConfigError: there is no such task or control, or a number is out of range.
    """
    from attention.training.learning import snapshots

    return snapshots(Plan(task, seed, steps, control, tuple(sorted(turned.items()))), every, (), seconds)
